"""What stands in the kernel of a namespace, asked cheaply enough to be asked every two milliseconds.

nft: the generation of the ruleset is one small netlink answer, and so is a chain with its use count; only when the
generation moved are chains asked. A KUBE-SVC chain counts its own rules and the jumps that lead to it: one more than
its rules means that traffic reaches it.

legacy: the kernel tells the number of entries of a table; every change that is measured here changes that number. (What
the entries are is only told all at once, 0.1 s for a large table.)
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from e2e.bench.namespaces import inside

T = TypeVar("T")

INTERVAL = 0.002
"""Seconds between two looks: the resolution of every measured delay."""

AGAIN = (0.02, 0.2)
"""Seconds after a commit was seen when it is looked at again: a dump that falls into a large one shows a part of it."""

_NETLINK_NETFILTER = 12
_SUBSYSTEM = 10 << 8
_GETCHAIN, _GETRULE, _GETGEN = _SUBSYSTEM | 4, _SUBSYSTEM | 7, _SUBSYSTEM | 16
_REQUEST, _DUMP = 1, 0x300
_ERROR, _DONE = 2, 3
_IPT_SO_GET_INFO = 64


class Nft:
    """nf_tables of a namespace, IPv4, over a netlink socket."""

    def __init__(self, netns: str) -> None:
        self._socket = inside(netns, lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.bind((0, 0))
        self._sequence = 0

    def stamp(self) -> int:
        """Return the generation of the ruleset: every commit makes a new one."""
        for body in self._ask(_GETGEN, b"", socket.AF_UNSPEC):
            return int.from_bytes(_attributes(body)[1], "big")
        raise RuntimeError("the kernel did not tell its generation")

    def uses(self, chain: str, table: str = "nat") -> int:
        """Return a chain's use count (its rules and the jumps to it), -1 where there is no such chain."""
        try:
            for body in self._ask(_GETCHAIN, _text(1, table) + _text(3, chain)):
                return _use(_attributes(body))
        except FileNotFoundError:
            pass
        return -1

    def all_uses(self, table: str = "nat") -> dict[str, int]:
        """Return the use counts of all chains of a table."""
        found = {}
        for body in self._ask(_GETCHAIN, b"", flags=_DUMP):
            attributes = _attributes(body)
            if attributes[1].rstrip(b"\0").decode() == table:
                found[attributes[3].rstrip(b"\0").decode()] = _use(attributes)
        return found

    def rules(self, chain: str, table: str = "nat") -> list[bytes]:
        """Return the rules of a chain as the kernel codes them; the name of a chain jumped to is in clear in it."""
        try:
            return list(self._ask(_GETRULE, _text(1, table) + _text(2, chain), flags=_DUMP))
        except FileNotFoundError:
            return []

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _ask(
        self, what: int, attributes: bytes, family: int = socket.AF_INET, *, flags: int = 0
    ) -> Iterator[memoryview]:
        self._sequence += 1
        body = struct.pack("=BBH", family, 0, 0) + attributes
        head = struct.pack("=IHHII", 16 + len(body), what, _REQUEST | flags, self._sequence, 0)
        self._socket.send(head + body)
        while True:
            data = memoryview(self._socket.recv(1 << 18))
            while len(data) >= 16:
                length, kind, more, sequence, _ = struct.unpack_from("=IHHII", data)
                body_of, data = data[16:length], data[(length + 3) & ~3 :]
                if sequence != self._sequence:
                    continue
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    code = -struct.unpack_from("=i", body_of)[0]
                    if code:
                        raise OSError(code, os.strerror(code))
                    return
                yield body_of[4:]
                if not more & 2:
                    return


class Legacy:
    """The legacy tables of a namespace, IPv4."""

    def __init__(self, netns: str) -> None:
        self._socket = inside(netns, lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW))
        self._libc = ctypes.CDLL(None, use_errno=True)

    def stamp(self) -> tuple[int, int]:
        """Return entries and bytes of nat: every change measured here moves them. (0, 0) before there is a table."""
        told = ctypes.create_string_buffer(b"nat", 84)  # struct ipt_getinfo; its name is asked for in place
        length = ctypes.c_uint(len(told))
        if self._libc.getsockopt(
            self._socket.fileno(), socket.IPPROTO_IP, _IPT_SO_GET_INFO, told, ctypes.byref(length)
        ):
            number = ctypes.get_errno()
            if number in (errno.ENOENT, errno.EINVAL, errno.ENOPROTOOPT):
                return 0, 0
            raise OSError(number, os.strerror(number))
        entries, size = struct.unpack_from("=II", told.raw, 32 + 4 + 20 + 20)
        return entries, size

    @property
    def entries(self) -> int:
        """Return how many entries nat has: rules, and two for each chain."""
        return self.stamp()[0]

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _attributes(body: memoryview) -> dict[int, bytes]:
    found = {}
    while len(body) >= 4:
        length, kind = struct.unpack_from("=HH", body)
        if length < 4:
            break
        found[kind & 0x3FFF] = bytes(body[4:length])
        body = body[(length + 3) & ~3 :]
    return found


def _use(attributes: dict[int, bytes]) -> int:
    return int.from_bytes(attributes[6], "big")


def _text(kind: int, text: str) -> bytes:
    raw = text.encode() + b"\0"
    return struct.pack("=HH", 4 + len(raw), kind) + raw + b"\0" * (-len(raw) % 4)


class Timeout(Exception):
    """The kernel did not come to what was waited for."""


def wait(
    kernel: Nft | Legacy,
    is_there: Callable[[], bool],
    what: str,
    *,
    timeout: float,
    after: object = None,
    alive: Callable[[], None] = lambda: None,
) -> float:
    """Wait for a state of the kernel; return the monotonic time of the look that saw the commit which brought it.

    ``is_there`` is asked when the stamp is another than ``after`` and than at the last look, and AGAIN a little later.
    """
    limit = time.monotonic() + timeout
    again: list[float] = []
    asked_alive = time.monotonic()
    last = after
    while True:
        now = time.monotonic()
        stamp = kernel.stamp()
        is_due = bool(again) and now >= again[0]
        if stamp != last or is_due:
            again = again[1:] if stamp == last else [now + later for later in AGAIN]
            last = stamp
            if is_there():
                return now if kernel.stamp() == stamp else time.monotonic()
        if now > limit:
            raise Timeout(f"waited {timeout:g} s in vain for: {what}")
        if now > asked_alive + 0.5:
            asked_alive = now
            alive()
        time.sleep(INTERVAL)


def settled(kernel: Nft | Legacy, quiet: float, *, timeout: float = 300.0) -> None:
    """Return once nothing was committed for ``quiet`` seconds."""
    limit = time.monotonic() + timeout
    last, since = kernel.stamp(), time.monotonic()
    while time.monotonic() - since < quiet:
        if time.monotonic() > limit:
            raise Timeout("the rules do not come to rest")
        time.sleep(0.02)
        stamp = kernel.stamp()
        if stamp != last:
            last, since = stamp, time.monotonic()


def first_missing(wanted: list[T], is_there: Callable[[T], bool]) -> Callable[[], bool]:
    """Return a question that is yes once every one of ``wanted`` is there; what was seen is not asked again."""
    place = 0

    def ask() -> bool:
        nonlocal place
        while place < len(wanted) and is_there(wanted[place]):
            place += 1
        return place == len(wanted)

    return ask
