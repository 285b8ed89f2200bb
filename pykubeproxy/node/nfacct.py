"""The two nfacct objects that kube-proxy's rules count into, and what xt_recent says of its lists.

The objects only have to exist and to be read: their names are fixed by kube-proxy (pkg/proxy/metrics), so a rule that
names them is the same text before and after a take-over. Whether a *rule* may name them is another question, because
the kernel can have nfacct objects without the match (k/k#142068): the caller tries the match itself.

What this module must not do: reset a counter, or delete an object, which a rule of another owner may refer to.

Format: include/uapi/linux/netfilter/nfnetlink_acct.h.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from pykubeproxy.node.netlink import (
    HEADER,
    NETLINK_NETFILTER,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NetlinkSocket,
    attribute,
    attributes,
    nfgen,
)

log = structlog.get_logger()

INVALID_DROPPED = "ct_state_invalid_dropped_pkts"
LOCALHOST_ACCEPTED = "localhost_nps_accepted_pkts"
COUNTERS = (INVALID_DROPPED, LOCALHOST_ACCEPTED)

_SUBSYSTEM = 7
_NEW = _SUBSYSTEM << 8
_GET = _SUBSYSTEM << 8 | 1
_NAME, _PACKETS, _BYTES = 1, 2, 3
_NAME_MAX = 32


@dataclass(frozen=True, slots=True)
class Count:
    """What one object has counted since it was made."""

    packets: int
    bytes: int


def _new(name: str) -> bytes:
    encoded = name.encode("ascii") + b"\0"
    if len(encoded) > _NAME_MAX:
        raise ValueError(f"nfacct name {name!r} is longer than {_NAME_MAX - 1} bytes")
    return nfgen(0) + attribute(_NAME, encoded)


def ensure(names: Iterable[str] = COUNTERS) -> frozenset[str]:
    """Create the objects that are missing; return the names that exist now.

    An empty result means that the kernel has no nfacct, or that rights are missing: then no rule may name an object.
    """
    present: set[str] = set()
    try:
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            for name in names:
                (code,) = netlink.request(_NEW, NLM_F_CREATE | NLM_F_EXCL, [_new(name)])
                if code in (0, errno.EEXIST):
                    present.add(name)
                else:
                    log.info("nfacct object not created", name=name, reason=errno.errorcode.get(code, str(code)))
    except OSError as error:
        log.info("nfacct not supported", reason=error.strerror or str(error))
    return frozenset(present)


def read() -> Mapping[str, Count]:
    """Read all nfacct objects by name; empty where the kernel has none or does not answer."""
    counts: dict[str, Count] = {}
    try:
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            for buffer, filled in netlink.dump(_GET, nfgen(0)):
                offset = 0
                while offset + HEADER.size <= filled:
                    length, kind, *_ = HEADER.unpack_from(buffer, offset)
                    if kind == _NEW:
                        name, count = _decode(buffer, offset + HEADER.size + 4, offset + length)
                        counts[name] = count
                    offset += (length + 3) & ~3
    except OSError as error:
        log.debug("nfacct not read", reason=error.strerror or str(error))
    return counts


def _decode(buffer: bytearray, start: int, end: int) -> tuple[str, Count]:
    name, packets, octets = "", 0, 0
    for kind, first, last in attributes(buffer, start, end):
        payload = bytes(buffer[first:last])
        if kind == _NAME:
            name = payload.rstrip(b"\0").decode("ascii", "replace")
        elif kind == _PACKETS:
            packets = int.from_bytes(payload, "big")
        elif kind == _BYTES:
            octets = int.from_bytes(payload, "big")
    return name, Count(packets, octets)


@dataclass(frozen=True, slots=True)
class RecentLists:
    """What xt_recent holds for session affinity. ``limit`` is how many clients a list can remember, None: unknown."""

    limit: int | None
    sizes: Mapping[str, int]

    @property
    def full(self) -> frozenset[str]:
        """Name the lists that forget clients: every new one pushes out the one seen longest ago."""
        if self.limit is None:
            return frozenset()
        return frozenset(name for name, size in self.sizes.items() if size >= self.limit)


def recent_limit(*, sys: Path = Path("/sys")) -> int | None:
    """Return how many clients one xt_recent list can remember, None where that is unknown."""
    try:
        return int((sys / "module/xt_recent/parameters/ip_list_tot").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def recent_lists(
    prefix: str = "KUBE-SEP-", *, sys: Path = Path("/sys"), proc_net: Path = Path("/proc/thread-self/net")
) -> RecentLists:
    """Count the clients in each xt_recent list whose name starts with ``prefix``, both families together.

    A list named in rules of both families exists once per family; the larger size counts.
    """
    limit = recent_limit(sys=sys)
    sizes: dict[str, int] = {}
    try:
        paths = sorted((proc_net / "xt_recent").iterdir())
    except OSError:
        paths = []
    for path in paths:
        if not path.name.startswith(prefix):
            continue
        try:
            with path.open("rb") as lines:
                sizes[path.name] = sum(1 for _ in lines)
        except OSError:
            continue  # the last rule that named the list has gone, and the list with it
    return RecentLists(limit, sizes)
