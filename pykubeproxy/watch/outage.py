"""How long to wait after failures that follow each other, and when to speak of them. Pure: time is an argument.

An operator who looks in the middle of the night must see in the last lines that the API server is still away, since
when and how often it was tried; a night of failures must not fill the log either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

REMINDERS = (60.0, 300.0, 600.0, 1800.0)
"""Seconds after the first failure at which a lasting one is told again; after the last, once in each such time."""
MOST_REASONS = 16
"""Different reasons of one outage that are told as they come: one that has a number in it could go on for ever."""


class Backoff:
    """How long to wait after the n-th failure: exponential, half of it at random, to a ceiling."""

    def __init__(self, random: Callable[[], float], *, first: float = 1.0, ceiling: float = 30.0) -> None:
        self._random = random
        self._first = first
        self._ceiling = ceiling
        self.failures = 0

    def next(self) -> float:
        """Count a failure and return the seconds to wait."""
        full = min(self._ceiling, self._first * 2.0 ** min(self.failures, 16))
        self.failures += 1
        return full * (0.5 + 0.5 * self._random())

    def reset(self) -> None:
        """Forget the failures."""
        self.failures = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """An outage that is over."""

    failures: int
    lasted: float


class Outage:
    """Failures in a row, from the first to the next success."""

    def __init__(self) -> None:
        self._began_at: float | None = None
        self._told: set[str] = set()
        self._reminders = 0
        self.failures = 0

    def lasted(self, now: float) -> float:
        """Return the seconds since the first failure."""
        return 0.0 if self._began_at is None else now - self._began_at

    def fail(self, reason: str, now: float) -> bool:
        """Take note of a failure; tell whether to speak of it: its reason is new, or it is time to remind."""
        if self._began_at is None:
            self._began_at = now
        self.failures += 1
        is_news = reason not in self._told and len(self._told) < MOST_REASONS
        if is_news:
            self._told.add(reason)
        lasted = now - self._began_at
        is_due = False
        while lasted >= self._next_reminder():
            self._reminders += 1
            is_due = True
        return is_news or is_due

    def end(self, now: float) -> Ended | None:
        """Forget everything; return what is over, None if nothing was."""
        if self._began_at is None:
            return None
        over = Ended(self.failures, now - self._began_at)
        self._began_at = None
        self._told.clear()
        self._reminders = self.failures = 0
        return over

    def _next_reminder(self) -> float:
        beyond = self._reminders - len(REMINDERS) + 1
        return REMINDERS[self._reminders] if beyond <= 0 else REMINDERS[-1] * (beyond + 1)
