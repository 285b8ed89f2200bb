"""Notice foreign writers on the legacy backend, whose kernel part tells nobody anything.

Two sources. Writers take the common lock file (xtables.lock), and inotify tells when somebody lets go of it; and a
digest of each table's contents (contents.py) tells for certain whether anything is different, whoever wrote. The digest
of a large nat table costs 0.2 s, so it is taken at each ``look`` only: some time after a writer came, and at the sync
period, which is what finds a writer without the lock. A glance at filter and mangle through python-iptables (legacy.py,
0.3 ms) comes first: what is plainly missing there is told without waiting.

Our own writes. While a process of ours runs, as many releases of the lock are its own as its input has tables; any more
are a stranger's. What a write of ours leaves is unknown at first (no digest). Of small tables the digest is taken at
the next quiet moment. Of large ones it would cost more CPU than the change itself, so only their sizes are noted, and
the next look takes what it finds for normal if that has the same size. In both cases a stranger who held the lock since
makes the tables we wrote suspect. Where a writer without the lock comes before the digest, or changes a large table
but not its size, nothing tells; the engine's rare full reading finds it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from pykubeproxy.errors import EnvironmentProblem, NetfilterError
from pykubeproxy.model.addresses import FAMILIES, Family
from pykubeproxy.netfilter import legacy
from pykubeproxy.netfilter.contents import digest, size, tables_in_use
from pykubeproxy.netfilter.suspects import EVERYTHING, Suspects
from pykubeproxy.netfilter.watch import Notice
from pykubeproxy.rules.names import TABLES

log = structlog.get_logger()

LOCK_FILE = "/run/xtables.lock"
QUIET = 0.3
"""Seconds without a writer after which a look is worth it: a reload of a firewall comes as many small writes."""
PATIENCE = 1.0
"""Seconds after the first writer when a look is due even though others keep coming."""
SETTLING, SETTLE_SHARE = 1.0, 5.0
"""When the result of our last write is taken as the new normal: after so many seconds at most, or after so many times
what a digest takes, if that is shorter. The sooner, the less can hide; but one for each write would be dear."""
CHEAP = 0.02
"""Seconds that the digests may take which are made after a write of ours; where they take longer, sizes have to do."""
GLANCES = 0.1
"""Seconds between two glances, however many writers come."""

_IN_CLOSE_WRITE, _IN_CLOSE_NOWRITE, _IN_OPEN = 0x008, 0x010, 0x020
_IN_ATTRIB, _IN_DELETE_SELF, _IN_MOVE_SELF = 0x004, 0x400, 0x800
_IN_Q_OVERFLOW, _IN_IGNORED = 0x4000, 0x8000
_CLOSE = _IN_CLOSE_WRITE | _IN_CLOSE_NOWRITE
_GONE = _IN_ATTRIB | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_IGNORED
_EVENT = struct.Struct("iIII")


def lock_file() -> str:
    """Return the path of iptables' lock, as iptables finds it."""
    return os.environ.get("XTABLES_LOCKFILE") or LOCK_FILE


class LegacyWatch:
    """The legacy backend's Watch, for the network namespace of the threads that use it.

    Raises:
        EnvironmentProblem: the lock file cannot be watched.

    """

    def __init__(
        self,
        notice: Notice,
        on_crash: Callable[[BaseException], None],
        *,
        families: Sequence[Family] = FAMILIES,
        path: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._notice = notice
        self._on_crash = on_crash
        self._families = tuple(families)
        self._clock = clock
        self._mutex = threading.Lock()
        """Guards everything below. Digests are taken without it."""
        self._known: dict[Family, dict[str, bytes]] = {family: {} for family in families}
        """Table -> digest of what we take for normal (b"": not in use); a table that is missing here is unknown."""
        self._sizes: dict[Family, dict[str, tuple[int, int]]] = {family: {} for family in families}
        """Table -> the size that a write of ours has left, of tables whose digest is unknown."""
        self._looked: set[Family] = set()
        """Families that have been looked at once."""
        self._unseen: set[Family] = set()
        """Families that have not been looked at since a stranger let go of the lock."""
        self._is_open = False
        """Whether somebody has opened the lock file and, as far as the events tell, not closed it."""
        self._ours: set[object] = set()
        """The programs of ours that run."""
        self._expected = 0
        """How often those that run together now take the lock in all, the ended ones too."""
        self._released = 0
        """How often the lock was let go meanwhile."""
        self._version = 0
        """Counts what may change a table: events of the lock, and writes of ours."""
        self._settle_at = 0.0
        """When the digests of what we wrote are due."""
        self._seconds = 0.0
        """What they took last."""
        self._first_at: float | None = None
        """When the first writer came that has not been told yet."""
        self._last_at = 0.0
        self._glanced_at = 0.0
        self._wants_glance = False
        """Whether a writer came since the last glance."""
        self._can_glance = True
        self._stopped = False
        self._lock_events = _LockEvents(path or lock_file())
        self._waker = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="legacy-watch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, without waiting for it."""
        with self._mutex:
            if not self._stopped:
                self._stopped = True
                os.eventfd_write(self._waker, 1)

    def look(self, family: Family) -> Suspects:
        """Return what others may have changed since the last look at this family."""
        with self._mutex:
            if self._stopped:
                return EVERYTHING
            self._drain()
            self._looked.add(family)
            known, is_busy, version = dict(self._known[family]), bool(self._ours), self._version
            sizes = {} if is_busy else dict(self._sizes[family])
            has_visitor = family in self._unseen or (self._is_open and not is_busy)
            self._unseen.discard(family)
        # What we wrote and nobody touched is no suspect; while a child runs, it cannot be told whether anybody did.
        asked = [table for table in TABLES if table in known or has_visitor or not is_busy]
        resized = {table for table, noted in sizes.items() if _size(family, table) != noted}
        found = _digests(family, asked)
        with self._mutex:
            self._drain()
            is_calm = version == self._version and not self._is_open
            for table in asked:
                if table in found and (table in known or has_visitor or is_calm):
                    self._known[family][table] = found[table]
                    self._sizes[family].pop(table, None)
                else:
                    self._known[family].pop(table, None)
        changed = [t for t in asked if (found.get(t) != known[t] if t in known else has_visitor or t in resized)]
        return Suspects(frozenset(changed))

    def begins(self, run: object, argv: list[str], stdin: bytes) -> None:
        """Note a program of ours: what happened to the lock before is not its doing."""
        name = argv[0].rpartition("/")[2]  # as Backend calls the programs
        if "-legacy" not in name:
            return
        family: Family = "IPv6" if name.startswith("ip6") else "IPv4"
        takes = 0 if name.endswith("-save") else 1
        with self._mutex:
            self._drain()
            if name.endswith("-restore"):
                written = [line[1:].strip().decode() for line in stdin.split(b"\n") if line.startswith(b"*")]
                takes = len(written)
                self._version += 1
                for table in written:
                    self._known.get(family, {}).pop(table, None)
                    self._sizes.get(family, {}).pop(table, None)
            self._ours.add(run)
            self._expected += takes

    def started(self, run: object, pid: int) -> None:
        """Do nothing: it is counted, not known by its process id."""

    def ended(self, run: object) -> None:
        """Forget a program of ours; find out whether a stranger held the lock meanwhile."""
        with self._mutex:
            if run not in self._ours or self._stopped:
                return
            self._drain()
            self._ours.discard(run)
            self._settle_soon()
            if not self._ours:
                if self._released > self._expected:
                    self._visited()
                self._released = self._expected = 0
            os.eventfd_write(self._waker, 1)

    # -- the thread

    def _run(self) -> None:
        try:
            poll = select.poll()
            poll.register(self._lock_events.descriptor, select.POLLIN)
            poll.register(self._waker, select.POLLIN)
            while True:
                with self._mutex:
                    wait = self._wait()
                poll.poll(None if wait is None else max(0.0, wait) * 1000)
                with self._mutex:
                    _silence(self._waker)
                    if self._stopped:
                        break
                    self._drain()
                self._glance()
                if self._is_due():
                    for family in self._families:
                        self._notice(family)
                self._settle()
            self._lock_events.close()
            os.close(self._waker)
        except BaseException as exc:  # noqa: BLE001 - whatever it is, a daemon without this thread must not go on
            self._on_crash(exc)

    def _wait(self) -> float | None:
        """Return the seconds until there is something to do without an event; None: nothing."""
        if self._ours:
            return None
        now = self._clock()
        dues = []
        if self._first_at is not None:
            dues.append(self._told_at())
        if self._wants_glance and self._can_glance:
            dues.append(self._glanced_at + GLANCES)
        if self._is_unsettled() and self._seconds <= CHEAP:
            dues.append(self._settle_at)
        return min(dues) - now if dues else None

    def _settle_soon(self) -> None:
        self._settle_at = self._clock() + min(SETTLING, SETTLE_SHARE * self._seconds)

    def _told_at(self) -> float:
        assert self._first_at is not None
        return min(self._last_at + QUIET, self._first_at + PATIENCE)

    def _is_unsettled(self) -> bool:
        return not self._is_open and bool(self._unsettled())

    def _unsettled(self) -> dict[Family, list[str]]:
        """Return the tables that only we have written since they were last known."""
        found = {f: [t for t in TABLES if t not in self._known[f]] for f in self._looked - self._unseen}
        return {family: tables for family, tables in found.items() if tables}

    def _is_due(self) -> bool:
        """Tell whether to tell of the writers that came, and forget them."""
        with self._mutex:
            if self._first_at is None or self._clock() < self._told_at():
                return False
            self._first_at = None
            return True

    def _glance(self) -> None:
        """Tell at once of what is plainly missing after a stranger has written."""
        with self._mutex:
            now = self._clock()
            if not self._wants_glance or not self._can_glance or self._ours or now < self._glanced_at + GLANCES:
                return
            self._glanced_at, self._wants_glance = now, False
        for family in self._families:
            try:
                missing = legacy.missing(family)
            except EnvironmentProblem as exc:
                self._can_glance = False
                log.warning("glance impossible", error=str(exc), consequence="noticed a second later")
                return
            except NetfilterError:
                continue
            if missing:
                log.debug("missing at a glance", family=family, missing=missing[:5])
                self._notice(family)

    def _settle(self) -> None:
        """Take what our writes have left for the new normal, if nobody came between; of what is large note the size."""
        with self._mutex:
            if self._ours or not self._is_unsettled():
                return
            version = self._version
            asked = self._unsettled()
            if self._seconds > CHEAP:
                self._note_sizes(asked)
                return
            if self._clock() < self._settle_at:
                return
        started = self._clock()
        found = {family: _digests(family, tables) for family, tables in asked.items()}
        with self._mutex:
            self._seconds = self._clock() - started
            self._drain()
            if version != self._version or self._ours or self._is_open:
                self._settle_soon()
                return
            for family, digests in found.items():
                self._known[family].update(digests)
                if len(digests) < len(asked[family]):  # the kernel does not show it: again, but not at once
                    self._settle_at = self._clock() + SETTLING

    # -- inside, with the mutex held

    def _note_sizes(self, unsettled: dict[Family, list[str]]) -> None:
        for family, tables in unsettled.items():
            noted = self._sizes[family]
            for table in tables_in_use(family).intersection(tables).difference(noted):
                found = _size(family, table)
                if found is not None:
                    noted[table] = found

    def _drain(self) -> None:
        """Take in what happened to the lock file."""
        for mask in self._lock_events.read():
            self._version += 1
            if mask & _IN_OPEN:
                self._is_open = True
            if mask & _CLOSE:
                self._is_open = False
                self._released += 1
            if mask & (_IN_Q_OVERFLOW | _GONE) or (mask & _CLOSE and not self._ours):
                self._visited()
        if not self._ours:
            self._released = self._expected = 0

    def _visited(self) -> None:
        """Note that a stranger let go of the lock."""
        self._unseen.update(self._families)
        self._last_at = self._clock()
        self._wants_glance = True
        if self._first_at is None:
            self._first_at = self._last_at


class _LockEvents:
    """Who opens and closes the lock file, from inotify. The file is made if it is not there, as iptables makes it."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        try:
            self._watch = self._add()
        except EnvironmentProblem:
            os.close(self.descriptor)
            raise

    def read(self) -> list[int]:
        """Return the masks of the events since the last call."""
        masks = []
        while True:
            try:
                data = os.read(self.descriptor, 65536)
            except BlockingIOError:
                break
            offset = 0
            while offset < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, offset)
                offset += _EVENT.size + length
                if watch == self._watch or mask & _IN_Q_OVERFLOW:
                    masks.append(mask)
        if any(mask & _GONE for mask in masks):
            try:
                self._watch = self._add()
            except EnvironmentProblem as exc:
                log.warning("lock unwatched", error=str(exc), consequence="writers are noticed at the sync period only")
                self._watch = -1
        return masks

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)

    def _add(self) -> int:
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o600))
        except OSError as exc:
            raise EnvironmentProblem(f"the lock file of iptables cannot be made: {exc}") from exc
        mask = _IN_OPEN | _CLOSE | _GONE & ~_IN_IGNORED
        return self._checked(self._libc.inotify_add_watch(self.descriptor, os.fsencode(self._path), mask))

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            hint = "; raise fs.inotify.max_user_instances" if number == errno.EMFILE else ""
            raise EnvironmentProblem(f"{self._path} cannot be watched: {os.strerror(number)}{hint}")
        return result


def _digests(family: Family, tables: Sequence[str]) -> dict[str, bytes]:
    """Return the digests of tables (b"": not in use); one that the kernel does not show is left out."""
    found = {}
    there = tables_in_use(family)
    for table in tables:
        try:
            found[table] = digest(family, table) if table in there else b""
        except NetfilterError as exc:
            log.debug("table not digested", family=family, table=table, error=str(exc))
    return found


def _size(family: Family, table: str) -> tuple[int, int] | None:
    """Return the size of a table that is in use; None where the kernel does not show it."""
    try:
        return size(family, table)
    except NetfilterError:
        return None


def _silence(descriptor: int) -> None:
    try:
        os.eventfd_read(descriptor)
    except BlockingIOError:
        return
