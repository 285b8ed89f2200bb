"""Begin to list while the rest of the daemon is still being made: a start waits for programs and for the server anyway.

``Ahead`` does something in a thread whose result is asked for later; ``Gate`` and ``Gated`` hold back what is listed
until there is somebody to take it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pykubeproxy.watch.source import Handler

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Failure:
    problem: BaseException


class Ahead(Generic[T]):
    """Calls a function in a thread of its own, at once."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._answers: queue.SimpleQueue[T | _Failure] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="ahead", daemon=True).start()

    def result(self) -> T:
        """Wait for it, once; return what it returned, or raise what it raised."""
        answer = self._answers.get()
        if isinstance(answer, _Failure):
            raise answer.problem
        return answer

    def _run(self) -> None:
        try:
            self._answers.put(self._function())
        except BaseException as problem:  # noqa: BLE001 - raised where the result is asked for
            self._answers.put(_Failure(problem))


class Gate:
    """Lets objects through once it is open. Closed, it drops them: the daemon ends."""

    def __init__(self) -> None:
        self._is_decided = threading.Event()
        self._is_open = False

    def open(self) -> None:
        """Let everything through, from now on."""
        self._is_open = True
        self._is_decided.set()

    def close(self) -> None:
        """Drop what comes, and what waits."""
        self._is_open = False
        self._is_decided.set()

    def is_passed(self) -> bool:
        """Wait until it is open or closed; tell which."""
        self._is_decided.wait()
        return self._is_open


class Gated:
    """A handler behind a gate."""

    def __init__(self, handler: Handler[Any], gate: Gate) -> None:
        self._handler = handler
        self._gate = gate

    def replace(self, objects: Sequence[Any]) -> None:
        """Take a whole list."""
        if self._gate.is_passed():
            self._handler.replace(objects)

    def upsert(self, obj: Any) -> None:
        """Take one object."""
        if self._gate.is_passed():
            self._handler.upsert(obj)

    def delete(self, namespace: str, name: str) -> None:
        """Forget one object."""
        if self._gate.is_passed():
            self._handler.delete(namespace, name)
