"""The one seam through which iptables programs are run. Tests and the fault bench pass another one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pykubeproxy.errors import EnvironmentProblem, NetfilterError


@dataclass(frozen=True, slots=True)
class Finished:
    """How a process ended: exit status (negative: killed by that signal), and what it printed, as bytes."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def complaint(self) -> str:
        """What it said on stderr, as one line."""
        return " ".join(self.stderr.decode("utf-8", "replace").split())


class Runner(Protocol):
    """Runs a program to its end."""

    def run(
        self,
        argv: list[str],
        stdin: bytes = b"",
        *,
        timeout: float = 30.0,
        on_start: Callable[[int], None] | None = None,
    ) -> Finished:
        """Run ``argv`` with ``stdin``; ``timeout`` is in seconds.

        ``on_start`` is told the process id before the program is given any input, so before it can write to the
        kernel: the drift watch knows our own writes by it.

        Raises:
            EnvironmentProblem: the program is not there.
            NetfilterError: it did not end in time (it is killed).

        """


class SubprocessRunner:
    """Runs real processes. Thread-safe."""

    def run(
        self,
        argv: list[str],
        stdin: bytes = b"",
        *,
        timeout: float = 30.0,
        on_start: Callable[[int], None] | None = None,
    ) -> Finished:
        """Run ``argv``; see Runner."""
        try:
            with subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "LC_ALL": "C"},
            ) as process:
                try:
                    if on_start is not None:
                        on_start(process.pid)
                    out, err = process.communicate(stdin, timeout=timeout)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()
                    raise NetfilterError(f"{argv[0]} did not end within {timeout:g} s and was killed") from None
                return Finished(process.returncode, out, err)
        except FileNotFoundError:
            raise EnvironmentProblem(f"{argv[0]} is not installed; install the iptables package") from None
        except PermissionError:
            raise EnvironmentProblem(f"{argv[0]} may not be run by this user") from None
