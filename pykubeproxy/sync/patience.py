"""When to try again what was refused: after a pause that doubles with every refusal. Pure; the caller says the time."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Patience(Generic[K]):
    """Pauses by key. ``first`` and ``longest`` are seconds."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._pauses: dict[K, tuple[float, float]] = {}

    def refused(self, key: K, now: float) -> None:
        """Note a refusal: the next try waits twice as long as the last one did."""
        pause, due = self._pauses.get(key, (0.0, now))
        if now >= due:
            pause = min(self._longest, pause * 2 or self._first)
            self._pauses[key] = (pause, now + pause)

    def due(self, now: float) -> list[K]:
        """Return the keys that may be tried again."""
        return [key for key, (_, due) in self._pauses.items() if now >= due]

    def forget(self, key: K) -> None:
        """Forget a key; unknown ones are ignored."""
        self._pauses.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._pauses

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._pauses))
