"""Files that people name, read so that none can hang the reader or fill its memory.

It exists because a path may name anything: opening a pipe that nobody writes to waits for ever, and /dev/zero does not
end. It must not know what is in a file.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from collections.abc import Callable

LONGEST = 256 << 20
"""Bytes of the largest file that is read."""
PIPE_PATIENCE = 10.0
"""Seconds that a named pipe waits for a program to open its other end. One that has opened it may take its time."""
_CHUNK = 1 << 20

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "folder"),
    (stat.S_ISFIFO, "pipe"),
    (stat.S_ISSOCK, "socket"),
)


def read(path: str | os.PathLike[str], *, regular_only: bool = False, longest: int = LONGEST) -> bytes:
    """Return what is in a file; of a pipe or a device, what it has until it ends, unless ``regular_only``.

    Raises OSError, whose ``strerror`` tells the reason, also for what is longer than ``longest`` bytes.
    """
    # Without O_NONBLOCK the opening of a pipe waits for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if regular_only and not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"is no regular file but a {_kind(mode)}, and is not read", path)
        data = _drain(descriptor, longest, path)
    finally:
        os.close(descriptor)
    if len(data) > longest:
        raise OSError(errno.EFBIG, f"is longer than {longest >> 20} MiB", path)
    return data


def _kind(mode: int) -> str:
    return next((word for is_one, word in _KINDS if is_one(mode)), "device")


def _drain(descriptor: int, longest: int, path: str | os.PathLike[str]) -> bytes:
    """Read to the end, or just beyond ``longest``."""
    found = bytearray()
    late_at = time.monotonic() + PIPE_PATIENCE
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while len(found) <= longest:
        # A pipe that nobody has opened for writing yet reads as ended, but does not say that it was hung up.
        is_ready = bool(poll.poll(100))
        try:
            chunk = os.read(descriptor, min(_CHUNK, longest + 1 - len(found)))
        except BlockingIOError:
            continue
        found += chunk
        if chunk:
            continue
        if is_ready:
            break
        if time.monotonic() >= late_at:
            raise OSError(errno.ETIMEDOUT, f"is a pipe into which nobody writes ({PIPE_PATIENCE:.0f} s)", path)
    return bytes(found)
