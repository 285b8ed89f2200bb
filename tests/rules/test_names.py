"""Chain names are kube-proxy's, so that either takes over the other's chains."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.model.addresses import FAMILIES, prefix_of
from pykubeproxy.model.service import ServicePortName
from pykubeproxy.rules.dispatch import LEVELS, chain_name
from pykubeproxy.rules.names import MAX_LENGTH, SERVICE_PREFIXES, PortChains, is_ours
from pykubeproxy.rules.service import probability


def test_names_are_those_of_the_reference():
    """KUBE-SVC-NPX46M4PTMTKRN6Y and KUBE-SVC-ERIFXISQEP7F7OF4 are known from every cluster."""
    assert PortChains(ServicePortName("default", "kubernetes", "https", "TCP")).cluster == "KUBE-SVC-NPX46M4PTMTKRN6Y"
    assert (
        PortChains(ServicePortName("kube-system", "kube-dns", "dns-tcp", "TCP")).cluster == "KUBE-SVC-ERIFXISQEP7F7OF4"
    )
    assert PortChains(ServicePortName("kube-system", "kube-dns", "dns", "UDP")).cluster == "KUBE-SVC-TCOU7JCQXEZGVUNU"


@given(
    name=st.builds(
        ServicePortName,
        st.text(max_size=63),
        st.text(max_size=63),
        st.text(max_size=15),
        st.sampled_from(("TCP", "UDP")),
    )
)
def test_names_are_short_and_ours(name):
    chains = PortChains(name)
    found = [chains.cluster, chains.local, chains.external, chains.firewall, chains.endpoint("[fd00::1]:65535")]
    assert all(len(chain) <= MAX_LENGTH and chain.startswith(SERVICE_PREFIXES) and chain.isascii() for chain in found)
    assert len(set(found)) == 5


@pytest.mark.parametrize("family", FAMILIES)
def test_names_of_the_tree_are_short_ours_and_distinct(family):
    addresses = (
        ["10.96.0.1", "255.255.255.255"] if family == "IPv4" else ["fd00::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"]
    )
    found = [chain_name(prefix_of(address, length), length) for address in addresses for length in LEVELS[family]]
    assert len(set(found)) == len(found)
    assert all(len(chain) <= MAX_LENGTH and is_ours("nat", chain) for chain in found)


@pytest.mark.parametrize(
    ("table", "chain", "ours"),
    [
        ("nat", "KUBE-SVC-ANYTHING", True),
        ("filter", "KUBE-SVC-ANYTHING", False),
        ("nat", "KUBE-XLB-OLD", False),
        ("filter", "KUBE-FIREWALL", False),
        ("nat", "KUBE-FIREWALL", False),
        ("mangle", "KUBE-KUBELET-CANARY", False),
        ("mangle", "KUBE-IPTABLES-HINT", False),
        ("mangle", "KUBE-PROXY-CANARY", True),
        ("nat", "KUBE-MARK-DROP", False),
        ("nat", "KUBE-MARK-MASQ", True),
        ("filter", "KUBE-FORWARD", True),
        ("nat", "KUBE-FORWARD", False),
        ("nat", "kube-svc-lower", False),
        ("nat", "DOCKER", False),
        ("nat", "KUBE-SVC-" + 19 * "A", True),
        ("nat", "KUBE-SVC-" + 20 * "A", False),
    ],
)
def test_what_is_ours(table, chain, ours):
    assert is_ours(table, chain) is ours


def test_probabilities_are_multiples_of_the_kernel_s_step_as_it_prints_them():
    assert [probability(n) for n in (1, 2, 3, 5, 44, 51, 71)] == [
        "1.00000000000",
        "0.50000000000",
        "0.33333333349",
        "0.20000000019",
        "0.02272727247",
        "0.01960784290",
        "0.01408450678",
    ]
    for n in range(2, 2001):
        text = probability(n)
        assert abs(float(text) - 1 / n) < 1e-9
        step = float(text) * 2**31
        assert abs(step - round(step)) < 0.02, "not a multiple of 2**-31"
