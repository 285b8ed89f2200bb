"""Who owns which namespaces, and removing those whose owner is gone.

A laboratory is named by four letters; its namespaces are ``pkp-XXXX-…`` and its files lie in ``/run/pkp-lab/XXXX``. The
owner holds a lock on the file ``owner`` there, which the kernel lets go however the owner ends. A laboratory whose lock
can be had is stale. Namespaces without such a folder belong to somebody else and are never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
from pathlib import Path

from e2e.netlab.errors import LabError

STATE = Path("/run/pkp-lab")
_NETNS = Path("/run/netns")
_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"


class Claim:
    """A name of our own. Removing it removes every namespace that carries it."""

    def __init__(self) -> None:
        for _ in range(100):
            name = "".join(secrets.choice(_LETTERS) for _ in range(4))
            folder = STATE / name
            STATE.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                descriptor = _lock(folder)
                if descriptor is not None:
                    self.name, self.folder, self._descriptor = name, folder, descriptor
                    os.write(descriptor, f"{os.getpid()}\n".encode())
                    return
        raise LabError("no free name for a laboratory")

    def netns(self, suffix: str) -> str:
        """Return the name of a namespace of this laboratory."""
        return f"pkp-{self.name}-{suffix}"

    def release(self) -> None:
        """Remove all namespaces and files of this laboratory. Can be repeated."""
        if self._descriptor >= 0:
            _remove(self.name)
            os.close(self._descriptor)
            self._descriptor = -1


def _lock(folder: Path) -> int | None:
    try:
        descriptor = os.open(folder / "owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:  # swept between the making of the folder and this
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (folder / "owner").stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def namespaces_of(name: str) -> list[str]:
    """List the namespaces that a laboratory has now."""
    if not _NETNS.is_dir():
        return []
    return sorted(path.name for path in _NETNS.iterdir() if path.name.startswith(f"pkp-{name}-"))


def _remove(name: str) -> None:
    for netns in namespaces_of(name):
        remove_namespace(netns)
    shutil.rmtree(STATE / name, ignore_errors=True)


def remove_namespace(netns: str) -> None:
    """End whatever runs in a namespace of a laboratory and delete it."""
    listed = subprocess.run(["ip", "netns", "pids", netns], capture_output=True, text=True, check=False)
    for pid in listed.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "delete", netns], capture_output=True, check=False)


def sweep() -> list[str]:
    """Remove every laboratory whose owner is gone; return their names."""
    swept: list[str] = []
    for folder in sorted(STATE.iterdir()) if STATE.is_dir() else []:
        descriptor = _lock(folder)
        if descriptor is not None:
            _remove(folder.name)
            os.close(descriptor)
            swept.append(folder.name)
    return swept
