"""A digest of what a legacy table holds, counters left out: the same digest means the same rules.

Asked of the kernel itself (IPT_SO_GET_INFO and IPT_SO_GET_ENTRIES), because printing the table costs three times as
much and a process. The size alone would not do, as it is blind to an edit that keeps it, but it costs next to nothing.
A table that is not in use is not asked for, because asking creates it.

Source: include/uapi/linux/netfilter_ipv4/ip_tables.h and netfilter_ipv6/ip6_tables.h (struct ipt_entry, ipt_getinfo,
ipt_get_entries).
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import mmap
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from pykubeproxy.errors import NetfilterError
from pykubeproxy.model.addresses import Family

_GET_INFO, _GET_ENTRIES = 64, 65
"""The same numbers in both families."""
_NAME = 32
_INFO = 84
_NUM_ENTRIES_SIZE = 76
_ENTRIES_HEAD = 40
"""struct ipt_get_entries: name, size, padding; the entries follow."""
_TRIES = 5


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the parts of an entry are, in bytes from its start."""

    family: socket.AddressFamily
    level: int
    next_offset: int
    comefrom: int
    """The kernel's own notes, then the counters: not part of the rule."""
    body: int
    names: str


_LAYOUTS: dict[Family, _Layout] = {
    "IPv4": _Layout(socket.AF_INET, socket.IPPROTO_IP, 90, 92, 112, "ip_tables_names"),
    "IPv6": _Layout(socket.AF_INET6, socket.IPPROTO_IPV6, 142, 144, 168, "ip6_tables_names"),
}
_libc = ctypes.CDLL(None, use_errno=True)
_short = struct.Struct("=H").unpack_from


def tables_in_use(family: Family, proc: Path = Path("/proc/thread-self/net")) -> frozenset[str]:
    """Return the names of the legacy tables that exist; reading them creates none."""
    try:
        return frozenset((proc / _LAYOUTS[family].names).read_text(encoding="ascii").split())
    except OSError:
        return frozenset()


def size(family: Family, table: str) -> tuple[int, int]:
    """Return how many entries a table that is in use has, and their bytes: some microseconds, whatever its size.

    Raises:
        NetfilterError: the kernel refused.

    """
    layout = _LAYOUTS[family]
    with socket.socket(layout.family, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.IPPROTO_RAW) as asked:
        return _size(asked, layout, table)


def digest(family: Family, table: str) -> bytes:
    """Return the digest of a table that is in use.

    Raises:
        NetfilterError: the kernel refused, or the table did not stand still.

    """
    layout = _LAYOUTS[family]
    with socket.socket(layout.family, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.IPPROTO_RAW) as asked:
        for _ in range(_TRIES):
            _, length = _size(asked, layout, table)
            # Anonymous memory of its own: some ten MB at 5,000 services, given back at once.
            with mmap.mmap(-1, _ENTRIES_HEAD + length) as room:
                struct.pack_into(f"={_NAME}sI", room, 0, table.encode(), length)
                try:
                    _fill(asked, layout, room, table)
                except BlockingIOError:
                    continue  # it changed its size in between
                return _digest(layout, room)
    raise NetfilterError(f"table {table} of {family} changes faster than it can be read")


def _size(asked: socket.socket, layout: _Layout, table: str) -> tuple[int, int]:
    info = ctypes.create_string_buffer(table.encode(), _INFO)
    _get(asked, layout, _GET_INFO, info, table)
    entries, length = struct.unpack_from("=II", info.raw, _NUM_ENTRIES_SIZE)
    return entries, length


def _fill(asked: socket.socket, layout: _Layout, room: mmap.mmap, table: str) -> None:
    buffer = (ctypes.c_char * len(room)).from_buffer(room)
    try:
        _get(asked, layout, _GET_ENTRIES, buffer, table)
    finally:
        del buffer  # or the memory could not be given back


def _get(asked: socket.socket, layout: _Layout, option: int, buffer: ctypes.Array[ctypes.c_char], table: str) -> None:
    length = ctypes.c_uint32(len(buffer))
    if _libc.getsockopt(asked.fileno(), layout.level, option, buffer, ctypes.byref(length)) == 0:
        return
    number = ctypes.get_errno()
    if number == errno.EAGAIN:
        raise BlockingIOError(number, os.strerror(number))
    raise NetfilterError(f"the kernel does not show table {table}: {os.strerror(number)}")


def _digest(layout: _Layout, room: mmap.mmap) -> bytes:
    """Blank out what is not part of the rules, entry by entry, and hash the whole."""
    start, stop, step = layout.comefrom, layout.body, layout.next_offset
    blank = bytes(stop - start)
    offset, end = _ENTRIES_HEAD, len(room)
    while offset < end:
        room[offset + start : offset + stop] = blank
        (length,) = _short(room, offset + step)
        if length < stop:
            raise NetfilterError("the kernel's table entries have another layout than expected")
        offset += length
    return hashlib.sha256(room).digest()
