"""Notice that somebody else wrote to the kernel's rules. The common part of both backends.

A watch is a thread of its own that tells as soon as it notices a foreign writer (``notice``), and a question that the
engine asks before it believes its memory (``look``). The notice only saves time: nothing depends on it arriving,
because ``look`` is asked at each sync period too and is exact by itself.

Our own writes are told apart by the processes that make them, so every iptables program must be run through ``runner``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pykubeproxy.model.addresses import Family
from pykubeproxy.netfilter.process import Finished, Runner
from pykubeproxy.netfilter.suspects import EVERYTHING, Suspects

Notice = Callable[[Family], None]
"""Called from any thread when somebody else may have changed rules of this family. It must not block."""


class Watch(Protocol):
    """Notices foreign writers of one backend, for all families. Any thread may call any method."""

    def start(self) -> None:
        """Start the thread."""

    def stop(self) -> None:
        """End the thread, without waiting for it."""

    def look(self, family: Family) -> Suspects:
        """Return what others may have changed since the last look at this family."""

    def begins(self, run: object, argv: list[str], stdin: bytes) -> None:
        """Note that a program of ours is about to be run; ``run`` stands for it."""

    def started(self, run: object, pid: int) -> None:
        """Note its process id; it has not written to the kernel yet."""

    def ended(self, run: object) -> None:
        """Note that it has ended, or was never started."""


class NoWatch:
    """Notices nothing, so everything is suspected at every look."""

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def look(self, family: Family) -> Suspects:
        """Suspect everything."""
        del family
        return EVERYTHING

    def begins(self, run: object, argv: list[str], stdin: bytes) -> None:
        """Do nothing."""

    def started(self, run: object, pid: int) -> None:
        """Do nothing."""

    def ended(self, run: object) -> None:
        """Do nothing."""


class WatchedRunner:
    """Runs programs and tells a watch of each."""

    def __init__(self, inner: Runner, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    def run(
        self,
        argv: list[str],
        stdin: bytes = b"",
        *,
        timeout: float = 30.0,
        on_start: Callable[[int], None] | None = None,
    ) -> Finished:
        """Run ``argv``; see Runner."""
        run = object()

        def note(pid: int) -> None:
            self._watch.started(run, pid)
            if on_start is not None:
                on_start(pid)

        self._watch.begins(run, argv, stdin)
        try:
            return self._inner.run(argv, stdin, timeout=timeout, on_start=note)
        finally:
            self._watch.ended(run)
