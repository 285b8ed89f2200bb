"""What becomes of packets, service by service, as a table: (from, to) → the ends that it may meet.

Rules are judged by the tracer, not by their text; the texts are held by the recordings (tests/oracle).
"""

import pytest

from pykubeproxy.insight.packet import Packet
from pykubeproxy.insight.tracer import Tracer
from pykubeproxy.rules.names import PortChains
from tests.support.builders import desired, endpoint, endpoint_slice, port, service, settings

POD, OUTSIDE, NODE = "10.244.0.50", "198.51.100.5", "192.168.0.2"
SVC, EXT, LB = "10.96.0.10", "203.0.113.7", "203.0.113.9"
HERE, THERE = "10.244.0.1", "10.244.9.1"


def ends(objects, source, to, number=80, protocol="tcp", *, at=None, recent=None):
    """Return the ends as ``{"10.244.0.1 masqueraded": 0.5}``; endpoint ports are left out."""
    origin = (
        "node" if source == NODE or source.startswith("127.") else "pod" if source.startswith("10.244") else "outside"
    )
    packet = Packet(
        source=source,
        destination=to,
        port=number,
        protocol=protocol,
        origin=origin,
        in_interface={"node": "", "pod": "cni0", "outside": "eth0"}[origin],
        local_addresses=frozenset((NODE,)),
        recent=recent or {},
    )
    found = Tracer.from_ruleset(desired(*objects, at=at).ruleset).trace(packet).ends()
    return {str(end).replace(":8080", ""): round(float(share), 6) for end, share in found.items()}


def one(**spec):
    return [service(**spec), endpoint_slice(endpoints=[endpoint(HERE), endpoint(THERE, "node-b")])]


BOTH = {HERE: 0.5, THERE: 0.5}
BOTH_MASQUERADED = {f"{HERE} masqueraded": 0.5, f"{THERE} masqueraded": 0.5}
NODEPORT = {"ports": [port(80, node_port=30080)]}
LOCAL = {"externalTrafficPolicy": "Local"}
RANGES = {"lb": [LB], "loadBalancerSourceRanges": ["198.51.100.0/24"]}

TABLE = [
    # spec of the service, from, to, port, what may become of it
    ("cluster IP from a pod", {}, POD, SVC, 80, BOTH),
    ("cluster IP from outside", {}, OUTSIDE, SVC, 80, BOTH_MASQUERADED),
    ("cluster IP from the node", {}, NODE, SVC, 80, BOTH_MASQUERADED),
    ("a pod that reaches itself", {}, HERE, SVC, 80, {f"{HERE} masqueraded": 0.5, THERE: 0.5}),
    ("another port of the cluster IP", {}, POD, SVC, 81, {"ACCEPT": 1}),
    ("internal policy Local", {"internalTrafficPolicy": "Local"}, POD, SVC, 80, {HERE: 1}),
    ("node port from outside", NODEPORT, OUTSIDE, NODE, 30080, BOTH_MASQUERADED),
    ("node port from the node itself", NODEPORT, NODE, NODE, 30080, BOTH_MASQUERADED),
    ("node port on localhost", NODEPORT, "127.0.0.1", "127.0.0.1", 30080, BOTH_MASQUERADED),
    ("node port of policy Local", NODEPORT | LOCAL, OUTSIDE, NODE, 30080, {HERE: 1}),
    ("node port of policy Local from a pod", NODEPORT | LOCAL, POD, NODE, 30080, BOTH),
    ("node port of policy Local from the node", NODEPORT | LOCAL, NODE, NODE, 30080, BOTH_MASQUERADED),
    ("external IP", {"externalIPs": [EXT]}, OUTSIDE, EXT, 80, BOTH_MASQUERADED),
    ("external IP from a pod", {"externalIPs": [EXT]}, POD, EXT, 80, BOTH_MASQUERADED),
    ("external IP of policy Local", {"externalIPs": [EXT]} | LOCAL, OUTSIDE, EXT, 80, {HERE: 1}),
    ("load balancer", {"lb": [LB]}, OUTSIDE, LB, 80, BOTH_MASQUERADED),
    ("load balancer in mode Proxy", {"lb": [{"ip": LB, "ipMode": "Proxy"}]}, OUTSIDE, LB, 80, {"ACCEPT": 1}),
    ("source ranges let it in", RANGES, OUTSIDE, LB, 80, BOTH_MASQUERADED),
    ("source ranges keep it out", RANGES, "192.0.2.1", LB, 80, {"DROP": 1}),
    ("source ranges keep pods out", RANGES, POD, LB, 80, {"DROP": 1}),
    ("source ranges are not for node ports", RANGES | NODEPORT, "192.0.2.1", NODE, 30080, BOTH_MASQUERADED),
    ("source ranges are not for external IPs", RANGES | {"externalIPs": [EXT]}, "192.0.2.1", EXT, 80, BOTH_MASQUERADED),
    ("all ranges", {"lb": [LB], "loadBalancerSourceRanges": ["0.0.0.0/0"]}, "192.0.2.1", LB, 80, BOTH_MASQUERADED),
]


@pytest.mark.parametrize(
    ("spec", "source", "to", "number", "wanted"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_packets(spec, source, to, number, wanted):
    assert ends(one(**spec), source, to, number) == wanted


ENTRIES = {"ports": [port(80, node_port=30080)], "externalIPs": [EXT], "lb": [LB]}


@pytest.mark.parametrize(("to", "number"), [(SVC, 80), (EXT, 80), (LB, 80), (NODE, 30080)])
def test_without_endpoints_every_way_is_refused(to, number):
    assert ends([service(**ENTRIES)], POD if to == SVC else OUTSIDE, to, number) == {"REJECT": 1}


@pytest.mark.parametrize(("to", "number"), [(EXT, 80), (LB, 80), (NODE, 30080)])
def test_without_local_endpoints_the_outside_meets_silence_and_the_inside_is_served(to, number):
    objects = [service(**ENTRIES, **LOCAL), endpoint_slice(endpoints=[endpoint(THERE, "node-b")])]
    assert ends(objects, OUTSIDE, to, number) == {"DROP": 1}
    assert ends(objects, POD, to, number) == {THERE: 1}
    assert ends(objects, NODE, to, number) == {f"{THERE} masqueraded": 1}


def test_internal_policy_local_without_local_endpoints_is_silence():
    objects = [service(internalTrafficPolicy="Local"), endpoint_slice(endpoints=[endpoint(THERE, "node-b")])]
    assert ends(objects, POD, SVC) == {"DROP": 1}


def test_masquerade_all():
    assert ends(one(), POD, SVC, at=settings(masquerade_all=True)) == BOTH_MASQUERADED


def test_without_a_way_to_tell_pods_nothing_is_masqueraded_for_being_off_cluster():
    at = settings(local_detector=None)
    assert ends(one(), OUTSIDE, SVC, at=at) == BOTH
    assert ends(one(**NODEPORT, **LOCAL), POD, NODE, 30080, at=at) == {HERE: 1}


def test_node_port_addresses():
    at = settings(nodeport_addresses=("192.168.0.2",), localhost_nodeports=False)
    assert ends(one(**NODEPORT), OUTSIDE, NODE, 30080, at=at) == BOTH_MASQUERADED
    for addresses in (("192.168.0.3",), ()):
        at = settings(nodeport_addresses=addresses, localhost_nodeports=False)
        assert ends(one(**NODEPORT), OUTSIDE, NODE, 30080, at=at) == {"ACCEPT": 1}


def test_localhost_node_ports_can_be_switched_off():
    at = settings(localhost_nodeports=False)
    assert ends(one(**NODEPORT), "127.0.0.1", "127.0.0.1", 30080, at=at) == {"ACCEPT": 1}


@pytest.mark.parametrize("protocol", ["TCP", "UDP", "SCTP"])
def test_each_protocol_has_its_own_services(protocol):
    objects = [
        service(ports=[port(53, protocol=protocol)]),
        endpoint_slice(endpoints=[HERE], ports=[{"name": "", "port": 8080, "protocol": protocol}]),
    ]
    for other in ("tcp", "udp", "sctp"):
        wanted = {HERE: 1} if other == protocol.lower() else {"ACCEPT": 1}
        assert ends(objects, POD, SVC, 53, other) == wanted


def chain_of(address, name="", protocol="TCP"):
    (found,) = desired(service()).ports_of(("default", "web"))
    return PortChains(found._replace(port=name, protocol=protocol)).endpoint(f"{address}:8080")


AFFINE = {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}


@pytest.mark.parametrize(("age", "wanted"), [(0.0, {THERE: 1}), (59.0, {THERE: 1}), (61.0, BOTH)])
def test_affinity_leads_back_until_its_time_is_over(age, wanted):
    recent = {chain_of(THERE): {POD: age}}
    assert ends(one(**AFFINE), POD, SVC, recent=recent) == wanted
    assert ends(one(**AFFINE), "10.244.0.51", SVC, recent=recent) == BOTH


def test_affinity_counts_with_policy_local_too():  # R053
    objects = [
        service(**NODEPORT, **LOCAL, **AFFINE),
        endpoint_slice(endpoints=[endpoint(HERE), endpoint("10.244.0.2"), endpoint(THERE, "node-b")]),
    ]
    assert ends(objects, OUTSIDE, NODE, 30080) == {HERE: 0.5, "10.244.0.2": 0.5}
    recent = {chain_of("10.244.0.2"): {OUTSIDE: 5.0}}
    assert ends(objects, OUTSIDE, NODE, 30080, recent=recent) == {"10.244.0.2": 1}


def test_affinity_is_kept_for_each_port():  # R050, as in kube-proxy
    objects = [
        service(ports=[port(80, "a"), port(81, "b")], **AFFINE),
        endpoint_slice(endpoints=[HERE, THERE], ports=[{"name": n, "port": 8080, "protocol": "TCP"} for n in "ab"]),
    ]
    recent = {chain_of(THERE, "a"): {POD: 5.0}}
    assert ends(objects, POD, SVC, 80, recent=recent) == {THERE: 1}
    assert ends(objects, POD, SVC, 81, recent=recent) == BOTH


def test_every_endpoint_of_a_thousand_is_as_likely():  # R046
    addresses = [f"10.244.{n // 250}.{n % 250 + 1}" for n in range(1000)]
    found = ends([service(), endpoint_slice(endpoints=addresses)], "10.244.99.99", SVC)
    assert len(found) == 1000
    assert all(abs(share - 0.001) < 0.000002 for share in found.values())
