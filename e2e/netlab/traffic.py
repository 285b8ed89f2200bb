"""What came of traffic, as values with the questions that experiments ask of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """One attempt that was answered. ``latency`` is in ms, ``at`` a wall clock time, ``port`` the client's own port."""

    number: int
    pod: str
    source: str
    latency: float
    retransmits: int
    port: int
    at: float


class Failure(NamedTuple):
    """One attempt that was not; ``kind`` is refused, timeout, reset, unreachable, forbidden, closed, nonsense."""

    number: int
    kind: str
    latency: float
    at: float


@dataclass(slots=True)
class Traffic:
    """All that came of a number of attempts."""

    started: int = 0
    answers: list[Answer] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def take(self, report: dict[str, Any]) -> None:
        """Add what a report of the namespace's process tells."""
        self.started = report["started"]
        self.answers += [Answer(*entry) for entry in report["answers"]]
        self.failures += [Failure(*entry) for entry in report["failures"]]

    @property
    def pods(self) -> Counter[str]:
        """Count the answers of each pod."""
        return Counter(answer.pod for answer in self.answers)

    @property
    def sources(self) -> Counter[str]:
        """Count the source addresses that the pods saw."""
        return Counter(answer.source for answer in self.answers)

    @property
    def kinds(self) -> Counter[str]:
        """Count the failures by kind."""
        return Counter(failure.kind for failure in self.failures)

    @property
    def delayed(self) -> list[Answer]:
        """Give the answers for which a SYN had to be sent again: one was lost on the way."""
        return [answer for answer in self.answers if answer.retransmits]

    def verdict(self) -> str:
        """Say in one word how the attempts ended: answered, the one kind of failure, or mixed."""
        words = set(self.kinds) | ({"answered"} if self.answers else set())
        return words.pop() if len(words) == 1 else "mixed" if words else "nothing"
