"""Apply restore inputs, and tell what a failure means."""

from __future__ import annotations

import re

from pykubeproxy.errors import EnvironmentProblem, KilledError, LockBusyError, RestoreError
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.process import Finished, Runner

_LINE = re.compile(r"line:? (\d+)")
LOCK_BUSY_STATUS = 4
"""RESOURCE_PROBLEM: iptables-legacy-restore's exit status when another program holds the lock (and other trouble)."""

SECONDS_PER_LINE = 0.002
"""Allowance for the time-out, ten times what was measured for inputs of batch size."""

MOST_WORDS = 300
"""iptables-nft-restore complains of each line of an input."""
_OTHER_HOOK = "CHAIN_ADD failed (Operation not supported)"


def restore(backend: Backend, runner: Runner, document: str) -> None:
    """Apply one input.

    Raises:
        LockBusyError: another program holds the xtables lock; nothing was done.
        EnvironmentProblem: no rights, or no such program.
        RestoreError: the input was refused. What of it was applied is unknown: a table at a time is atomic, an input
        is not. KilledError: somebody killed it. NetfilterError: it did not end in time.

    """
    limit = 60.0 + SECONDS_PER_LINE * document.count("\n")
    finished = runner.run(backend.restore(), document.encode(), timeout=limit)
    if finished.status != 0:
        raise failure(finished, document)


def failure(finished: Finished, document: str) -> Exception:
    """Return the exception that says what went wrong."""
    complaint = finished.complaint
    if "can't open lock file" in complaint:
        return EnvironmentProblem(
            f"iptables cannot open its lock file: {complaint}; it must be the host's own file, writable, "
            "in a pod a hostPath of type FileOrCreate (without the type, a missing file becomes a directory)"
        )
    if "xtables lock" in complaint or "Another app is currently holding" in complaint:
        return LockBusyError(f"another program holds the xtables lock ({complaint})")
    if "Permission denied" in complaint or "you must be root" in complaint or "Operation not permitted" in complaint:
        return EnvironmentProblem(
            f"iptables may not write: {complaint[:MOST_WORDS]}; run as root with CAP_NET_ADMIN and CAP_NET_RAW "
            "(as root: does 'nft list ruleset' show the table with 'flags owner', so that it is another program's?)"
        )
    if _OTHER_HOOK in complaint:
        return EnvironmentProblem(
            f"iptables cannot use a chain: {complaint[:MOST_WORDS]}; somebody made a base chain of that name with "
            "another hook or priority than iptables gives it, as 'nft list chains' shows; it works once that is deleted"
        )
    if finished.status < 0:
        # Neither taken nor refused: nothing is said about what was in it.
        return KilledError(f"iptables-restore was killed by signal {-finished.status}")
    match = _LINE.search(complaint)
    line = int(match[1]) if match else None
    message = f"iptables-restore failed with status {finished.status}: {complaint or 'no word of why'}"
    return RestoreError(message, status=finished.status, stderr=complaint, document=document, line=line)


def around(document: str, line: int | None, margin: int = 3) -> list[str]:
    """Return the lines around the refused one, each with its number; the first ones when no line is known."""
    lines = document.splitlines()
    start, end = (0, 2 * margin + 1) if line is None else (max(0, line - 1 - margin), line + margin)
    return [f"{number}: {text}" for number, text in enumerate(lines[start:end], start + 1)]
