"""When a file that people and programs change may be read: how long it must stay the same, and who has it open.

What is read too early is half a file, and half a file is often a valid one. It must not know what is in a file, nor
wait for it.
"""

from __future__ import annotations

import fcntl
import os
import signal
from dataclasses import dataclass

SETTLED = 1.0
"""Seconds for which a file that is written in place must stay the same before it is read, or a file must be gone."""
SETTLE_INTERVAL = 0.2
"""Seconds between two looks at a file while a change waits to be confirmed by the later one."""
OPEN_PATIENCE = 30.0
"""Seconds after which a file that stays the same is read although a program keeps it open for writing."""

Stamp = tuple[int, ...]
"""Tells one state of a file from another: device and inode first, mode last."""


@dataclass(slots=True)
class Settling:
    """How far the changes of one file are believed. Pure: times are monotonic seconds, passed in."""

    read: Stamp | None = None
    """Of the content that was read last, good or not."""
    seen: Stamp | None = None
    """At the last look, while it differs from ``read``."""
    due_at: float = 0.0
    """When ``seen`` is believed, if it is the same then."""
    late_at: float = 0.0
    """When it is believed although a program has the file open."""

    def has_settled(self, stamp: Stamp, now: float, *, pause: float = SETTLED) -> bool:
        """Take note of a changed file; tell whether it may be read.

        One written in place may when it has stayed the same for ``pause`` seconds, one renamed over it at the second
        look.
        """
        if stamp == self.seen:
            return now >= self.due_at
        is_replaced = self.seen is None and self.read is not None and stamp[:2] != self.read[:2]
        self.seen, self.due_at, self.late_at = stamp, now + (0.0 if is_replaced else pause), now + OPEN_PATIENCE
        return False

    def take(self, stamp: Stamp | None) -> None:
        """Note what was read; None: nothing, so that the next content counts as written in place."""
        self.read, self.seen = stamp, None


def stamp_of(file: str) -> Stamp:
    """Return the stamp of the file that a path leads to; raises OSError."""
    found = os.stat(file)  # noqa: PTH116 - follows the symlinks of a ConfigMap volume
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_mode


def is_being_written(file: str) -> bool:
    """Tell whether a program has a file open for writing; False where the kernel or the file system does not say.

    The kernel grants a read lease only on a file that nobody has open for writing (fcntl(2), "Leases").
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # Who opens it in between must not have us ended: the signal would be SIGIO, and SIGURG is ignored.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)  # and the lease ends
    return False
