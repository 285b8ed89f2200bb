"""What iptables-save prints after a restore is, chain by chain and byte by byte, what was rendered.

That is what adoption rests on. Asked of both backends, both families, and the iptables of Debian 12 and Debian 13.
"""

from __future__ import annotations

import contextlib

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from pykubeproxy.config.flags import resolve
from pykubeproxy.config.hostname import hostname
from pykubeproxy.dryrun import desired as desired_of
from pykubeproxy.dryrun import own_node
from pykubeproxy.model.addresses import FAMILIES, parse_ip, parse_network
from pykubeproxy.netfilter.read import parse, standing
from pykubeproxy.node import nfacct
from pykubeproxy.node.addresses import LocalAddress
from pykubeproxy.rules.dispatch import PortSpace
from pykubeproxy.rules.names import PORT_DISPATCH_PREFIX
from pykubeproxy.rules.ruleset import Ruleset
from pykubeproxy.rules.service import probability
from pykubeproxy.rules.settings import LocalDetector
from pykubeproxy.sync.derive import Facts, rule_settings
from pykubeproxy.sync.diff import difference
from pykubeproxy.sync.plan import make_plan
from pykubeproxy.watch.manifests import load
from tests.oracle.cases_of import BACKENDS, all_cases
from tests.support.builders import desired, endpoint_slice, port, service, settings, slice_port
from tests.support.clusters import clusters
from tests.support.clusters import settings as any_settings
from tests.support.kernel import RealKernel, real_kernel
from tests.support.node import inside
from tests.support.trixie import Unreachable, iptables_root

pytestmark = pytest.mark.netns
VERSIONS = ("this machine's iptables", "Debian 13's iptables")


@pytest.fixture(scope="module", params=VERSIONS)
def kernels(request):
    """One namespace for the module, as seen by each backend and family of one version of iptables."""
    root = None
    if request.param != VERSIONS[0]:
        try:
            root = iptables_root()
        except Unreachable as exc:
            pytest.skip(str(exc))
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(real_kernel("nft", root=root))
        inside(first.netns, nfacct.ensure)
        yield {
            (kind, family): RealKernel(first.netns, first.lock, kind=kind, family=family, root=root)
            for kind in BACKENDS
            for family in FAMILIES
        }


def misprints(kernel, wanted, *, batch=None):
    """Restore into emptied tables; return what is printed otherwise than it was rendered."""
    steps = make_plan(difference(Ruleset(), wanted.ruleset, None), wanted.owner.get, batch=batch).steps
    for number, step in enumerate(steps):
        done = kernel.restore(step.text(), flush=number == 0)
        assert done.status == 0, done.complaint
    found = standing(parse(kernel.save()))
    wrong = [
        (line, other)
        for table, chains in wanted.ruleset.chains.items()
        for chain, text in chains.items()
        for line, other in zip(
            [*text.splitlines(), "end"], [*found.chains[table].get(chain, "no chain").splitlines(), "end"], strict=False
        )
        if line != other
    ]
    assert wrong or found.chains == wanted.ruleset.chains
    missing = [rule for rule in wanted.ruleset.ensured if (rule.table, rule.chain, rule.rule) not in
               {(r.table, r.chain, r.rule) for r in found.ensured}]  # fmt: skip
    return wrong + missing


def facts_of(case, *, with_nfacct):
    """Return what the machine of a case says, without making it."""
    found = []
    for index, interface in enumerate(case.env["interfaces"], 1):
        for address in interface["addresses"]:
            text, _, length = address.partition("/")
            family, canonical = parse_ip(text)
            is_link_local = canonical.startswith(("fe80:", "169.254."))
            found.append(LocalAddress(family, canonical, int(length), index, is_link_local))
    sysctls = case.env.get("sysctls") or {}
    return Facts(
        tuple(found),
        tcp_be_liberal=str(sysctls.get("net.netfilter.nf_conntrack_tcp_be_liberal", "0")) == "1",
        nfacct=with_nfacct,
    )


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_the_rules_of_every_case(kernels, case):
    step = case.steps[-1]
    invocation, _ = resolve({"config": str(step.config)})
    name = hostname(invocation.options, case.env["nodeName"])
    objects = load([str(step.objects)])
    wrong = {}
    for family in FAMILIES:
        at = rule_settings(
            family, invocation.options, name, own_node(objects, name), facts_of(case, with_nfacct=family == "IPv4")
        )
        wanted = desired_of(family, objects, at, dispatch="flat")
        for kind in BACKENDS:
            found = misprints(kernels[kind, family], wanted)
            if found:
                wrong[kind, family] = found
    assert wrong == {}


@pytest.mark.parametrize("kind", BACKENDS)
def test_every_endpoint_count_from_1_to_2000(kernels, kind):
    """A service of n endpoints ends with the rules of one that has n - 1, so the largest holds the texts of all."""
    there = [f"10.244.{number // 250}.{number % 250 + 1}" for number in range(2000)]
    wanted = desired(service(), endpoint_slice(endpoints=there))
    (cluster_chain,) = [text for chain, text in wanted.ruleset.chains["nat"].items() if chain.startswith("KUBE-SVC-")]
    assert all(f"--probability {probability(n)} " in cluster_chain for n in range(2, 2001))
    assert misprints(kernels[kind, "IPv4"], wanted, batch=2000 if kind == "nft" else None) == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", BACKENDS)
def test_every_mark_bit(kernels, kind, family):
    wrong = {}
    for bit in range(32):
        found = misprints(kernels[kind, family], desired(at=settings(family, masquerade_bit=bit)))
        if found:
            wrong[bit] = found
    assert wrong == {}


ADDRESSES = {
    "IPv4": ["0.0.0.1", "1.2.3.4", "10.0.0.0", "100.64.0.1", "127.0.0.2", "169.254.1.1", "224.0.0.1", "255.255.255.254",
             "010.001.000.009"],
    "IPv6": ["::2", "::a", "fe80::1", "ff02::1", "2001:db8::", "2001:DB8::A:0:0:B", "2001:db8:0:1:1:1:1:1", "1::",
             "2001:0db8:0000:0000:0000:0000:0000:0001", "fd00:0:0:1::", "fd00::1:0:0:1", "0:0:1::", "::1:0:0:0:0:0",
             "64:ff9b::192.0.2.33", "::192.0.2.33", "::0.0.1.2", "2002:c000:204::", "1:2:3:4:5:6:7:8", "::ffff:0:a00:1",
             "1:0:0:2:0:0:0:3", "1:0:0:2:3:0:0:4", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::fffe:1.2.3.4",
             "100::", "0:1:0:1:0:1:0:1"],
}  # fmt: skip


def claiming(family, address, number, networks=()):
    """A service that uses an address in every place where one can stand, and a slice with it as the endpoint."""
    name = f"s{number}"
    return [
        service(
            name,
            ip=address,
            ports=[port(80, node_port=30000 + number)],
            externalIPs=[address],
            lb=[address],
            loadBalancerSourceRanges=list(networks),
            sessionAffinity="ClientIP",
        ),
        endpoint_slice(name, [address], family=family),
    ]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", BACKENDS)
def test_every_form_of_address(kernels, kind, family):
    objects = [one for n, address in enumerate(ADDRESSES[family]) for one in claiming(family, address, n)]
    addresses = tuple(parse_ip(address)[1] for address in ADDRESSES[family])
    wanted = desired(*objects, at=settings(family, nodeport_addresses=addresses))
    assert len(wanted.owner) >= 3 * len(addresses)
    assert misprints(kernels[kind, family], wanted) == []
    assert misprints(kernels[kind, family], desired(*objects, at=settings(family), dispatch="tree")) == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", BACKENDS)
def test_every_form_of_port_range(kernels, kind, family, monkeypatch):
    """The first and the last range there can be among them, for each protocol."""
    monkeypatch.setattr(PortSpace, "leaf_size", 1)
    numbers = (1, 63, 64, 511, 4095, 4096, 30000, 30001, 32767, 65472, 65535)
    ports = [
        port(number, f"{protocol.lower()}-{number}", protocol, node_port=number)
        for protocol in ("TCP", "UDP", "SCTP")
        for number in numbers
    ]
    address = "10.96.0.1" if family == "IPv4" else "fd00:96::1"
    there = [slice_port(one["port"], one["name"], one["protocol"]) for one in ports]
    endpoints = ["10.244.0.1"] if family == "IPv4" else ["fd00:10:244::1"]
    objects = service(ip=address, ports=ports), endpoint_slice(endpoints=endpoints, family=family, ports=there)
    wanted = desired(*objects, at=settings(family), dispatch="tree")
    assert len([chain for chain in wanted.ruleset.chains["nat"] if chain.startswith(PORT_DISPATCH_PREFIX)]) > 40
    assert misprints(kernels[kind, family], wanted) == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", BACKENDS)
def test_every_length_of_network(kernels, kind, family):
    whole, bits = ("170.171.172.173", 32) if family == "IPv4" else ("aaab:acad:aeaf:1a2b:3c4d:5e6f:7a8b:9caf", 128)
    networks = [f"{whole}/{length}" for length in range(1, bits + 1)]
    address = "10.96.0.1" if family == "IPv4" else "fd00:96::1"
    assert misprints(kernels[kind, family], desired(*claiming(family, address, 1, networks), at=settings(family))) == []
    for network in (networks[0], networks[6], networks[bits // 2], networks[-2], networks[-1]):
        detector = LocalDetector(network=str(parse_network(network)))
        wanted = desired(
            *claiming(family, address, 1, ["::/0", "0.0.0.0/0"]), at=settings(family, local_detector=detector)
        )
        assert misprints(kernels[kind, family], wanted) == []


@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize(
    "name", ["c", "cni0", "veth+", "a-b_c.d+", "fourteen-chars+", "fifteen-letters", "eth0.100", "x@y"]
)
def test_every_form_of_interface_name(kernels, kind, name):
    at = settings(local_detector=LocalDetector(interface=name))
    objects = claiming("IPv4", "10.96.0.1", 1)
    assert misprints(kernels[kind, "IPv4"], desired(*objects, at=at)) == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", BACKENDS)
@profile(max_examples=max(1, profile().max_examples // 10))
@given(data=st.data())
def test_generated_clusters(kernels, kind, family, data):
    at = data.draw(any_settings(family))
    wanted = desired_of(family, data.draw(clusters()), at, dispatch=data.draw(st.sampled_from(("flat", "tree"))))
    assert misprints(kernels[kind, family], wanted) == []


def test_a_recorded_configuration_is_read_as_it_is():
    """The helper above makes facts out of env.yaml: this guards it against a case that it would misread."""
    for case in all_cases():
        document = yaml.safe_load(case.steps[-1].config.read_text())
        assert document["kind"] == "KubeProxyConfiguration"
        assert all("/" in address for one in case.env["interfaces"] for address in one["addresses"])
