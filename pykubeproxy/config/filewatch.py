"""Learn from the kernel that a file may have changed, through symbolic links, or learn nothing and be asked again.

A ConfigMap volume never writes to the file: kubelet renames a new ``..data`` link over the old one. So every link on
the way to the file is watched in its folder, besides the file itself. Whether the content has really changed is not
decided here.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import threading
from collections import defaultdict
from pathlib import Path
from typing import Protocol

_IN_MODIFY = 0x002
_IN_ATTRIB = 0x004
_IN_CLOSE_WRITE = 0x008
_IN_MOVED_FROM = 0x040
_IN_MOVED_TO = 0x080
_IN_CREATE = 0x100
_IN_DELETE = 0x200
_IN_DELETE_SELF = 0x400
_IN_MOVE_SELF = 0x800
_IN_Q_OVERFLOW = 0x4000
_IN_IGNORED = 0x8000

_SELF = _IN_MODIFY | _IN_ATTRIB | _IN_CLOSE_WRITE | _IN_DELETE_SELF | _IN_MOVE_SELF
_FOLDER = _IN_MODIFY | _IN_CLOSE_WRITE | _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE | _IN_DELETE_SELF
_EVENT = struct.Struct("iIII")
_LINK_LIMIT = 40  # MAXSYMLINKS, include/linux/namei.h


class FileNotifier(Protocol):
    """Tells when a file may have changed. One thread watches and waits; `wake` may come from any."""

    interval: float
    """Seconds after which the file is worth a look although nothing was told."""

    def watch(self, path: str) -> None:
        """Watch this path and no other. Raises OSError where the kernel has no room for it."""

    def wait(self, timeout: float) -> bool:
        """Wait until something happens (True), ``timeout`` seconds pass, or `wake` is called (False)."""

    def wake(self) -> None:
        """End the current or next wait."""

    def close(self) -> None:
        """Give everything back."""


def trail(path: str) -> tuple[list[tuple[str, str]], str]:
    """Follow a path's links: (folder, name) of each link on the way and of the file, and where the file lies."""
    steps: list[tuple[str, str]] = []
    pending = [*reversed((Path.cwd() / path).parts[1:])]
    folder = Path("/")
    while pending:
        name = pending.pop()
        if name == "..":
            folder = folder.parent
            continue
        try:
            target = (folder / name).readlink() if len(steps) < _LINK_LIMIT else None
        except OSError:
            target = None
        if target or not pending:
            steps.append((str(folder), name))
        if target is None:
            folder /= name
        elif target.is_absolute():
            folder = Path("/")
            pending += reversed(target.parts[1:])
        else:
            pending += reversed(target.parts)
    return steps, str(folder)


class PollingNotifier:
    """Knows nothing: every wait ends by its timeout."""

    def __init__(self, interval: float = 5.0) -> None:
        self.interval = interval
        self._woken = threading.Event()

    def watch(self, path: str) -> None:
        """Do nothing."""

    def wait(self, timeout: float) -> bool:
        """Wait for ``timeout`` seconds or `wake`."""
        if self._woken.wait(timeout):
            self._woken.clear()
        return False

    def wake(self) -> None:
        """End the current or next wait."""
        self._woken.set()

    def close(self) -> None:
        """Do nothing."""


class InotifyNotifier:
    """inotify by libc. Raises OSError when the kernel refuses an instance (fs.inotify.max_user_instances).

    It still asks for a look every minute: a network file system or a bind mount may tell nothing.
    """

    def __init__(self, interval: float = 60.0) -> None:
        self.interval = interval
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._watched: dict[int, frozenset[str] | None] = {}
        self._poll = select.poll()
        self._poll.register(self._inotify, select.POLLIN)
        self._poll.register(self._waker, select.POLLIN)

    def watch(self, path: str) -> None:
        """Watch the file and the folder of every link on the way to it."""
        steps, file = trail(path)
        names: dict[str, set[str]] = defaultdict(set)
        for folder, name in steps:
            names[folder].add(name)
        fresh: dict[int, frozenset[str] | None] = {}
        for folder, interesting in names.items():
            self._add(fresh, folder, _FOLDER, frozenset(interesting))
        self._add(fresh, file, _SELF, None)
        for stale in self._watched.keys() - fresh.keys():
            self._libc.inotify_rm_watch(self._inotify, stale)  # fails when the kernel has done it already
        self._watched = fresh

    def wait(self, timeout: float) -> bool:
        """Wait for an event that concerns the watched path, ``timeout`` seconds, or `wake`."""
        ready = {descriptor for descriptor, _ in self._poll.poll(timeout * 1000)}
        if self._waker in ready:
            os.eventfd_read(self._waker)
            return False
        return self._inotify in ready and self._drain()

    def wake(self) -> None:
        """End the current or next wait."""
        os.eventfd_write(self._waker, 1)

    def close(self) -> None:
        """Close both descriptors."""
        os.close(self._inotify)
        os.close(self._waker)

    def _add(self, fresh: dict[int, frozenset[str] | None], path: str, mask: int, names: frozenset[str] | None) -> None:
        try:
            watch = self._checked(self._libc.inotify_add_watch(self._inotify, os.fsencode(path), mask))
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.ENOMEM}:
                raise
            return  # not there now, or not for us to read: the look once a minute remains
        fresh[watch] = names

    def _drain(self) -> bool:
        """Read all events; tell whether one of them concerns the watched path."""
        concerns = False
        while True:
            try:
                data = os.read(self._inotify, 65536)
            except BlockingIOError:
                return concerns
            offset = 0
            while offset < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, offset)
                offset += _EVENT.size
                name = os.fsdecode(data[offset : offset + length].rstrip(b"\0"))
                offset += length
                concerns = concerns or self._concerns(watch, mask, name)

    def _concerns(self, watch: int, mask: int, name: str) -> bool:
        if mask & _IN_Q_OVERFLOW:
            return True
        if watch not in self._watched:
            return False
        names = self._watched[watch]
        return names is None or not name or name in names

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result
