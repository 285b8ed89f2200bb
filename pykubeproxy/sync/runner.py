"""When to sync: at once on a change, spaced by the minimum interval, again after a failure, and a look each period.

``Schedule`` is pure: it is told what happened and when, and says when the next sync is due. ``SyncLoop`` is the thin
thread around it. An idle loop syncs a first change immediately; the minimum interval only spaces what follows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from pykubeproxy.errors import LockBusyError, PykubeproxyError
from pykubeproxy.sync.engine import Engine
from pykubeproxy.sync.telling import Outcome

log = structlog.get_logger()

LOCK_RETRY = 0.5
"""Seconds until the next try when the lock was busy; iptables itself has waited 5 s by then."""
VERIFY_SPACING = 1.0
"""Least seconds from one verification to the next that is asked for, however many writers come."""
VERIFY_SHARE = 5.0
"""Verifications that are asked for take a fifth of the time at most: they are spaced by so many times what one took."""
FIRST_RETRY, LONGEST_RETRY = 1.0, 10.0
"""Seconds until the next try after the first failure, doubled each time up to the longest or the sync period."""


@dataclass(slots=True)
class Schedule:
    """Decides when the next sync is due. All times are monotonic seconds."""

    min_interval: float
    sync_period: float
    last_start: float | None = None
    requested: bool = False
    verify_requested: bool = False
    retry_at: float | None = None
    failures: int = 0
    verified_at: float = 0.0
    verify_seconds: float = 0.0
    """What the last verification took."""
    verify_at: float | None = None
    """When a verification is due ahead of the period, asked for by the engine itself."""

    def due(self) -> float | None:
        """Return when the next sync is due; None: not before something is requested."""
        earliest = 0.0 if self.last_start is None else self.last_start + self.min_interval
        if self.retry_at is not None:
            return max(earliest, self.retry_at)
        if self.requested:
            return earliest
        if self.last_start is None:
            return None
        return max(earliest, self._verify_due())

    def starts(self, now: float) -> bool:
        """Note that a sync starts; tell whether it should verify."""
        verify = self.last_start is None or self.failures > 0 or now >= self._verify_due()
        self.last_start = now
        self.requested = False
        self.retry_at = None
        if verify:
            self.verified_at = now
            self.verify_requested = False
            self.verify_at = None
        return verify

    def is_periodic(self, now: float) -> bool:
        """Tell whether the sync period is over."""
        return now >= self.verified_at + self.sync_period

    def succeeded(self, now: float, outcome: Outcome | None) -> None:
        """Note that the sync did its work."""
        self.failures = 0
        if outcome is None:
            return
        self.verify_seconds = outcome.verify_seconds or self.verify_seconds
        if outcome.verify_in is not None:
            self.verify_at = now + outcome.verify_in

    def _verify_due(self) -> float:
        due = self.verified_at + self.sync_period
        spaced = self.verified_at + max(VERIFY_SPACING, VERIFY_SHARE * self.verify_seconds)
        if self.verify_requested:
            due = min(due, spaced)
        if self.verify_at is not None:
            due = min(due, max(spaced, self.verify_at))
        return due

    def failed(self, now: float, *, lock_busy: bool) -> float:
        """Note a failure; return the seconds until the next try."""
        self.failures += 1
        backed_off = min(self.sync_period, LONGEST_RETRY, FIRST_RETRY * 2 ** min(self.failures - 1, 10))
        delay = LOCK_RETRY if lock_busy else backed_off
        self.retry_at = now + delay
        return delay


class SyncLoop:
    """The thread of one engine. An exception that is not ours goes to ``on_crash``, which ends the daemon."""

    def __init__(
        self,
        engine: Engine,
        *,
        min_interval: float,
        sync_period: float,
        on_synced: Callable[[Outcome], None],
        on_crash: Callable[[BaseException], None],
        on_start: Callable[[bool], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make the loop; ``on_start`` is called before each sync and told whether it verifies."""
        self._engine = engine
        self._on_start = on_start
        self._on_synced = on_synced
        self._on_crash = on_crash
        self._clock = clock
        self._schedule = Schedule(min_interval, sync_period)
        self._condition = threading.Condition()
        self._reason = ""
        """Why a sync was asked for; "" if it was not."""
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"sync-{engine.family}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Let the thread end after the sync that is running; do not wait for it."""
        with self._condition:
            self._stopped = True
            self._condition.notify()

    def request(self, reason: str, *, verify: bool = False) -> None:
        """Ask for a sync, from any thread, or to ``verify``: that may have to wait a little."""
        with self._condition:
            if verify:
                self._schedule.verify_requested = True
            else:
                self._reason = self._reason or reason
                self._schedule.requested = True
            self._condition.notify()

    def set_periods(self, *, min_interval: float, sync_period: float) -> None:
        """Exchange the intervals (seconds)."""
        with self._condition:
            self._schedule.min_interval, self._schedule.sync_period = min_interval, sync_period
            self._condition.notify()

    @property
    def failures(self) -> int:
        """How many syncs failed in a row."""
        return self._schedule.failures

    def _run(self) -> None:
        try:
            while self._wait():
                self._once()
        except BaseException as exc:  # noqa: BLE001 - whatever it is, a daemon without this thread must not go on
            self._on_crash(exc)

    def _wait(self) -> bool:
        with self._condition:
            while not self._stopped:
                due = self._schedule.due()
                left = None if due is None else due - self._clock()
                if left is not None and left <= 0:
                    return True
                self._condition.wait(left)
            return False

    def _once(self) -> None:
        with self._condition:
            now = self._clock()
            unasked = "period" if self._schedule.is_periodic(now) else "drift"
            reason = self._reason or ("retry" if self._schedule.failures else unasked)
            self._reason = ""
            verify = self._schedule.starts(now)
        self._on_start(verify)
        try:
            outcome = self._engine.sync(reason, verify=verify)
        except PykubeproxyError as exc:
            busy = isinstance(exc, LockBusyError)
            with self._condition:
                delay = self._schedule.failed(self._clock(), lock_busy=busy)
            log.warning(
                "sync failed", family=self._engine.family, error=str(exc), failures=self.failures, retry_in=delay
            )
            return
        with self._condition:
            self._schedule.succeeded(self._clock(), outcome)
        if outcome is not None:
            self._on_synced(outcome)
