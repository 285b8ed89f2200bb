"""A start at which not all objects could be read: what stands of the services that may be among them stays."""

import pytest

from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.serving.metrics import BuildInfo, Metrics
from pykubeproxy.sync.engine import Engine
from pykubeproxy.sync.keeping import standing_services
from tests.support.builders import desired, endpoint_slice, port, service, settings, state
from tests.support.fake_kernel import FakeKernel

PORTS = [port(80, "http", node_port=30080), port(53, "dns", protocol="UDP")]
KNOWN = [service("known", ip="10.96.0.1"), endpoint_slice("known", ["10.244.0.1"])]
OTHER = [
    service(
        "other",
        ip="10.96.0.2",
        ports=PORTS,
        lb=["203.0.113.9"],
        externalIPs=["198.51.100.7"],
        loadBalancerSourceRanges=["10.0.0.0/8"],
        externalTrafficPolicy="Local",
        healthCheckNodePort=32000,
        sessionAffinity="ClientIP",
    ),
    endpoint_slice(
        "other",
        ["10.244.0.2", {"addresses": ["10.244.1.2"], "nodeName": "node-b"}],
        ports=[{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}],
    ),
]
EMPTY = [service("empty", ip="10.96.0.3", externalIPs=["198.51.100.8"])]
ALL = [*KNOWN, *OTHER, *EMPTY]


def engine_of(held, kernel, at=None, dispatch="flat"):
    metrics = Metrics(families=["IPv4"], build=BuildInfo(version="0"))
    return Engine(held, Backend("nft", "IPv4"), kernel, at or settings(), metrics=metrics, dispatch=dispatch)


def kernel_with(*objects, dispatch="flat"):
    """A kernel in which the rules of these objects stand."""
    kernel = FakeKernel()
    engine_of(state(*objects), kernel, dispatch=dispatch).sync()
    return kernel


def partial(*objects):
    held = state(*objects)
    held.set_partial(is_partial=True)
    return held


def rules(kernel):
    return {
        (table, chain): sorted(lines) for table, found in kernel.tables.items() for chain, lines in found.chains.items()
    }


@pytest.mark.parametrize("dispatch", ["flat", "tree"])
def test_what_stands_is_read_back_as_it_was_rendered(dispatch):
    whole = desired(*ALL, dispatch=dispatch)
    again = desired(dispatch=dispatch)
    held = partial()
    again.update(held, (), kept=standing_services(whole.ruleset))
    assert again.ruleset.chains == whole.ruleset.chains


@pytest.mark.parametrize("dispatch", ["flat", "tree"])
def test_unknown_services_stay_and_known_ones_follow(dispatch):
    kernel = kernel_with(*ALL, dispatch=dispatch)
    changed = [KNOWN[0], endpoint_slice("known", ["10.244.0.9"])]
    held = partial(*changed)
    engine = engine_of(held, kernel, dispatch=dispatch)
    engine.sync()
    assert rules(kernel) == rules(kernel_with(*changed, *OTHER, *EMPTY, dispatch=dispatch))
    engine.configure(settings(), dispatch="tree" if dispatch == "flat" else "flat")
    engine.sync()
    other = "tree" if dispatch == "flat" else "flat"
    assert rules(kernel) == rules(kernel_with(*changed, *OTHER, *EMPTY, dispatch=other))
    held.set_partial(is_partial=False)
    engine.sync()
    assert rules(kernel) == rules(kernel_with(*changed, dispatch=other))


def test_a_service_whose_slices_are_unknown_stays_as_it_stands():
    kernel = kernel_with(*ALL)
    before = rules(kernel)
    held = partial(*KNOWN, OTHER[0])
    engine = engine_of(held, kernel)
    engine.sync()
    assert rules(kernel) == before
    held.set_slice(OTHER[1])
    held.set_service(EMPTY[0])
    engine.sync()
    assert rules(kernel) == before
    held.set_partial(is_partial=False)
    engine.sync()
    assert rules(kernel) == before


def test_a_known_service_may_lose_a_port():
    kernel = kernel_with(*ALL)
    less = [service("other", ip="10.96.0.2", ports=PORTS[1:]), OTHER[1]]
    engine_of(partial(*KNOWN, *less), kernel).sync()
    assert rules(kernel) == rules(kernel_with(*KNOWN, *less, *EMPTY))


def test_a_whole_list_keeps_nothing():
    kernel = kernel_with(*ALL)
    engine_of(state(*KNOWN), kernel).sync()
    assert rules(kernel) == rules(kernel_with(*KNOWN))
