"""The one seam to other programs (kind, kubectl, docker): run one to its end, or keep one for a conversation."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from e2e.netlab import LabError


class Done(NamedTuple):
    """A program that has ended."""

    status: int
    stdout: str
    stderr: str


class Commands(Protocol):
    """Runs programs."""

    def run(self, argv: Sequence[str], *, stdin: str | None = None, timeout: float = 300.0) -> Done:
        """Run a program to its end."""

    def converse(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a program with pipes at its standard input and output."""

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return those programs that are not there."""


class Programs:
    """Runs real programs."""

    def run(self, argv: Sequence[str], *, stdin: str | None = None, timeout: float = 300.0) -> Done:
        """Run a program to its end."""
        try:
            done = subprocess.run(list(argv), input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
        except FileNotFoundError:
            return Done(127, "", f"{argv[0]} is not installed")
        except subprocess.TimeoutExpired:
            return Done(124, "", f"did not end within {timeout:g} s")
        return Done(done.returncode, done.stdout, done.stderr)

    def converse(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a program with pipes."""
        return subprocess.Popen(list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return those programs that are not there."""
        return [name for name in names if shutil.which(name) is None]


def must(commands: Commands, argv: Sequence[str], *, stdin: str | None = None, timeout: float = 300.0) -> str:
    """Run a program and return what it printed. Raises LabError when it fails."""
    done = commands.run(argv, stdin=stdin, timeout=timeout)
    if done.status:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-10:])
        raise LabError(f"{' '.join(argv)}: exit {done.status}: {last}")
    return done.stdout
