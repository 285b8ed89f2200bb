"""Notice foreign writers on the nft backend: the kernel tells every change of nf_tables on a netlink multicast group.

Only headers and the names of tables and chains are read: decoding the rules of our own 5,000-service restore would cost
seconds. Exactness: the kernel queues the messages of a commit before the writer's call returns, a queue that overflows
says so (ENOBUFS), and commits are numbered. So after draining the queue and asking for the present number
(NFT_MSG_GETGEN, 30 µs) it is known whether anything is missing; what is missing makes everything suspect.

Which writer made a commit stands in its messages as the port of the writer's socket (nlmsg_pid). A socket that is bound
automatically, as iptables does, gets its process's id as seen in the process's own pid namespace, or a number with the
highest bit set where that port is taken in this network namespace. Ports are unique at any one time, so while our child
runs and holds the port of its id, a commit from that port is ours. A commit from a high port meanwhile might be our
child's instead, and the one from its id a stranger's (of another pid namespace): then everything is suspect.
NFTA_GEN_PROC_PID would not help: it speaks of the initial pid namespace.

Source: net/netfilter/nf_tables_api.c (nf_tables_commit, nft_commit_notify, nf_tables_gen_notify),
net/netlink/af_netlink.c (netlink_autobind), include/uapi/linux/netfilter/nf_tables.h.
"""

from __future__ import annotations

import errno
import os
import re
import select
import socket
import struct
import threading
from collections.abc import Callable, Sequence

import structlog

from pykubeproxy.errors import EnvironmentProblem
from pykubeproxy.model.addresses import FAMILIES, Family
from pykubeproxy.netfilter.suspects import EVERYTHING, Chain, Suspects, concerns_us, suspects
from pykubeproxy.netfilter.watch import Notice
from pykubeproxy.node.netlink import HEADER, NETLINK_NETFILTER, attributes, message, nfgen
from pykubeproxy.rules.names import BUILTIN, TABLES

log = structlog.get_logger()

_SOL_NETLINK = 270
_NETLINK_ADD_MEMBERSHIP = 1
_NFNLGRP_NFTABLES = 7
_SO_RCVBUFFORCE = 33
_SUBSYSTEM = 10 << 8  # NFNL_SUBSYS_NFTABLES
_NEWTABLE, _DELTABLE, _NEWCHAIN, _DELCHAIN, _NEWRULE, _DELRULE, _NEWGEN, _GETGEN = (
    _SUBSYSTEM | number for number in (0, 2, 3, 5, 6, 8, 15, 16)
)
_TABLE_ATTRIBUTE = 1  # NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE
_NAME_ATTRIBUTE = {_NEWCHAIN: 3, _DELCHAIN: 3, _NEWRULE: 2, _DELRULE: 2}  # NFTA_CHAIN_NAME, NFTA_RULE_CHAIN
_GEN_ID = 1
_NEW = 0x200 | 0x400  # NLM_F_EXCL, NLM_F_CREATE
_FAMILY_OF: dict[int, Family] = {2: "IPv4", 10: "IPv6"}
_AUTOMATIC = 1 << 31
"""Ports from here on are what the kernel gives where a process's id is taken."""

BUFFER = 16 << 20
"""Bytes that may wait in the socket: a few batches of our own largest restores. Unused, it costs nothing."""
_READ = 1 << 16
ANSWER_PATIENCE = 2.0
"""Seconds to wait for an answer of the kernel, or for the messages of a commit that is being made just now."""


class NftWatch:
    """The nft backend's Watch. Opens its socket in the network namespace of the thread that makes it.

    Raises:
        EnvironmentProblem: the kernel does not let us listen.

    """

    def __init__(
        self,
        notice: Notice,
        on_crash: Callable[[BaseException], None],
        *,
        families: Sequence[Family] = FAMILIES,
        buffer: int = BUFFER,
    ) -> None:
        self._notice = notice
        self._on_crash = on_crash
        self._families = tuple(families)
        self._lock = threading.Lock()
        """Guards the socket and everything below."""
        self._tables: dict[Family, set[str]] = {family: set() for family in families}
        self._chains: dict[Family, set[Chain]] = {family: set() for family in families}
        self._told: set[Family] = set()
        """Families whose suspicion has been noticed and not been looked at yet."""
        self._runs: dict[object, int] = {}
        self._ours: dict[int, bool] = {}
        """Process id of each running child of ours -> whether a commit from that port was seen."""
        self._high_port = False
        """Whether a commit that concerns us came from a high port while a child of ours ran."""
        self._echoes_flags = _kernel() >= (5, 15)
        """Whether this kernel repeats the writer's flags (some older ones do too): a rename is told by lacking them."""
        self._generation: int | None = None
        self._sequence = 0
        self._answer: int | None = None
        self._window = bytearray(_READ)
        self._stopped = False
        try:
            self._socket = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, NETLINK_NETFILTER
            )
            self._socket.bind((0, 0))
            self._socket.setsockopt(_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, _NFNLGRP_NFTABLES)
        except OSError as exc:
            raise EnvironmentProblem(f"the kernel does not tell of changes of nf_tables: {exc}") from exc
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer)
        except OSError:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self._port = self._socket.getsockname()[0]
        self._waker = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="nft-watch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, without waiting for it."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                os.eventfd_write(self._waker, 1)
                self._socket.close()

    def look(self, family: Family) -> Suspects:
        """Return what others may have changed since the last look at this family."""
        with self._lock:
            if self._stopped:
                return EVERYTHING
            if not self._is_complete():
                self._suspect_everything()
            found = suspects(self._tables[family], self._chains[family])
            self._tables[family].clear()
            self._chains[family].clear()
            self._told.discard(family)
        self._tell()
        return found

    def begins(self, run: object, argv: list[str], stdin: bytes) -> None:
        """Do nothing yet: it is its process id that matters."""

    def started(self, run: object, pid: int) -> None:
        """Note a child of ours: what was queued before is not its doing."""
        with self._lock:
            self._drain()
            self._runs[run] = pid
            self._ours[pid] = False
        self._tell()

    def ended(self, run: object) -> None:
        """Forget a child of ours: what comes later is not its doing."""
        with self._lock:
            self._drain()
            has_committed = self._ours.pop(self._runs.pop(run, 0), False)
            if self._high_port and has_committed:
                self._suspect_everything()
            if not self._ours:
                self._high_port = False
        self._tell()

    # -- inside; everything but _run and _tell with the lock held

    def _run(self) -> None:
        try:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            poll.register(self._waker, select.POLLIN)
            while not self._stopped:
                poll.poll()
                with self._lock:
                    self._drain()
                self._tell()
            os.close(self._waker)
        except BaseException as exc:  # noqa: BLE001 - whatever it is, a daemon without this thread must not go on
            self._on_crash(exc)

    def _tell(self) -> None:
        """Notice each suspicion once."""
        with self._lock:
            fresh = [f for f in self._families if f not in self._told and (self._tables[f] or self._chains[f])]
            self._told.update(fresh)
        for family in fresh:
            self._notice(family)

    def _suspect_everything(self) -> None:
        for family in self._families:
            self._tables[family].update(EVERYTHING.tables)

    def _is_complete(self) -> bool:
        """Read what is queued; tell whether every commit up to now has been seen."""
        self._drain()  # or there may be no room for the answer
        current = self._current_generation()
        if current is not None:
            # A commit is numbered before its messages are queued: give it the time to do so.
            self._drain_until(lambda: self._has_seen(current))
        if current is not None and self._has_seen(current):
            return True
        log.info("notifications incomplete", seen=self._generation, current=current)
        self._generation = current
        return False

    def _has_seen(self, generation: int) -> bool:
        """Tell whether the messages of a commit have come. Where nothing is known yet, nothing is missing."""
        if self._generation is None:
            self._generation = generation
        return (self._generation - generation) & 0xFFFFFFFF < 1 << 31  # the numbers wrap around

    def _current_generation(self) -> int | None:
        """Ask the kernel; whatever was queued before the answer is taken in."""
        self._sequence = (self._sequence + 1) & 0x7FFFFFFF
        self._answer = None
        try:
            self._socket.send(message(_GETGEN, 0, nfgen(0), self._sequence))
        except OSError as exc:
            log.warning("generation not told", error=str(exc))
            return None
        self._drain_until(lambda: self._answer is not None)
        return self._answer

    def _drain_until(self, is_there: Callable[[], bool]) -> None:
        self._drain()
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not is_there():
            if not poll.poll(ANSWER_PATIENCE * 1000):
                return
            self._drain()

    def _drain(self) -> None:
        while not self._stopped:
            try:
                filled = self._socket.recv_into(self._window)
            except BlockingIOError:
                return
            except OSError as exc:
                if exc.errno != errno.ENOBUFS:
                    raise
                log.info("notifications lost", consequence="everything is verified")
                self._suspect_everything()
                self._generation = None
                continue
            self._take(filled)

    def _take(self, filled: int) -> None:
        """Take in one datagram."""
        offset = 0
        while offset + HEADER.size <= filled:
            length, kind, flags, sequence, port = HEADER.unpack_from(self._window, offset)
            if length < HEADER.size or offset + length > filled:
                self._suspect_everything()
                return
            self._echoes_flags = self._echoes_flags or bool(flags & _NEW)
            if kind == _NEWGEN:
                self._take_generation(offset, length, sequence, port)
            elif port in self._ours:
                self._ours[port] = True
            elif kind in _NAME_ATTRIBUTE or kind in (_NEWTABLE, _DELTABLE):
                self._take_foreign(kind, flags, offset, length, port)
            offset += (length + 3) & ~3

    def _take_generation(self, offset: int, length: int, sequence: int, port: int) -> None:
        number = 0
        for kind, start, _ in attributes(self._window, offset + HEADER.size + 4, offset + length):
            if kind == _GEN_ID:
                (number,) = struct.unpack_from(">I", self._window, start)
        if port == self._port:
            if sequence == self._sequence:
                self._answer = number
            return
        if port in self._ours:
            self._ours[port] = True
        self._generation = number

    def _take_foreign(self, kind: int, flags: int, offset: int, length: int, port: int) -> None:
        family = _FAMILY_OF.get(self._window[offset + HEADER.size])
        if family not in self._families:
            return
        table = chain = ""
        wanted = _NAME_ATTRIBUTE.get(kind, 0)
        for attribute, start, end in attributes(self._window, offset + HEADER.size + 4, offset + length):
            if attribute == _TABLE_ATTRIBUTE:
                table = _text(self._window[start:end])
            elif attribute == wanted:
                chain = _text(self._window[start:end])
                break
        if table not in TABLES:
            return
        is_renamed = kind == _NEWCHAIN and self._echoes_flags and not flags & _NEW and chain not in BUILTIN
        if not wanted or is_renamed:
            # A table came or went, or a chain was renamed, and its old name is not told.
            self._tables[family].add(table)
        elif concerns_us(table, chain):
            self._chains[family].add((table, chain))
        else:
            return
        if self._ours and port >= _AUTOMATIC:
            self._high_port = True


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])


def _text(raw: bytes | bytearray) -> str:
    return bytes(raw).rstrip(b"\0").decode("utf-8", "surrogateescape")
