"""Stale UDP entries of connection tracking: find the flows that would go on to the wrong place, and delete them.

Model. The kernel decides about address translation once per flow. A UDP flow has no end: each packet renews its entry,
so a client that keeps its socket stays with an endpoint that is gone (k/k#19029), or untranslated although endpoints
have come (k/k#48370), for as long as it sends. Nobody but the proxy can know. TCP and SCTP are left alone on purpose:
established connections shall finish (k/k#100698), and their entries do end.

Goals, and how each is met:

1. *Level-triggered.* Every pass compares the whole table with what is wanted now. Nothing is remembered from a change
   that a failed write could lose (k/k#112604); a service without endpoints is no special case (k/k#139628).
2. *Only ours.* An entry is looked at only if its original destination, address **and** port, is a service's. The same
   port elsewhere (k/k#84438), host ports of a CNI (k/k#66651) and what is merely forwarded match nothing here. Entries
   of services that are gone count only if they were translated to one of that service's last known endpoints.
3. *Cheap.* The kernel is asked for UDP entries of one family; the rest is done on raw bytes at the fixed places where
   the kernel puts them, in a buffer that is used again (k/k#129982: 12 GB). Entries that are fine leave nothing behind.
4. *Exact deletion.* By original tuple, zone and id, never by pattern. Should a new flow of the same tuple have got even
   the same id (the kernel makes it from the entry's place in memory), it is translated once more, by the new rules.

Run it after the rules have been written, never before and never on the path of a sync: an entry deleted under old rules
comes back as it was. Threads: passes share nothing; sockets belong to the calling thread's namespace.

Format: include/uapi/linux/netfilter/nfnetlink_conntrack.h; order of attributes: ctnetlink_fill_info in
net/netfilter/nf_conntrack_netlink.c. CTA_FILTER needs Linux 5.8; older kernels ignore it, so the protocol is looked at
here as well.
"""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self, TypeVar

import structlog

from pykubeproxy.errors import EnvironmentProblem
from pykubeproxy.node.addresses import Family
from pykubeproxy.node.netlink import (
    HEADER,
    NETLINK_NETFILTER,
    NetlinkSocket,
    attribute,
    attributes,
    nested,
    nfgen,
)

log = structlog.get_logger()

Address = tuple[str, int]
"""An IP address in text form and a port."""

_UDP = 17
_SUBSYSTEM = 1
_NEW, _GET, _DELETE = _SUBSYSTEM << 8, _SUBSYSTEM << 8 | 1, _SUBSYSTEM << 8 | 2
_GET_STATS = _SUBSYSTEM << 8 | 5
_TUPLE_ORIG, _TUPLE_REPLY, _ID, _ZONE, _FILTER = 1, 2, 12, 18, 25
_TUPLE_IP, _TUPLE_PROTO = 1, 2
_V4_SRC, _V4_DST, _V6_SRC, _V6_DST = 1, 2, 3, 4
_PROTO_NUM, _PROTO_SRC_PORT, _PROTO_DST_PORT = 1, 2, 3
_FILTER_ORIG_FLAGS = 1
_FILTER_BY_PROTO_NUM = 1 << 3

_BODY = HEADER.size + 4  # netlink header and struct nfgenmsg
_BATCH = 192
_FAMILY_NUMBER: Mapping[Family, int] = {"IPv4": socket.AF_INET, "IPv6": socket.AF_INET6}


@dataclass(frozen=True, slots=True)
class DesiredUdp:
    """The UDP service ports of one family, as the rules in the kernel have them.

    ``services`` holds cluster, external and load balancer addresses with the *serving* endpoints of each, whatever the
    traffic policy says (terminating ones that still serve included; none: the empty set). ``node_ports`` count on
    ``node_addresses`` only: the local addresses on which the rules take node ports, so loopback only where they do.
    """

    services: Mapping[Address, frozenset[Address]] = field(default_factory=dict)
    node_ports: Mapping[int, frozenset[Address]] = field(default_factory=dict)
    node_addresses: frozenset[str] = frozenset()


K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Programmed:
    """Service addresses and node ports that this process has programmed, with every endpoint that they had.

    None in place of endpoints means that they are not known (rules found at start): any translated entry counts.
    """

    services: Mapping[Address, frozenset[Address] | None] = field(default_factory=dict)
    node_ports: Mapping[int, frozenset[Address] | None] = field(default_factory=dict)

    def learn(self, desired: DesiredUdp) -> Programmed:
        """Add what is programmed now."""
        return Programmed(_merged(self.services, desired.services), _merged(self.node_ports, desired.node_ports))

    def without(self, desired: DesiredUdp) -> Programmed:
        """Keep what is wanted no more: the retired ones."""
        return Programmed(
            {key: endpoints for key, endpoints in self.services.items() if key not in desired.services},
            {key: endpoints for key, endpoints in self.node_ports.items() if key not in desired.node_ports},
        )


def _merged(
    old: Mapping[K, frozenset[Address] | None], new: Mapping[K, frozenset[Address]]
) -> dict[K, frozenset[Address] | None]:
    result = dict(old)
    for key, endpoints in new.items():
        before = result.get(key, frozenset())
        if before is not None:
            result[key] = before | endpoints
    return result


NOTHING = Programmed()


@dataclass(frozen=True, slots=True)
class Result:
    """What one pass did. ``failed`` entries are stale and still there: the next pass tries again."""

    scanned: int
    deleted: int
    seconds: float
    failed: int = 0


# --- deciding ---------------------------------------------------------------------------------------------------------


def _pack_ip(text: str) -> bytes:
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    except OSError:
        return b""  # equal to nothing in the kernel; who rendered the rules has named the object already


def _pack(address: Address) -> bytes:
    return _pack_ip(address[0]) + address[1].to_bytes(2, "big")


_Targets = frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Judge:
    """What is desired and what is retired, as the kernel writes it: packed address, port in network order."""

    services: Mapping[bytes, _Targets]
    node_ports: Mapping[bytes, _Targets]
    node_addresses: frozenset[bytes]
    retired_services: Mapping[bytes, _Targets | None]
    retired_node_ports: Mapping[bytes, _Targets | None]
    destinations: frozenset[bytes]
    """Every address whose entries are worth a look."""

    @classmethod
    def of(cls, desired: DesiredUdp, retired: Programmed) -> Self:
        """Compile; a text that is no address matches nothing."""
        packed: dict[frozenset[Address], _Targets] = {}

        def targets(endpoints: frozenset[Address]) -> _Targets:
            if endpoints not in packed:
                packed[endpoints] = frozenset(map(_pack, endpoints))
            return packed[endpoints]

        def known(endpoints: frozenset[Address] | None) -> _Targets | None:
            return None if endpoints is None else targets(endpoints)

        node_addresses = frozenset(map(_pack_ip, desired.node_addresses))
        uses_node_ports = bool(desired.node_ports or retired.node_ports)
        return cls(
            services={_pack(address): targets(ends) for address, ends in desired.services.items()},
            node_ports={port.to_bytes(2, "big"): targets(ends) for port, ends in desired.node_ports.items()},
            node_addresses=node_addresses,
            retired_services={_pack(address): known(ends) for address, ends in retired.services.items()},
            retired_node_ports={port.to_bytes(2, "big"): known(ends) for port, ends in retired.node_ports.items()},
            destinations=frozenset(_pack_ip(ip) for ip, _ in (*desired.services, *retired.services))
            | (node_addresses if uses_node_ports else frozenset()),
        )

    @property
    def is_idle(self) -> bool:
        """Whether no entry can be stale, so that the table need not be read."""
        return not self.destinations

    def is_stale(self, ip: bytes, port: bytes, target: bytes, *, default_zone: bool = True) -> bool:
        """Decide about one UDP entry.

        ``ip`` and ``port`` are the original destination, ``target`` is where the flow really goes (the reply's source,
        address and port in one). Outside the default zone an untranslated entry says nothing: a virtual switch tracks
        the same packet in a zone of its own before our rules see it.
        """
        frontend = ip + port
        is_translated = target != frontend
        is_local = ip in self.node_addresses
        targets = self.services.get(frontend)
        if targets is None and is_local:
            targets = self.node_ports.get(port)
        if targets is not None:
            if target in targets:
                return False
            # Untranslated although there are endpoints: the flow is older than the rules. Without endpoints there is
            # nothing better to offer.
            return is_translated or (default_zone and bool(targets))
        if not is_translated:
            return False
        for retired, key, counts in (
            (self.retired_services, frontend, True),
            (self.retired_node_ports, port, is_local),
        ):
            if counts and key in retired:
                former = retired[key]
                if former is None or target in former:
                    return True
        return False


# --- reading and deleting ---------------------------------------------------------------------------------------------


class Conversation(Protocol):
    """The seam to the kernel: what ``NetlinkSocket`` offers."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def dump(self, kind: int, body: bytes) -> Iterator[tuple[bytearray, int]]:
        """Stream the datagrams of a dump."""

    def request(self, kind: int, flags: int, bodies: Sequence[bytes]) -> list[int]:
        """Send a batch and return the errno of each message."""


def _netfilter() -> Conversation:
    return NetlinkSocket(NETLINK_NETFILTER)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the kernel puts what in a UDP entry of one family, and the attribute headers that prove it.

    A tuple is: header, TUPLE_IP [source, destination], TUPLE_PROTO [protocol, source port, destination port]; the reply
    follows the original. Only the zone of a single direction makes it longer, and then the proof fails.
    """

    struct: struct.Struct
    size: int
    """Bytes of one tuple."""
    original: bytes
    protocol: bytes
    reply: bytes

    @classmethod
    def of(cls, size: int) -> Self:
        addresses = 4 + 2 * (4 + size)
        ports = 4 + 3 * 8
        heads = struct.Struct("=HHHH")

        def head(kind: int) -> bytes:
            return heads.pack(4 + addresses + ports, kind | 0x8000, addresses, _TUPLE_IP | 0x8000)

        return cls(
            # length, type | original, destination, protocol, destination port | reply, source, source port
            struct.Struct(f"=IH14x 8s{4 + size}x4x{size}s9s3x8x4x2s2x 8s4x{size}s{4 + size}x12x4x2s2x"),
            4 + addresses + ports,
            head(_TUPLE_ORIG),
            struct.pack("=HHHHB", ports, _TUPLE_PROTO | 0x8000, 5, _PROTO_NUM, _UDP),
            head(_TUPLE_REPLY),
        )


_LAYOUTS: Mapping[Family, _Layout] = {"IPv4": _Layout.of(4), "IPv6": _Layout.of(16)}
_PROTOCOL_NUMBER_HEAD = struct.pack("=HH", 5, _PROTO_NUM)


@dataclass(frozen=True, slots=True)
class Entry:
    """Both directions of one entry, as far as they matter here."""

    protocol: int
    ip: bytes
    port: bytes
    target: bytes


def parse_entry(buffer: bytes | bytearray, start: int, end: int) -> Entry | None:
    """Read the tuples of one message whatever their layout; None where one is missing."""
    ip = port = target = b""
    protocol = 0
    for kind, first, last in attributes(buffer, start + _BODY, end):
        if kind == _TUPLE_ORIG:
            _, ip, protocol, _, port = _tuple(buffer, first, last)
        elif kind == _TUPLE_REPLY:
            source, _, _, source_port, _ = _tuple(buffer, first, last)
            target = source + source_port
    return Entry(protocol, ip, port, target) if ip and target else None


def handle_of(buffer: bytes | bytearray, start: int, end: int) -> tuple[bytes, bool]:
    """Return the attributes that name exactly this entry in a deletion, and whether it is in the default zone.

    They are the original tuple, the zone and the id, copied as they came.
    """
    parts: list[bytes] = []
    is_default_zone = True
    for kind, first, last in attributes(buffer, start + _BODY, end):
        if kind in (_TUPLE_ORIG, _ZONE, _ID):
            parts.append(bytes(buffer[first - 4 : (last + 3) & ~3]))
            if kind == _ZONE and any(buffer[first:last]):
                is_default_zone = False
    return b"".join(parts), is_default_zone


def _tuple(buffer: bytes | bytearray, start: int, end: int) -> tuple[bytes, bytes, int, bytes, bytes]:
    """Return source, destination, protocol, source port, destination port."""
    source = destination = source_port = destination_port = b""
    protocol = 0
    for container, first, last in attributes(buffer, start, end):
        if container not in (_TUPLE_IP, _TUPLE_PROTO):
            continue
        for kind, low, high in attributes(buffer, first, last):
            value = bytes(buffer[low:high])
            if container == _TUPLE_IP:
                if kind in (_V4_SRC, _V6_SRC):
                    source = value
                elif kind in (_V4_DST, _V6_DST):
                    destination = value
            elif kind == _PROTO_NUM:
                protocol = int.from_bytes(value, "big")
            elif kind == _PROTO_SRC_PORT:
                source_port = value
            elif kind == _PROTO_DST_PORT:
                destination_port = value
    return source, destination, protocol, source_port, destination_port


@dataclass(frozen=True, slots=True)
class _Shape:
    """Which attributes a regular message has behind its tuples, learned from one: where its id is.

    The kernel writes what an entry has (counters, a mark, labels), so a node shows a handful of shapes. A message is of
    a shape if it is as long and the header of every attribute is where and what it was. One with a zone has none.
    """

    parts: Callable[[bytearray, int], tuple[bytes, bytes]]
    """Returns the original tuple and what is behind the tuples."""
    mask: int
    """The bits of the headers, in what is behind the tuples read as one number."""
    headers: int
    identity: slice
    """The id's attribute."""

    @classmethod
    def of(cls, layout: _Layout, buffer: bytearray, start: int, end: int) -> Self | None:
        """Learn the shape of a regular message."""
        parts = struct.Struct(f"={_BODY}x {layout.size}s {layout.size}x {end - start - _BODY - 2 * layout.size}s")
        _, rest = parts.unpack_from(buffer, start)
        mask = bytearray(len(rest))
        identity: slice | None = None
        covered = 0
        for kind, first, last in attributes(rest, 0, len(rest)):
            mask[covered:first] = b"\xff" * (first - covered)
            covered = (last + 3) & ~3
            if kind == _ID:
                identity = slice(first - 4, covered)
            elif kind == _ZONE:
                return None
        if identity is None or covered != len(rest):
            return None
        bits = int.from_bytes(mask)
        return cls(parts.unpack_from, bits, int.from_bytes(rest) & bits, identity)


class Scan:
    """Looks through the datagrams of one pass over a family's entries."""

    def __init__(self, judge: Judge, family: Family) -> None:
        self._judge = judge
        self._layout = _LAYOUTS[family]
        self._shapes: dict[int, _Shape] = {}

    def find_stale(self, buffer: bytearray, filled: int) -> tuple[int, list[bytes]]:
        """Look through one datagram; return how many UDP entries it held and the handles of the stale ones.

        ``buffer`` must reach 512 bytes beyond ``filled``: the layout is laid over each message before its length is
        known.
        """
        layout = self._layout
        unpack, original, udp, reply = layout.struct.unpack_from, layout.original, layout.protocol, layout.reply
        shortest = _BODY + 2 * layout.size
        destinations, is_stale, handle_of_regular = self._judge.destinations, self._judge.is_stale, self._handle
        verdicts: dict[tuple[bytes, bytes, bytes], bool] = {}  # of this datagram only: bounded
        stale: list[bytes] = []
        scanned = offset = 0
        while offset < filled:
            length, kind, head, ip, protocol, port, tail, source, source_port = unpack(buffer, offset)
            start, offset = offset, offset + ((length + 3) & ~3)
            if length < HEADER.size or start + length > filled:
                raise OSError(errno.EBADMSG, "malformed netlink message")
            if kind != _NEW:
                continue
            is_regular = head == original and protocol == udp and tail == reply and length >= shortest
            if is_regular:
                target = source + source_port
            elif head == original and protocol[4:8] == _PROTOCOL_NUMBER_HEAD and protocol[8] != _UDP:
                continue
            else:
                entry = parse_entry(buffer, start, start + length)
                if entry is None or entry.protocol != _UDP:
                    continue
                ip, port, target = entry.ip, entry.port, entry.target
            scanned += 1
            if ip not in destinations:
                continue
            key = ip, port, target
            verdict = verdicts.get(key)
            if verdict is None:
                verdict = verdicts[key] = is_stale(ip, port, target)
            if not verdict:
                continue
            if is_regular and (handle := handle_of_regular(buffer, start, length)):
                stale.append(handle)
                continue
            handle, is_default_zone = handle_of(buffer, start, start + length)
            if is_default_zone or is_stale(ip, port, target, default_zone=False):
                stale.append(handle)
        return scanned, stale

    def _handle(self, buffer: bytearray, start: int, length: int) -> bytes:
        """Return what ``handle_of`` would for a regular message of the default zone; nothing where it takes a look."""
        shape = self._shapes.get(length)
        if shape is not None:
            original, rest = shape.parts(buffer, start)
            if int.from_bytes(rest) & shape.mask == shape.headers:
                return original + rest[shape.identity]
        learned = _Shape.of(self._layout, buffer, start, start + length)
        if learned is not None:
            self._shapes[length] = learned
        return b""


def _dump(connection: Conversation, family: Family) -> Iterator[tuple[bytearray, int]]:
    """Stream the UDP entries of a family; all entries where the kernel cannot choose."""
    head = nfgen(_FAMILY_NUMBER[family])
    only_udp = nested(_TUPLE_ORIG, nested(_TUPLE_PROTO, attribute(_PROTO_NUM, bytes([_UDP])))) + nested(
        _FILTER, attribute(_FILTER_ORIG_FLAGS, struct.pack("=I", _FILTER_BY_PROTO_NUM))
    )
    try:
        yield from connection.dump(_GET, head + only_udp)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        yield from connection.dump(_GET, head)


def reconcile(
    family: Family,
    desired: DesiredUdp,
    retired: Programmed = NOTHING,
    *,
    connect: Callable[[], Conversation] = _netfilter,
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Make one pass: read the family's UDP entries once and delete the stale ones.

    Raises EnvironmentProblem where the kernel refuses (rights, no conntrack netlink, busy); what was deleted until then
    stays deleted, and the next pass does the rest.
    """
    begin = clock()
    judge = Judge.of(desired, retired)
    if judge.is_idle:
        return Result(0, 0, clock() - begin)
    scan = Scan(judge, family)
    scanned = deleted = failed = 0
    try:
        with connect() as reader, connect() as writer:
            for buffer, filled in _dump(reader, family):
                count, stale = scan.find_stale(buffer, filled)
                scanned += count
                done, refused = _delete(writer, family, stale)
                deleted += done
                failed += refused
    except OSError as error:
        reason = error.strerror or str(error)
        raise EnvironmentProblem(f"cannot clean up {family} UDP connection tracking: {reason}") from error
    return Result(scanned, deleted, clock() - begin, failed)


def _delete(writer: Conversation, family: Family, handles: Iterable[bytes]) -> tuple[int, int]:
    """Delete entries by handle; return how many are deleted and how many could not be. Vanished ones are neither."""
    head = nfgen(_FAMILY_NUMBER[family])
    bodies = [head + handle for handle in handles]
    deleted = failed = 0
    for start in range(0, len(bodies), _BATCH):
        for code in writer.request(_DELETE, 0, bodies[start : start + _BATCH]):
            if code == 0:
                deleted += 1
            elif code in (errno.EPERM, errno.EACCES):
                raise OSError(code, "deleting entries is not permitted")
            elif code != errno.ENOENT:  # EBUSY: the flow is offloaded to a flow table
                failed += 1
    return deleted, failed


def load_module() -> None:
    """Make the kernel load connection tracking (its settings appear with it); failure is no error."""
    try:
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            netlink.request(_GET_STATS, 0, [nfgen(0)])
    except OSError as error:
        log.debug("conntrack module not loaded", reason=error.strerror or str(error))
