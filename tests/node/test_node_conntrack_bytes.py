"""Reading the kernel's bytes: both families, odd layouts, other protocols, garbage."""

import pytest
from conntrack_entries import CT_NEW, SCTP, TCP, entry
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.node.conntrack import NOTHING, DesiredUdp, Judge, find_stale
from pykubeproxy.node.netlink import SLACK, message

FAMILIES = {
    "IPv4": {"client": ("10.244.0.50", 5000), "vip": ("10.96.0.50", 53), "p1": ("10.244.0.11", 5353)},
    "IPv6": {"client": ("fd00:244::50", 5000), "vip": ("fd00:96::50", 53), "p1": ("fd00:244::11", 5353)},
}


def datagram(*bodies, kind=CT_NEW):
    filled = b"".join(message(kind, 0, body) for body in bodies)
    return bytearray(filled + bytes(SLACK)), len(filled)


def look(family, *bodies, kind=CT_NEW, endpoints=()):
    judge = Judge.of(DesiredUdp(services={FAMILIES[family]["vip"]: frozenset(endpoints)}), NOTHING)
    scanned, stale = find_stale(judge, family, *datagram(*bodies, kind=kind))
    return scanned, len(stale)


@pytest.mark.parametrize("family", FAMILIES)
def test_many_messages_in_one_datagram(family):
    client, vip, p1 = FAMILIES[family].values()
    bodies = [entry(client, vip, p1), entry(client, p1), entry(client, vip, p1)]
    assert look(family, *bodies) == (3, 2)
    assert look(family, *bodies, endpoints=[p1]) == (3, 0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("protocol", [TCP, SCTP, 136])
def test_other_protocols_are_passed_over(family, protocol):
    client, vip, p1 = FAMILIES[family].values()
    assert look(family, entry(client, vip, p1, protocol=protocol)) == (0, 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_zone_of_one_direction_makes_the_layout_irregular(family):
    client, vip, p1 = FAMILIES[family].values()
    assert look(family, entry(client, vip, p1, tuple_zone=5), entry(client, vip, p1)) == (2, 2)


@pytest.mark.parametrize("family", FAMILIES)
def test_zones(family):
    client, vip, p1 = FAMILIES[family].values()
    assert look(family, entry(client, vip, zone=0), endpoints=[p1]) == (1, 1)
    assert look(family, entry(client, vip, zone=5), endpoints=[p1]) == (1, 0)
    assert look(family, entry(client, vip, p1, zone=5)) == (1, 1)


def test_other_messages_are_no_entries():
    client, vip, p1 = FAMILIES["IPv4"].values()
    assert look("IPv4", entry(client, vip, p1), kind=3) == (0, 0)


def test_an_entry_without_reply_is_passed_over():
    client, vip, _ = FAMILIES["IPv4"].values()
    cut = entry(client, vip)[: 4 + 52]
    assert look("IPv4", cut) == (0, 0)


@given(st.binary(max_size=600), st.sampled_from(sorted(FAMILIES)))
def test_garbage_ends_in_an_error_or_in_nothing(garbage, family):
    judge = Judge.of(DesiredUdp(services={FAMILIES[family]["vip"]: frozenset()}), NOTHING)
    try:
        _, stale = find_stale(judge, family, bytearray(garbage + bytes(SLACK)), len(garbage))
    except OSError:
        return
    assert stale == []


@given(st.data(), st.sampled_from(sorted(FAMILIES)))
def test_a_changed_byte_never_raises_anything_but_oserror(data, family):
    client, vip, p1 = FAMILIES[family].values()
    buffer, filled = datagram(entry(client, vip, p1, zone=3), entry(client, vip, p1))
    buffer[data.draw(st.integers(0, filled - 1))] = data.draw(st.integers(0, 255))
    judge = Judge.of(DesiredUdp(services={vip: frozenset()}), NOTHING)
    try:
        scanned, stale = find_stale(judge, family, buffer, filled)
    except OSError:
        return
    assert len(stale) <= scanned <= 2
