"""Threads that make answers, so that the event loop does not have to wait for them.

concurrent.futures is not used: the interpreter waits for its threads before it ends, so that a page in the making held
up the end of the daemon. These are left alone: at the end nobody can take their answers any more.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class Job:
    """One call that waits for a thread, or has been given one."""

    __slots__ = ("_workers", "call")

    def __init__(self, workers: Workers, call: Callable[[], None]) -> None:
        self._workers = workers
        self.call = call

    def cancel(self) -> bool:
        """Take it back; False if it has begun already."""
        return self._workers.withdraw(self)


class Workers:
    """A few threads, started when first needed, and a queue of bounded length. Threads: all methods, any."""

    def __init__(self, name: str, threads: int, *, max_waiting: int) -> None:
        self._name = name
        self._threads = threads
        self._max_waiting = max_waiting
        self._started = 0
        self._idle = 0
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._is_stopped = False

    def submit(self, call: Callable[[], None]) -> Job | None:
        """Have a call made, which must not raise; None if too many wait already."""
        with self._changed:
            if self._is_stopped or len(self._waiting) >= self._max_waiting:
                return None
            job = Job(self, call)
            self._waiting.append(job)
            if len(self._waiting) > self._idle and self._started < self._threads:
                self._started += 1
                threading.Thread(target=self._run, name=f"{self._name}-{self._started}", daemon=True).start()
            self._changed.notify()
            return job

    def withdraw(self, job: Job) -> bool:
        """Take back a job; False if it has begun already."""
        with self._changed:
            if job not in self._waiting:
                return False
            self._waiting.remove(job)
            return True

    def stop(self) -> None:
        """Begin nothing more. What is being done goes on, and is not waited for."""
        with self._changed:
            self._is_stopped = True
            self._waiting.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._waiting or self._is_stopped)
                self._idle -= 1
                if self._is_stopped:
                    return
                job = self._waiting.popleft()
            job.call()
