"""What a legacy table holds: its entries, and a digest of them without counters; the same digest means the same rules.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pykubeproxy.errors import NetfilterError
from pykubeproxy.model.addresses import Family

_GET_INFO, _GET_ENTRIES = 64, 65
"""The same numbers in both families."""
_NAME = 32
_INFO = 84
_VALID_HOOKS, _HOOK_ENTRIES, _NUM_ENTRIES_SIZE = 32, 36, 76
"""Offsets in struct ipt_getinfo."""
_ENTRIES_HEAD = 40
"""struct ipt_get_entries: name, size, padding; the entries follow."""
_TRIES = 5


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the parts of an entry are, in bytes from its start."""

    family: socket.AddressFamily
    level: int
    target_offset: int
    next_offset: int
    comefrom: int
    """The kernel's own notes, then the counters: not part of the rule."""
    body: int
    names: str


_LAYOUTS: dict[Family, _Layout] = {
    "IPv4": _Layout(socket.AF_INET, socket.IPPROTO_IP, 88, 90, 92, 112, "ip_tables_names"),
    "IPv6": _Layout(socket.AF_INET6, socket.IPPROTO_IPV6, 140, 142, 144, 168, "ip6_tables_names"),
}
_libc = ctypes.CDLL(None, use_errno=True)
_short = struct.Struct("=H").unpack_from
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Entries:
    """A table's entries as the kernel holds them, and where its builtin chains begin: hook number -> offset."""

    data: bytes
    hooks: dict[int, int]
    _layout: _Layout

    def walk(self) -> Iterator[tuple[int, int, int]]:
        """Yield where each entry starts, where its target does, and where it ends."""
        offset = 0
        while offset < len(self.data):
            length = _length(self._layout, self.data, offset)
            (target,) = _short(self.data, offset + self._layout.target_offset)
            yield offset, offset + target, offset + length
            offset += length


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
        number, length = struct.unpack_from("=II", _info(asked, layout, table), _NUM_ENTRIES_SIZE)
        return number, length


def digest(family: Family, table: str) -> bytes:
    """Return the digest of a table that is in use.

    Raises:
        NetfilterError: the kernel refused, or the table did not stand still.

    """
    return _with_entries(family, table, lambda layout, room, _: _digest(layout, room))


def entries(family: Family, table: str) -> Entries:
    """Return the entries of a table that is in use.

    Raises:
        NetfilterError: as digest.

    """

    def copy(layout: _Layout, room: mmap.mmap, info: bytes) -> Entries:
        (valid,) = struct.unpack_from("=I", info, _VALID_HOOKS)
        offsets = struct.unpack_from("=5I", info, _HOOK_ENTRIES)
        return Entries(room[_ENTRIES_HEAD:], {hook: o for hook, o in enumerate(offsets) if valid >> hook & 1}, layout)

    return _with_entries(family, table, copy)


def _with_entries(family: Family, table: str, use: Callable[[_Layout, mmap.mmap, bytes], _T]) -> _T:
    """Fetch a table's entries and return what is made of them."""
    layout = _LAYOUTS[family]
    with socket.socket(layout.family, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.IPPROTO_RAW) as asked:
        for _ in range(_TRIES):
            info = _info(asked, layout, table)
            _, length = struct.unpack_from("=II", info, _NUM_ENTRIES_SIZE)
            # Anonymous memory of its own: some ten MB at 5,000 services, given back at once.
            with mmap.mmap(-1, _ENTRIES_HEAD + length) as room:
                struct.pack_into(f"={_NAME}sI", room, 0, table.encode(), length)
                try:
                    _fill(asked, layout, room, table)
                except BlockingIOError:
                    continue  # it changed its size in between
                return use(layout, room, info)
    raise NetfilterError(f"table {table} of {family} changes faster than it can be read")


def _info(asked: socket.socket, layout: _Layout, table: str) -> bytes:
    info = ctypes.create_string_buffer(table.encode(), _INFO)
    _get(asked, layout, _GET_INFO, info, table)
    return info.raw


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
    start, stop = layout.comefrom, layout.body
    blank = bytes(stop - start)
    offset, end = _ENTRIES_HEAD, len(room)
    while offset < end:
        room[offset + start : offset + stop] = blank
        offset += _length(layout, room, offset)
    return hashlib.sha256(room).digest()


def _length(layout: _Layout, data: bytes | mmap.mmap, offset: int) -> int:
    (length,) = _short(data, offset + layout.next_offset)
    if length < layout.body:
        raise NetfilterError("the kernel's table entries have another layout than expected")
    return int(length)
