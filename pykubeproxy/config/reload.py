"""Notice that the configuration file has changed, and tell what it takes to apply the new Options.

Whether a changed file is valid, and what happens when it is not, is for the one who listens: a bad edit must not take a
node down. Nothing here reads a document.

Half a document is often a valid one, so a change is believed slowly, as one of a manifest is: see `ConfigWatcher`.
"""

from __future__ import annotations

import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import structlog

from pykubeproxy import files
from pykubeproxy.config.document import digest_of, digest_of_content
from pykubeproxy.config.filewatch import FileNotifier, InotifyNotifier, PollingNotifier
from pykubeproxy.config.options import Options
from pykubeproxy.config.settings import SETTINGS, Reload, get
from pykubeproxy.settling import SETTLE_INTERVAL, SETTLED, Settling, Stamp, is_being_written, stamp_of

_log = structlog.get_logger()
_SETTLE_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class ReloadDecision:
    """The changed fields by what it takes to apply them, named as in the document (``--master`` where it has none)."""

    live: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    """Changed, but without effect in this program."""

    @property
    def needs_restart(self) -> bool:
        """Whether at least one changed field is read only at the start."""
        return bool(self.restart)


def plan_reload(old: Options, new: Options) -> ReloadDecision:
    """Compare two Options field by field."""
    changed: dict[Reload, list[str]] = {reload: [] for reload in Reload}
    for setting in SETTINGS:
        if get(old, setting) != get(new, setting):
            changed[setting.reload].append(setting.document or f"--{setting.flag}")
    return ReloadDecision(tuple(changed[Reload.LIVE]), tuple(changed[Reload.RESTART]), tuple(changed[Reload.NONE]))


class ConfigWatcher:
    """Calls ``on_change`` (in its own thread) with the digest of the file at ``path`` after its content has changed.

    A write, a file renamed over it and the swap of a ConfigMap's ``..data`` link count alike; a touched file with the
    same content does not count, nor does a missing one until it is back. Where inotify is refused the file is polled. A
    failing ``on_change`` is logged and the watch goes on.

    A file that is written in place is read once it has stayed the same for ``settled`` seconds, one that was renamed
    over another (or a symlink swapped) at the second look, ``settle`` seconds after the first; neither while a program
    has it open for writing, as far as the kernel tells, though for ``OPEN_PATIENCE`` seconds at most. An empty file is
    one that is being written: `command > file` empties it first.

    ``digest`` is that of the content which the caller has already used (`flags.Invocation`), so that a change before
    the start is noticed; without it, the content at construction counts as used.
    """

    def __init__(
        self,
        path: str,
        on_change: Callable[[str], None],
        *,
        digest: str | None = None,
        open_notifier: Callable[[], FileNotifier] = InotifyNotifier,
        open_fallback: Callable[[], FileNotifier] = PollingNotifier,
        settle: float = SETTLE_INTERVAL,
        settled: float = SETTLED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._on_change = on_change
        self._open_fallback = open_fallback
        self._settle_seconds = settle
        self._settled_seconds = settled
        self._clock = clock
        self.fault = ""
        """Why the file as it is now cannot be used, as far as that is seen here."""
        self._settling = Settling()
        before, found = self._look(), digest_of(path)
        self._used = digest if digest is not None else found
        if found == self._used:
            self._settling.take(before)
        self._stopping = threading.Event()
        try:
            self._notifier = open_notifier()
        except OSError as error:
            self._notifier = self._fall_back(error)
        self._thread = threading.Thread(target=self._run, name="config-watch", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; ``on_change`` is not called after this returns."""
        self._stopping.set()
        self._notifier.wake()
        if self._thread.ident is not None:
            self._thread.join()
        self._notifier.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def check(self) -> bool:
        """Look at the file; call ``on_change`` if its content has changed and settled, and tell whether that was so."""
        stamp = self._look()
        if stamp is None:
            self._settling.take(None)  # one that comes back is written in place, not renamed over another
            return False
        if stamp == self._settling.read:
            self._settling.seen = None
            return False
        if not self._settling.has_settled(stamp, self._clock(), pause=self._settled_seconds):
            return False
        digest = self._read(stamp)
        if digest is None or digest == self._used:
            return False
        self._used = digest
        try:
            self._on_change(digest)
        except Exception:  # noqa: BLE001 - whatever the listener does wrong, the next edit must be noticed
            _log.exception("config change not handled", path=self._path)
        if self._look() != stamp:
            self._used = None  # what the listener has read may be another content
        return True

    def _look(self) -> Stamp | None:
        """Return the file's stamp; None where there is nothing to follow, such as a pipe that was read at the start."""
        try:
            stamp = stamp_of(self._path)
        except OSError as error:
            self.fault = f"{self._path}: {error.strerror}"
            return None
        return stamp if stat.S_ISREG(stamp[-1]) else None

    def _read(self, stamp: Stamp) -> str | None:
        """Return the digest of the file's content; None where it is none to be used, or not yet."""
        try:
            if self._clock() < self._settling.late_at and is_being_written(self._path):
                return None
            content = files.read(self._path, regular_only=True)
        except OSError as error:
            self.fault = f"{self._path}: {error.strerror}"
            return None
        if self._look() != stamp:
            return None
        self._settling.take(stamp)
        self.fault = ""
        if content.strip():
            return digest_of_content(content)
        self.fault = f"{self._path}: is empty, as a file that is being written"
        _log.warning("config file empty", path=self._path, consequence="the old one stays in force")
        return None

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                # first the watch, then the look: what changes in between is told by the watch
                self._notifier.watch(self._path)
            except OSError as error:
                refused, self._notifier = self._notifier, self._fall_back(error)
                refused.close()
            self.check()
            is_settling = self._settling.seen is not None
            timeout = min(self._settle_seconds, self._notifier.interval) if is_settling else self._notifier.interval
            if not self._stopping.is_set() and self._notifier.wait(timeout):
                self._settle()

    def _settle(self) -> None:
        """Wait until the events pause, but not for ever."""
        deadline = self._clock() + _SETTLE_ROUNDS * self._settle_seconds
        while not self._stopping.is_set() and self._clock() < deadline:
            if not self._notifier.wait(self._settle_seconds):
                return

    def _fall_back(self, error: OSError) -> FileNotifier:
        notifier = self._open_fallback()
        _log.warning("config file polled, no inotify", path=self._path, reason=str(error), seconds=notifier.interval)
        return notifier
