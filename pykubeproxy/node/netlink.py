"""A netlink socket of a few lines: enough to ask one question, stream the answer and send small batches.

It exists because the three conversations of this room (conntrack, nfacct, addresses) need no more, while importing any
part of pyroute2 costs 23 MB and 0.13 s (0.9.7, measured), and decoding an entry with its parsers costs 30 times what a
look at the bytes does. It must not grow into a library: no message classes, no event loop, no multicast groups.

Format: netlink(7); include/uapi/linux/netlink.h, include/uapi/linux/netfilter/nfnetlink.h.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Self

NETLINK_ROUTE = 0
NETLINK_NETFILTER = 12

NLM_F_REQUEST = 0x1
NLM_F_ACK = 0x4
NLM_F_EXCL = 0x200
NLM_F_CREATE = 0x400
NLM_F_DUMP = 0x300

_SOL_NETLINK = 270
_NETLINK_CAP_ACK = 10

NLMSG_ERROR = 2
NLMSG_DONE = 3
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11

NLA_F_NESTED = 0x8000
NLA_TYPE_MASK = 0x3FFF

HEADER = struct.Struct("=IHHII")
_LENGTH_TYPE = struct.Struct("=IH")
_ATTRIBUTE = struct.Struct("=HH")
_ERROR = struct.Struct("=i")
_DONE_SIZE = HEADER.size + _ERROR.size

# The kernel fills up to 32 KiB of a dump at once if the reader's buffer is that large (net/netlink/af_netlink.c).
BUFFER_SIZE = 65536
SLACK = 512
"""Bytes behind what a datagram may fill, so that a fixed layout can be laid over a short last message."""
TIMEOUT = 10.0
"""Seconds after which a silent kernel is an error: without a timeout a lost answer would hang the caller's thread."""


def attribute(kind: int, payload: bytes) -> bytes:
    """Encode one attribute, padded to four bytes."""
    return _ATTRIBUTE.pack(4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def nested(kind: int, *children: bytes) -> bytes:
    """Encode an attribute that holds attributes."""
    return attribute(kind | NLA_F_NESTED, b"".join(children))


def message(kind: int, flags: int, body: bytes, sequence: int = 0) -> bytes:
    """Encode one message; ``body`` is the family header and the attributes."""
    return _head(kind, flags, len(body), sequence) + body


@lru_cache(maxsize=1024)
def _head(kind: int, flags: int, size: int, sequence: int) -> bytes:
    """Encode the header of a message; remembered, because long series of one kind are sent in equal batches."""
    return HEADER.pack(HEADER.size + size, kind, flags | NLM_F_REQUEST, sequence, 0)


def nfgen(family: int, resource: int = 0) -> bytes:
    """Encode struct nfgenmsg, which heads every nfnetlink message."""
    return struct.pack(">BBH", family, 0, resource)


def attributes(buffer: bytes | bytearray, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (type, start, end) of the payload of each attribute between two offsets; stops at a malformed one."""
    while start + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(buffer, start)
        if length < 4 or start + length > end:
            return
        yield kind & NLA_TYPE_MASK, start + 4, start + length
        start += (length + 3) & ~3


class NetlinkSocket:
    """One conversation at a time, in the network namespace of the thread that opened it. Not for use by two threads."""

    def __init__(self, protocol: int, *, timeout: float = TIMEOUT) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.settimeout(timeout)
        # Errors without a copy of the message that caused them.
        self._socket.setsockopt(_SOL_NETLINK, _NETLINK_CAP_ACK, 1)
        self._buffer = bytearray(BUFFER_SIZE + SLACK)
        self._window = memoryview(self._buffer)[:BUFFER_SIZE]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def _receive(self) -> tuple[bytearray, int]:
        count, _, flags, _ = self._socket.recvmsg_into([self._window])
        if flags & socket.MSG_TRUNC or count < HEADER.size:
            raise OSError(errno.EBADMSG, "netlink message cut short")
        return self._buffer, count

    def dump(self, kind: int, body: bytes) -> Iterator[tuple[bytearray, int]]:
        """Ask for a dump and yield (buffer, filled) for each datagram of the answer.

        The buffer is used again for the next datagram, so memory stays the same however long the answer is. Messages of
        type NLMSG_DONE end the iteration and are still in the last buffer: skip types that were not asked for. Raises
        OSError with the kernel's errno.
        """
        self._socket.send(message(kind, NLM_F_DUMP, body))
        while True:
            buffer, filled = self._receive()
            finished = self._end_of_dump(buffer, filled)
            yield buffer, filled
            if finished:
                return

    @staticmethod
    def _end_of_dump(buffer: bytearray, filled: int) -> bool:
        # An error comes alone. DONE is the last message, alone or behind the last entries, and has a fixed size; only
        # where the tail looks like one are the headers walked to be sure. Walking always would cost long dumps a tenth.
        _, kind = _LENGTH_TYPE.unpack_from(buffer, 0)
        if kind == NLMSG_ERROR:
            (code,) = _ERROR.unpack_from(buffer, HEADER.size)
            if code < 0:
                raise OSError(-code, os.strerror(-code))
            return True
        if filled < _DONE_SIZE or _LENGTH_TYPE.unpack_from(buffer, filled - _DONE_SIZE) != (_DONE_SIZE, NLMSG_DONE):
            return False
        offset = 0
        while offset < filled - _DONE_SIZE:
            length, _ = _LENGTH_TYPE.unpack_from(buffer, offset)
            if length < HEADER.size:
                raise OSError(errno.EBADMSG, "malformed netlink message")
            offset += (length + 3) & ~3
        if offset != filled - _DONE_SIZE:
            return False
        (code,) = _ERROR.unpack_from(buffer, offset + HEADER.size)
        if code < 0:
            raise OSError(-code, os.strerror(-code))
        return True

    def request(self, kind: int, flags: int, bodies: Sequence[bytes]) -> list[int]:
        """Send messages of one kind in one go and return the errno of each (0: done), in order.

        Only the last is acknowledged (the kernel works in order, and errors are always told), which halves the cost of
        long series. Keep it to some hundred: every error waits in the socket's receive buffer.
        """
        if not bodies:
            return []
        codes = [0] * len(bodies)
        final = len(bodies) - 1
        parts: list[bytes] = []
        for index, body in enumerate(bodies):
            parts += _head(kind, flags | NLM_F_ACK if index == final else flags, len(body), index), body
        self._socket.send(b"".join(parts))
        while True:
            buffer, filled = self._receive()
            offset = 0
            while offset + HEADER.size <= filled:
                length, answer, _, sequence, _ = HEADER.unpack_from(buffer, offset)
                if length < HEADER.size:
                    raise OSError(errno.EBADMSG, "malformed netlink message")
                if answer == NLMSG_ERROR and sequence <= final:
                    codes[sequence] = -_ERROR.unpack_from(buffer, offset + HEADER.size)[0]
                    if sequence == final:
                        return codes
                offset += (length + 3) & ~3

    def change(self, subsystem: int, kind: int, body: bytes) -> int:
        """Make one change of a subsystem that takes changes in batches only (nf_tables); return its errno (0: done)."""
        edge = nfgen(socket.AF_UNSPEC, subsystem)
        self._socket.send(
            message(_BATCH_BEGIN, 0, edge)
            + message(subsystem << 8 | kind, NLM_F_ACK, body, sequence=1)
            + message(_BATCH_END, 0, edge, sequence=2)
        )
        while True:
            buffer, _ = self._receive()
            _, answer, _, sequence, _ = HEADER.unpack_from(buffer, 0)
            code = -int(_ERROR.unpack_from(buffer, HEADER.size)[0])
            # An error of the first message (no rights, no nf_tables) means that the rest was not looked at.
            if answer == NLMSG_ERROR and (sequence == 1 or code):
                return code
