"""The upstream tests "Conntrack": a UDP client that keeps its port meets each pod that takes the service over."""

import contextlib

import pytest

from e2e.netlab.wiring import NODE_IP, NODE_IP6
from tests.conformance.cluster import INSTEAD, OTHER_UDP, UDP, backend, leaves, udp, until

pytestmark = [pytest.mark.netns, pytest.mark.slow]

FAMILIES = pytest.mark.parametrize("family", [4, 6])
PORT = 12345


@contextlib.contextmanager
def sender(place, address, port):
    """One flow that goes on, whatever becomes of its datagrams."""
    soak = place.soak_udp(address, port, interval=0.05, timeout=0.5, source_port=PORT)
    try:
        yield soak
    finally:
        soak.stop()


def meets(soak, pod):
    """Wait until the latest answers are all of one pod."""
    known = len(soak.so_far().answers)

    def now():
        new = soak.so_far().answers[known:]
        return len(new) >= 5 and {answer.pod for answer in new[-5:]} == {pod}

    until(now, f"the flow meets {pod}")


def cycle(service, soak, first, second):
    """What the controllers write while one pod comes, another joins, and the first is deleted."""
    service.endpoints(first)
    meets(soak, first)
    service.endpoints(first, second)
    service.endpoints(leaves(first), second)
    service.endpoints(second)
    meets(soak, second)


@FAMILIES
def test_server_pod_cycles_for_a_node_port_service(site, family):
    service = site.service(f"cycle-node-port-{family}", udp())
    service.as_node_port()
    with sender(site.outside, NODE_IP if family == 4 else NODE_IP6, service.node_port()) as soak:
        cycle(service, soak, "p1", "p2")
    service.delete()


@FAMILIES
def test_server_pod_cycles_for_a_cluster_ip_service(site, family):
    service = site.service(f"cycle-{family}", udp())
    with sender(site.client, service.ips[family], 53) as soak:
        cycle(service, soak, "p1", "p2")
        cycle(service, soak, "far", "p1")
    service.delete()


def test_server_pod_cycles_with_internal_traffic_policy_local(site):
    service = site.service("cycle-local", udp(), internalTrafficPolicy="Local")
    with sender(site.client, service.ips[4], 53) as soak:
        service.endpoints("p1", "far")
        meets(soak, "p1")
        service.endpoints(leaves("p1"), "far")
        service.endpoints("far")
        service.endpoints("far", backend("p2", ready=False))
        service.endpoints("far", "p2")
        meets(soak, "p2")
        assert "far" not in soak.so_far().pods
    service.delete()


def test_server_pod_cycles_and_the_client_is_on_the_host_network(site):
    service = site.service("cycle-host", udp())
    with sender(site.node, service.ips[4], 53) as soak:
        cycle(service, soak, "far", "p2")
    service.delete()


def test_initial_unready_endpoints_get_ready(site):
    service = site.service("unready", udp())
    with sender(site.client, service.ips[4], 53) as soak:
        until(lambda: soak.so_far().failures, "the first refusal")
        service.endpoints(backend("p1", ready=False))
        seen = len(soak.so_far().failures)
        until(lambda: len(soak.so_far().failures) > seen + 5, "refusals while it is not ready")
        assert not soak.so_far().answers
        service.endpoints("p1")
        meets(soak, "p1")
    service.delete()


def test_the_target_port_changes_for_a_node_port_service(site):
    service = site.service("target", udp())
    service.as_node_port()
    pod = site.lab.pods["p1"]
    with sender(site.outside, NODE_IP, service.node_port()) as soak:
        service.endpoints("p1")
        meets(soak, "p1")
        before = len(pod.seen(OTHER_UDP))
        service.endpoints("p1", udp_53=OTHER_UDP)
        until(lambda: len(pod.seen(OTHER_UDP)) > before + 5, "the new port is met")
        late = len(pod.seen(UDP))
        meets(soak, "p1")
        assert len(pod.seen(UDP)) == late
    service.delete()


@pytest.mark.skipif(bool(INSTEAD), reason="kube-proxy forgets the flows of services that are gone")
def test_a_service_that_is_deleted_lets_go_of_its_flows(site):
    service = site.service("gone", udp())
    with sender(site.client, service.ips[4], 53) as soak:
        service.endpoints("p1")
        meets(soak, "p1")
        service.delete()
        known = len(soak.so_far().failures)
        until(lambda: len(soak.so_far().failures) > known + 5, "nobody answers")
