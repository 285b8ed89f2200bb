"""The same endpoint twice, a slice that changes its service (R067, R073): each chain once, under the right service."""

import pytest

from pykubeproxy.dryrun import plan
from pykubeproxy.model.service import ServiceKey
from tests.support.builders import desired, endpoint, endpoint_slice, service, settings, slice_port, state
from tests.support.kernel import real_kernel

READY = {"ready": True, "serving": True, "terminating": False}
LEAVING = {"ready": False, "serving": True, "terminating": True}


def seps(wanted):
    return [text for chain, text in wanted.ruleset.chains["nat"].items() if chain.startswith("KUBE-SEP-")]


def slices(first, second, **more):
    return [
        endpoint_slice("web", [endpoint("10.244.0.11", **first)], name="a", **more),
        endpoint_slice("web", [endpoint("10.244.0.11", **second)], name="b"),
    ]


@pytest.mark.parametrize("pair", [(READY, LEAVING), (LEAVING, READY)])
def test_old_and_new_pod_of_one_address_are_one_chain_and_it_is_ready(pair):
    wanted = desired(service(), *slices(*pair))
    assert len(seps(wanted)) == 1
    assert wanted.health_checks == {}
    assert wanted.size == (1, 1)


def test_one_address_with_two_ports_is_two_chains():
    wanted = desired(service(), *slices(READY, READY, ports=[slice_port(8081)]))
    assert sorted(text.rpartition(" ")[2].strip() for text in seps(wanted)) == ["10.244.0.11:8080", "10.244.0.11:8081"]


@pytest.mark.netns
@pytest.mark.parametrize("kind", ["legacy", "nft"])
def test_the_kernel_takes_them(kind):
    wanted = desired(service(), *slices(READY, LEAVING), *slices(READY, READY, ports=[slice_port(8081)]))
    with real_kernel(kind) as kernel:
        assert kernel.restore(plan(wanted).text()).status == 0


def test_a_slice_that_is_relabelled_moves_with_its_chains():
    held = state(
        service("a", ip="10.96.0.1"), service("b", ip="10.96.0.2"), endpoint_slice("a", ["10.244.0.1"], name="s")
    )
    wanted = desired()
    wanted.update(held, held.take_dirty())
    assert wanted.chains_of(ServiceKey("default", "a"))
    held.set_slice(endpoint_slice("b", ["10.244.0.1"], name="s"))
    wanted.update(held, held.take_dirty())
    assert wanted.chains_of(ServiceKey("default", "a")) == []
    assert len(wanted.chains_of(ServiceKey("default", "b"))) == 2
    once = desired(
        service("a", ip="10.96.0.1"), service("b", ip="10.96.0.2"), endpoint_slice("b", ["10.244.0.1"], name="s")
    )
    assert wanted.ruleset.chains == once.ruleset.chains


def test_the_health_check_port_counts_an_address_once():
    balanced = service(lb=["203.0.113.9"], externalTrafficPolicy="Local", healthCheckNodePort=32000)
    both = desired(balanced, *slices(READY, READY, ports=[slice_port(8081)]), at=settings())
    assert both.health_checks == {ServiceKey("default", "web"): (32000, 1)}
