"""Notice that the configuration file has changed, and tell what it takes to apply the new Options.

Whether a changed file is valid, and what happens when it is not, is for the one who listens: a bad edit must not take a
node down. Nothing here reads a document.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import structlog

from pykubeproxy.config.document import digest_of
from pykubeproxy.config.filewatch import FileNotifier, InotifyNotifier, PollingNotifier
from pykubeproxy.config.options import Options
from pykubeproxy.config.settings import SETTINGS, Reload, get

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
    """Calls ``on_change`` (in its own thread) after the content of the file at ``path`` has changed.

    A write, a file renamed over it and the swap of a ConfigMap's ``..data`` link count alike; a touched file with the
    same content does not count, nor does a missing one until it is back. Several changes within ``settle`` seconds are
    one. Where inotify is refused the file is polled. A failing ``on_change`` is logged and the watch goes on.

    ``digest`` is that of the content which the caller has already used (`flags.Invocation`), so that a change before
    the start is noticed; without it, the content at construction counts as used.
    """

    def __init__(
        self,
        path: str,
        on_change: Callable[[], None],
        *,
        digest: str | None = None,
        open_notifier: Callable[[], FileNotifier] = InotifyNotifier,
        open_fallback: Callable[[], FileNotifier] = PollingNotifier,
        settle: float = 0.2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._on_change = on_change
        self._used = digest if digest is not None else digest_of(path)
        self._open_fallback = open_fallback
        self._settle_seconds = settle
        self._clock = clock
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
        """Call ``on_change`` if the content differs from the last one; tell whether it did."""
        digest = digest_of(self._path)
        if digest is None or digest == self._used:
            return False
        self._used = digest
        try:
            self._on_change()
        except Exception:  # noqa: BLE001 - whatever the listener does wrong, the next edit must be noticed
            _log.exception("config change not handled", path=self._path)
        return True

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                # first the watch, then the look: what changes in between is told by the watch
                self._notifier.watch(self._path)
            except OSError as error:
                refused, self._notifier = self._notifier, self._fall_back(error)
                refused.close()
            self.check()
            if not self._stopping.is_set() and self._notifier.wait(self._notifier.interval):
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
