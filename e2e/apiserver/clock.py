"""Time as an argument: the real one, and one that a test moves by hand.

The stand-in waits for minutes (bookmarks, watch timeouts); a test must not. Nothing here may know what is waited for.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import Protocol


class Handle(Protocol):
    """A call that was asked for and can be taken back."""

    def cancel(self) -> None:
        """Do not call after all."""


class Clock(Protocol):
    """Where the server reads the time and asks to be woken."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment."""

    def wall(self) -> dt.datetime:
        """Return the time of day, in UTC, for timestamps."""

    def call_at(self, when: float, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> Handle:
        """Run ``call`` in ``loop`` once ``monotonic()`` has reached ``when``."""


class RealClock:
    """The machine's own time."""

    def monotonic(self) -> float:
        """Return the machine's monotonic seconds."""
        return time.monotonic()

    def wall(self) -> dt.datetime:
        """Return the machine's time of day."""
        return dt.datetime.now(dt.UTC)

    def call_at(self, when: float, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> Handle:
        """Run ``call`` in ``loop`` at ``when``."""
        return loop.call_later(max(0.0, when - time.monotonic()), call)


class _Timer:
    """One waiting call of a ManualClock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self.loop = loop
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None

    def fire(self) -> None:
        """Run the call in the loop, unless it was taken back meanwhile."""
        if self.call is not None:
            self.call()


class ManualClock:
    """A clock that stands still until ``advance`` is called, from any thread.

    ``advance`` goes from one waiting call to the next, and after each waits until the event loop has nothing more to
    do: what the server sends at that moment has then been written to its sockets.
    """

    def __init__(self, start: dt.datetime | None = None) -> None:
        self._start = start or dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        self._now = 0.0
        self._lock = threading.RLock()
        self._added = threading.Condition(self._lock)
        self._waiting: list[tuple[float, int, _Timer]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        """Return the seconds advanced so far."""
        return self._now

    def wall(self) -> dt.datetime:
        """Return the start plus the seconds advanced so far."""
        return self._start + dt.timedelta(seconds=self._now)

    def call_at(self, when: float, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> Handle:
        """Remember ``call``; one that is due already runs at the loop's next turn."""
        timer = _Timer(loop, call)
        with self._lock:
            due = when <= self._now
            if not due:
                heapq.heappush(self._waiting, (when, next(self._order), timer))
                self._added.notify_all()
        if due:
            loop.call_soon_threadsafe(timer.fire)
        return timer

    def wait_for_waiting(self, count: int = 1, timeout: float = 10.0) -> None:
        """Wait, in real time, until ``count`` calls wait for this clock. Raises TimeoutError."""
        with self._added:
            if not self._added.wait_for(lambda: self._live() >= count, timeout):
                msg = f"{self._live()} calls wait for the clock, not {count}"
                raise TimeoutError(msg)

    def _live(self) -> int:
        return sum(timer.call is not None for _, _, timer in self._waiting)

    def advance(self, seconds: float) -> None:
        """Move on by ``seconds``, through every waiting call on the way, in order."""
        goal = self._now + seconds
        while True:
            with self._lock:
                due = bool(self._waiting) and self._waiting[0][0] <= goal
                if due:
                    self._now, _, timer = heapq.heappop(self._waiting)
                else:
                    self._now = goal
                    return
            if timer.call is not None:
                timer.loop.call_soon_threadsafe(timer.fire)
                settle(timer.loop)


def settle(loop: asyncio.AbstractEventLoop, turns: int = 10) -> None:
    """Wait, from another thread, until ``loop`` has gone round ``turns`` times."""
    done = threading.Event()

    def turn(left: int) -> None:
        if left:
            loop.call_soon(turn, left - 1)
        else:
            done.set()

    loop.call_soon_threadsafe(turn, turns)
    if not done.wait(10):
        msg = "the server's event loop does not turn"
        raise TimeoutError(msg)
