"""Which entry is stale: pure."""

import pytest
from conntrack_entries import pack, pack_ip

from pykubeproxy.node.conntrack import NOTHING, DesiredUdp, Judge, Programmed

VIP, EXTERNAL, NODE = ("10.96.0.50", 53), ("198.51.100.7", 53), ("192.168.77.1", 30053)
P1, P2, OTHER = ("10.244.0.11", 5353), ("10.244.0.12", 5353), ("10.244.9.9", 1234)
NOBODY = frozenset()


def stale(frontend, target, desired, retired=NOTHING, **kwargs):
    judge = Judge.of(desired, retired)
    if pack_ip(frontend[0]) not in judge.destinations:
        return False
    return judge.is_stale(pack_ip(frontend[0]), frontend[1].to_bytes(2, "big"), pack(target), **kwargs)


def service(*endpoints):
    return DesiredUdp(services={VIP: frozenset(endpoints)})


def node_port(*endpoints, addresses=("192.168.77.1", "127.0.0.1")):
    return DesiredUdp(node_ports={30053: frozenset(endpoints)}, node_addresses=frozenset(addresses))


@pytest.mark.parametrize(
    ("target", "endpoints", "expected"),
    [
        (P1, (P1, P2), False),
        (P1, (P2,), True),  # replaced
        (P1, (), True),  # scaled to zero
        (P1, ((P1[0], 5354),), True),  # the target port has changed
        (VIP, (P1,), True),  # untranslated, older than the endpoints
        (VIP, (), False),  # untranslated, and nothing better to offer
        (VIP, (VIP,), False),  # an endpoint that is its own frontend: translation changes nothing
    ],
)
@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
def test_service_address(target, endpoints, expected, family):
    def of_family(address):
        return address if family == "IPv4" else (f"fd00::{address[0].replace('.', ':')}", address[1])

    desired = DesiredUdp(services={of_family(VIP): frozenset(map(of_family, endpoints))})
    assert stale(of_family(VIP), of_family(target), desired) is expected


@pytest.mark.parametrize(
    ("frontend", "target"),
    [
        ((VIP[0], 54), OTHER),  # another port of the address
        (("10.96.0.51", 53), OTHER),  # the same port of another address
        (("8.8.8.8", 53), ("8.8.8.8", 53)),
        (P1, P1),  # straight to the endpoint
    ],
)
def test_what_is_not_a_frontend_is_never_stale(frontend, target):
    assert not stale(frontend, target, service(P2))


@pytest.mark.parametrize(
    ("frontend", "target", "endpoints", "expected"),
    [
        (NODE, P1, (P1,), False),
        (NODE, P1, (P2,), True),
        (NODE, P1, (), True),
        (NODE, NODE, (P1,), True),  # a local address with this port is always translated, so this one is older
        (NODE, NODE, (), False),
        (("127.0.0.1", 30053), P1, (P2,), True),
        (("192.168.77.2", 30053), ("192.168.77.2", 30053), (P1,), False),  # forwarded to another host (k/k#84438)
        (("192.168.77.2", 30053), OTHER, (P1,), False),  # ... and translated by somebody else
        ((NODE[0], 5353), P1, (P2,), False),  # a host port (k/k#66651)
    ],
)
def test_node_port(frontend, target, endpoints, expected):
    assert stale(frontend, target, node_port(*endpoints)) is expected


def test_node_port_counts_only_on_the_given_addresses():
    assert not stale(NODE, P1, node_port(P2, addresses=("10.0.0.1",)))


def test_a_service_address_wins_over_a_node_port_of_the_same_number():
    desired = DesiredUdp(
        services={NODE: frozenset({P1})},
        node_ports={30053: frozenset({P2})},
        node_addresses=frozenset({NODE[0]}),
    )
    assert not stale(NODE, P1, desired)
    assert stale(NODE, P2, desired)


@pytest.mark.parametrize(
    ("target", "endpoints", "expected"),
    [
        (P1, frozenset({P1, P2}), True),
        (OTHER, frozenset({P1, P2}), False),  # somebody else uses the address now
        (EXTERNAL, frozenset({P1}), False),  # untranslated: passes through
        (OTHER, None, True),  # endpoints unknown
        (EXTERNAL, None, False),
    ],
)
def test_retired_service_address(target, endpoints, expected):
    retired = Programmed(services={EXTERNAL: endpoints})
    assert stale(EXTERNAL, target, service(P1), retired) is expected


@pytest.mark.parametrize(("target", "expected"), [(P1, True), (OTHER, False), (NODE, False)])
def test_retired_node_port(target, expected):
    retired = Programmed(node_ports={30053: frozenset({P1})})
    desired = DesiredUdp(node_addresses=frozenset({NODE[0]}))
    assert stale(NODE, target, desired, retired) is expected
    assert not stale(("192.168.77.2", 30053), target, desired, retired)


def test_an_address_that_came_back_is_judged_by_what_is_wanted():
    assert not stale(VIP, P1, service(P1), Programmed(services={VIP: frozenset({P1})}).without(service(P1)))


def test_untranslated_entries_of_other_zones_say_nothing():
    assert not stale(VIP, VIP, service(P1), default_zone=False)
    assert stale(VIP, P1, service(P2), default_zone=False)


def test_nothing_of_ours_means_nothing_to_read():
    assert Judge.of(DesiredUdp(node_addresses=frozenset({"10.0.0.1"})), NOTHING).is_idle
    assert not Judge.of(service(), NOTHING).is_idle
    assert not Judge.of(DesiredUdp(), Programmed(services={VIP: NOBODY})).is_idle


def test_a_text_that_is_no_address_hurts_nobody():
    desired = DesiredUdp(services={("10.96.0.050", 53): frozenset({P1}), VIP: frozenset({("x", 1), P2})})
    assert stale(VIP, P1, desired)
    assert not stale(VIP, P2, desired)
