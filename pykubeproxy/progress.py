"""Bars on a terminal for work that takes its time: the first sync of a big cluster, a clean-up, a benchmark.

It exists for the person who started the program by hand and wonders whether it hangs. Anywhere but on a terminal (in a
pod, in a pipe, in a test) it is silence, and what draws is not even loaded. It must not change what is done.

Threads: any; all bars of a process are drawn together.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

T = TypeVar("T")

WORTH = 1000
"""Work of less weight than this is not worth a bar."""


def over(
    items: Sequence[T], title: str, *, weigh: Callable[[T], int] = lambda _: WORTH, is_terminal: bool | None = None
) -> Iterator[T]:
    """Yield the items; draw a bar meanwhile if there is a terminal to see it and the weights add up to something."""
    if is_terminal is None:
        is_terminal = _is_terminal()
    weights = [weigh(item) for item in items] if is_terminal else []
    if sum(weights) < WORTH or not items:
        yield from items
        return
    # One piece alone is done or not: then the bar only moves to and fro.
    task = _BARS.begin(title, sum(weights) if len(items) > 1 else None)
    try:
        for item, weight in zip(items, weights, strict=True):
            yield item
            _BARS.advance(task, weight)
    finally:
        _BARS.end(task)


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
    except ValueError:  # closed
        return False


class _Bars:
    """The bars that are shown now. The drawing begins with the first and ends with the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._count = 0

    def begin(self, title: str, total: int | None) -> TaskID:
        """Show one more."""
        with self._lock:
            if self._progress is None:
                self._progress = _progress()
                self._progress.start()
            self._count += 1
            return self._progress.add_task(title, total=total)

    def advance(self, task: TaskID, weight: int) -> None:
        """Move one on."""
        with self._lock:
            if self._progress is not None:
                self._progress.advance(task, weight)

    def end(self, task: TaskID) -> None:
        """Take one away."""
        with self._lock:
            if self._progress is None:
                return
            self._progress.remove_task(task)
            self._count -= 1
            if not self._count:
                self._progress.stop()
                self._progress = None


_BARS = _Bars()

# Seen on white as on black; of rich's own styles what is still to do looks like what is done on white.
_DONE = "color(31)"
_STYLES = {
    "bar.back": "color(243)",
    "bar.complete": _DONE,
    "bar.finished": _DONE,
    "bar.pulse": _DONE,
    "progress.percentage": "default",
    "progress.elapsed": "default",
}


def _progress() -> Progress:
    from rich.console import Console  # noqa: PLC0415 - on a terminal only
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.theme import Theme  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True, theme=Theme(_STYLES)), transient=True)
