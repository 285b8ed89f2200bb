"""Do something inside a network namespace of this machine without leaving one's own: a thread enters it and ends."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_CLONE_NEWNET = 0x40000000


def inside(netns: str, function: Callable[[], T]) -> T:
    """Return what ``function`` returns in a thread that has entered the namespace; sockets made there stay there."""
    answer: list[T] = []
    trouble: list[BaseException] = []

    def enter() -> None:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            descriptor = os.open(f"/run/netns/{netns}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                if libc.setns(descriptor, _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"cannot enter {netns}")
            finally:
                os.close(descriptor)
            answer.append(function())
        except BaseException as problem:  # noqa: BLE001 - handed on
            trouble.append(problem)

    thread = threading.Thread(target=enter, name=f"inside {netns}")
    thread.start()
    thread.join()
    if trouble:
        raise trouble[0]
    return answer[0]
