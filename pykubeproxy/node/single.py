"""One daemon for each network namespace: a second one would fight over the same chains and ports (k/k#107297).

The lock is the name of an abstract unix socket (unix(7)): it belongs to the network namespace, like the rules that it
stands for, so it works across containers on the host's network without a shared file, and the kernel lets it go however
the holder ends. Anybody in the namespace can take such a name, but only root may keep us from starting: whoever asks is
told the holder's process and user by the kernel (SO_PEERCRED).

What this module must not do: say anything over the socket, or look for other proxies.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import threading
from collections.abc import Iterator

import structlog

from pykubeproxy.errors import EnvironmentProblem

log = structlog.get_logger()

NAME = "\0pykubeproxy"
_CREDENTIALS = struct.Struct("=iII")
_PATIENCE = 2.0


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Hold the name while the block runs.

    Raises:
        EnvironmentProblem: a daemon of root's holds it.

    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as held:
        try:
            held.bind(NAME)
            held.listen(128)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise EnvironmentProblem(f"cannot make the lock that keeps a second daemon away: {error}") from error
            refuse(holder())
        else:
            threading.Thread(target=_answer, args=(held,), name="lock", daemon=True).start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)  # ends the thread's wait, which closing does not


def _answer(held: socket.socket) -> None:
    """Take what connects and close it, so that the next one can ask too; ends when the socket is shut."""
    with contextlib.suppress(OSError):
        while True:
            held.accept()[0].close()


def refuse(found: tuple[int, int] | None) -> None:
    """Raise unless the holder (pid, uid) is none that may keep us away."""
    if found is None or found[1] != 0:
        log.warning("lock not had", holder=found, consequence="going on; a second daemon would not be noticed")
        return
    raise EnvironmentProblem(
        f"another {described(found)} runs in this network namespace; stop it first, or remove the second DaemonSet"
    )


def described(found: tuple[int, int]) -> str:
    """Return the holder (pid, uid) in words."""
    return f"pykubeproxy ({f'process {found[0]}' if found[0] else 'a process of another container'})"


def holder() -> tuple[int, int] | None:
    """Return process id (0: not visible from here) and user id of who holds the name, None if nobody answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as asking:
        asking.settimeout(_PATIENCE)
        try:
            asking.connect(NAME)
            found = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return None
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return pid, uid
