"""Counts of what clients did, for tests that ask "how many lists?" and for tests that wait until something happened."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it came; ``verb`` is that of RBAC (list, watch, get, ...)."""

    verb: str
    resource: str
    method: str
    url: str
    status: int
    token: str
    user_agent: str


class Stats:
    """Thread-safe counters. ``requests`` counts by (verb, resource), ``answers`` by HTTP status."""

    def __init__(self, keep: int = 10_000) -> None:
        self._changed = threading.Condition(threading.RLock())
        self.requests: Counter[tuple[str, str]] = Counter()
        self.answers: Counter[int] = Counter()
        self.watches: Counter[str] = Counter()
        self.connections_open = 0
        self.connections_ever = 0
        self.seen: deque[Seen] = deque(maxlen=keep)

    def count(self, verb: str, resource: str = "") -> int:
        """Return how many requests of a verb came, for one resource or for all."""
        with self._changed:
            return sum(
                number
                for (each, what), number in self.requests.items()
                if each == verb and (not resource or what == resource)
            )

    def open_watches(self, resource: str = "") -> int:
        """Return how many watches are open, of one resource or of all."""
        with self._changed:
            return self.watches[resource] if resource else sum(self.watches.values())

    def wait(self, condition: Callable[[Stats], bool], timeout: float = 10.0) -> None:
        """Wait until ``condition(self)`` holds. Raises TimeoutError, naming the counts."""
        ends = time.monotonic() + timeout
        with self._changed:
            while not condition(self):
                left = ends - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"not seen within {timeout} s; so far: {self.as_json()}")
                self._changed.wait(left)

    def reset(self) -> None:
        """Forget the counts of requests; what is open stays counted."""
        with self._changed:
            self.requests.clear()
            self.answers.clear()
            self.seen.clear()
            self._changed.notify_all()

    def as_json(self) -> dict[str, object]:
        """Return the counts as a JSON value."""
        with self._changed:
            return {
                "requests": {f"{verb} {resource}".strip(): n for (verb, resource), n in sorted(self.requests.items())},
                "answers": {str(code): n for code, n in sorted(self.answers.items())},
                "watches": {resource: n for resource, n in sorted(self.watches.items()) if n},
                "connections": {"open": self.connections_open, "ever": self.connections_ever},
            }

    # Told by the edge

    def note(self, seen: Seen) -> None:
        """Count one request, at the moment its answer begins (or is withheld: status 0)."""
        with self._changed:
            self.requests[seen.verb, seen.resource] += 1
            self.answers[seen.status] += 1
            self.seen.append(seen)
            self._changed.notify_all()

    def note_watch(self, resource: str, step: int) -> None:
        """Count a watch that opened (1) or closed (-1)."""
        with self._changed:
            self.watches[resource] += step
            self._changed.notify_all()

    def note_connection(self, step: int) -> None:
        """Count a connection that opened (1) or closed (-1)."""
        with self._changed:
            self.connections_open += step
            self.connections_ever += step > 0
            self._changed.notify_all()
