"""Objects full of nonsense: nothing raises, a real kernel takes what becomes of them, the good service is served."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from pykubeproxy.dryrun import desired, plan
from pykubeproxy.netfilter.read import parse, standing
from pykubeproxy.watch.manifests import ClusterObjects
from pykubeproxy.watch.objects import EndpointSlice, Service
from tests.support.builders import endpoint_slice, service, settings
from tests.support.clusters import clusters
from tests.support.kernel import real_kernel
from tests.support.truths import untruths

pytestmark = pytest.mark.netns

WORDS = st.one_of(
    st.sampled_from(
        (
            "",
            " ",
            '"',
            "\n-A INPUT -j DROP\n",
            "COMMIT",
            "-j ACCEPT",
            "\u0000",
            "ä" * 300,
            "a" * 300,
            "A.b",
            "0.0.0.0",
            "::",
            "::1",
            "127.0.0.1",
            "255.255.255.255",
            "224.0.0.1",
            "fe80::1",
            "fe80::1%eth0",
            "::ffff:10.0.0.1",
            "010.0.0.1",
            "1.2.3.4/0",
            "0.0.0.0/0",
            "::/0",
            "1.2.3.4/33",
            "10.0.0.0/8 ",
            "Local",
            "ClientIP",
            "TCP",
            "tcp",
            "UDP",
            "SCTP",
            "IPv4",
            "IPv6",
            "None",
            "VIP",
            "2024-01-01T00:00:00Z",
            "$(reboot)",
            "a/b",
            "a:b",
            "-",
            "--help",
            "KUBE-SERVICES",
        )
    ),
    st.text(max_size=20),
)
NUMBERS = st.one_of(
    st.sampled_from((-1, 0, 1, 53, 65535, 65536, 2**31, -(2**63), 2**63 - 1, 86400, 86401)), st.integers(-10, 70000)
)


def spoil(data, tree):
    """Return a copy of plain JSON in which some values are others of the same kind, or null, or there twice."""
    if isinstance(tree, dict):
        return {key: spoil(data, value) for key, value in tree.items()}
    if isinstance(tree, list):
        items = [spoil(data, value) for value in tree]
        return items + items if items and data.draw(st.integers(0, 9)) == 0 else items
    if data.draw(st.integers(0, 7)):
        return tree
    if isinstance(tree, bool) or tree is None:
        return tree
    return data.draw(NUMBERS if isinstance(tree, int) else WORDS)


def spoiled(data, obj):
    tree = spoil(data, msgspec.to_builtins(obj))
    meta = obj.metadata
    tree["metadata"] |= {"name": data.draw(st.sampled_from((meta.name, meta.name, 'x"y', "a\nb", ""))) or "-"}
    return msgspec.convert(tree, type(obj))


GOOD = {
    "IPv4": [service("good", "fine", ip="10.99.0.1"), endpoint_slice("good", ["10.99.0.2"], namespace="fine")],
    "IPv6": [
        service("good", "fine", ip="fd00:99::1"),
        endpoint_slice("good", ["fd00:99::2"], namespace="fine", family="IPv6"),
    ],
}


@pytest.fixture(scope="module", params=["legacy", "nft"])
def kernels(request):
    with real_kernel(request.param) as four, real_kernel(request.param, "IPv6") as six:
        yield {"IPv4": four, "IPv6": six}


@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
@profile(max_examples=max(1, profile().max_examples // 4))
@given(data=st.data())
def test_nonsense_never_raises_never_poisons_and_never_stops_the_others(kernels, family, data):
    whole = data.draw(clusters())
    services = [spoiled(data, one) for one in whole.services if isinstance(one, Service)]
    pieces = [spoiled(data, one) for one in whole.slices if isinstance(one, EndpointSlice)]
    good_service, good_slice = GOOD[family]
    at = settings(family)
    wanted = desired(
        family, ClusterObjects([*services, good_service], [*pieces, good_slice], [], []), at, dispatch="flat"
    )
    assert untruths(wanted.ruleset) == []
    done = kernels[family].restore(plan(wanted).text(), flush=True)
    assert done.status == 0, f"{done.complaint}\n{plan(wanted).text()}"
    found = standing(parse(kernels[family].save()))
    assert found.chains == wanted.ruleset.chains
    assert any('--comment "fine/good cluster IP"' in line for line in found.chains["nat"]["KUBE-SERVICES"].splitlines())
