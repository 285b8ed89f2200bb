"""Reading the kernel's bytes: both families, odd layouts, other protocols, garbage."""

import struct

import pytest
from conntrack_entries import CT_NEW, SCTP, TCP, entry, tuple_attribute
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.node.conntrack import NOTHING, DesiredUdp, Judge, Scan
from pykubeproxy.node.netlink import SLACK, attribute, message

FAMILIES = {
    "IPv4": {"client": ("10.244.0.50", 5000), "vip": ("10.96.0.50", 53), "p1": ("10.244.0.11", 5353)},
    "IPv6": {"client": ("fd00:244::50", 5000), "vip": ("fd00:96::50", 53), "p1": ("fd00:244::11", 5353)},
}


def datagram(*bodies, kind=CT_NEW):
    filled = b"".join(message(kind, 0, body) for body in bodies)
    return bytearray(filled + bytes(SLACK)), len(filled)


def look(family, *bodies, kind=CT_NEW, endpoints=()):
    judge = Judge.of(DesiredUdp(services={FAMILIES[family]["vip"]: frozenset(endpoints)}), NOTHING)
    scanned, stale = Scan(judge, family).find_stale(*datagram(*bodies, kind=kind))
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


def body(family, *, identity, mark=None, seconds=600, zone=None):
    """A stale entry as the kernel writes it: the id stands in the middle of what it has."""
    client, vip, p1 = FAMILIES[family].values()
    parts = [entry(client, vip, p1, zone=zone, seconds=seconds)]
    if mark is not None:
        parts.append(attribute(8, mark))
    return b"".join([*parts, attribute(12, identity), attribute(11, b"\0\0\0\1")])


def handle(family, identity, zone=b""):
    client, vip, _ = FAMILIES[family].values()
    return tuple_attribute(1, client, vip) + zone + attribute(12, identity)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_entry_is_named_by_its_own_tuple_zone_and_id(family):
    """Also where another entry of the same length has its id elsewhere, or the bytes of an id's header as its mark."""
    looks_like_an_id = struct.pack("=HH", 8, 12)
    bodies = [
        body(family, identity=b"aaaa"),
        body(family, identity=b"bbbb"),
        body(family, identity=b"cccc", mark=looks_like_an_id),
        body(family, identity=b"dddd", mark=b"\0\0\0\1"),
        body(family, identity=b"eeee", zone=9),
        body(family, identity=b"ffff", seconds=0x08000C00),
    ]
    zone = attribute(18, struct.pack(">H", 9))
    judge = Judge.of(DesiredUdp(services={FAMILIES[family]["vip"]: frozenset()}), NOTHING)
    _, stale = Scan(judge, family).find_stale(*datagram(*bodies))
    assert stale == [
        handle(family, identity * 4, zone if identity == b"e" else b"")
        for identity in (b"a", b"b", b"c", b"d", b"e", b"f")
    ]


def test_a_message_of_the_same_length_and_another_shape_is_read_anew():
    first, second = body("IPv4", identity=b"aaaa"), body("IPv4", identity=b"bbbb")
    swapped = second[:-16] + second[-8:] + second[-16:-8]  # the id behind the use count
    judge = Judge.of(DesiredUdp(services={FAMILIES["IPv4"]["vip"]: frozenset()}), NOTHING)
    _, stale = Scan(judge, "IPv4").find_stale(*datagram(first, swapped, first, swapped))
    assert stale == [handle("IPv4", identity) for identity in (b"aaaa", b"bbbb") * 2]


def test_an_entry_without_reply_is_passed_over():
    client, vip, _ = FAMILIES["IPv4"].values()
    cut = entry(client, vip)[: 4 + 52]
    assert look("IPv4", cut) == (0, 0)


@given(st.binary(max_size=600), st.sampled_from(sorted(FAMILIES)))
def test_garbage_ends_in_an_error_or_in_nothing(garbage, family):
    judge = Judge.of(DesiredUdp(services={FAMILIES[family]["vip"]: frozenset()}), NOTHING)
    try:
        _, stale = Scan(judge, family).find_stale(bytearray(garbage + bytes(SLACK)), len(garbage))
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
        scanned, stale = Scan(judge, family).find_stale(buffer, filled)
    except OSError:
        return
    assert len(stale) <= scanned <= 2
