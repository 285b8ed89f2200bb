"""Which iptables: legacy or nft, found out as the iptables-wrappers of kube-proxy's image do.

The choice matters because the two write to different parts of the kernel: rules in the one are invisible to the tools
of the other. Whoever was there first (kubelet leaves a hint chain) decides.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import Literal

from pykubeproxy.errors import EnvironmentProblem, NetfilterError
from pykubeproxy.model.addresses import Family
from pykubeproxy.netfilter.process import Runner

Kind = Literal["legacy", "nft"]
KINDS: tuple[Kind, ...] = ("nft", "legacy")
LOCK_WAIT = 5
"""Seconds that iptables waits for the xtables lock (legacy only; nft has none)."""
OLDEST = (1, 8, 4)
"""iptables before this misreports existing rules with nft (1.8.0 to 1.8.2) and lacks what the hint detection needs."""
_HINTS = re.compile(rb"^:(KUBE-IPTABLES-HINT|KUBE-KUBELET-CANARY) ", re.MULTILINE)
_RULES = re.compile(rb"^-", re.MULTILINE)
_VERSION = re.compile(r"v(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class Backend:
    """One variant of iptables for one IP family, and how its programs are called."""

    kind: Kind
    family: Family
    version: tuple[int, int, int] = (1, 8, 9)

    @property
    def _stem(self) -> str:
        return ("ip6tables-" if self.family == "IPv6" else "iptables-") + self.kind

    def restore(self) -> list[str]:
        """Return the command that applies an input without flushing what it does not name."""
        return [f"{self._stem}-restore", *self._wait, "--noflush"]

    def save(self, table: str) -> list[str]:
        """Return the command that prints one table."""
        return [f"{self._stem}-save", "-t", table]

    def save_all(self) -> list[str]:
        """Return the command that prints all tables."""
        return [f"{self._stem}-save"]

    def save_counters(self, table: str) -> list[str]:
        """Return the command that prints one table with its counters."""
        return [f"{self._stem}-save", "-c", "-t", table]

    def tool(self, table: str, *args: str) -> list[str]:
        """Return a command of the plain tool."""
        return [self._stem, *self._wait, "-t", table, *args]

    @property
    def _wait(self) -> list[str]:
        return ["-w", str(LOCK_WAIT)] if self.kind == "legacy" else []


@dataclass(frozen=True, slots=True)
class Choice:
    """The backend kind and the reason in words, for the log."""

    kind: Kind
    reason: str


def choose(wanted: str, runner: Runner) -> Choice:
    """Choose the backend kind; ``wanted`` is ``auto``, ``legacy`` or ``nft``.

    Raises:
        EnvironmentProblem: no iptables, or not the wanted one.

    """
    there = [kind for kind in KINDS if shutil.which(f"iptables-{kind}-restore")]
    if not there:
        raise EnvironmentProblem(
            "no iptables found: install the iptables package (1.8.4 or newer, with -nft or -legacy programs)"
        )
    if wanted != "auto":
        if wanted not in there:
            raise EnvironmentProblem(
                f"iptables-{wanted}-restore is not installed, but --iptables-backend={wanted} asks for it"
            )
        return Choice("nft" if wanted == "nft" else "legacy", "asked for by --iptables-backend")
    if len(there) == 1:
        return Choice(there[0], "the only one installed")
    if _HINTS.search(_saved("nft", runner, "-t", "mangle")):
        return Choice("nft", "kubelet's hint chain is in the nft mangle table")
    legacy = _saved("legacy", runner)
    if _HINTS.search(legacy):
        return Choice("legacy", "kubelet's hint chain is in the legacy tables")
    legacy_rules, nft_rules = len(_RULES.findall(legacy)), len(_RULES.findall(_saved("nft", runner)))
    if legacy_rules > nft_rules:
        why = f"more rules stand in the legacy tables ({legacy_rules:,}) than in those of nft ({nft_rules:,})"
        return Choice("legacy", f"kubelet has left no hint, and {why}")
    why = f"no more rules stand in the legacy tables ({legacy_rules:,}) than in those of nft ({nft_rules:,})"
    return Choice("nft", f"kubelet has left no hint, and {why}")


def version(kind: Kind, runner: Runner) -> tuple[int, int, int]:
    """Return the version of iptables.

    Raises:
        EnvironmentProblem: it cannot be told, or is older than what is needed.

    """
    text = runner.run([f"iptables-{kind}", "--version"]).stdout.decode("utf-8", "replace")
    match = _VERSION.search(text)
    if match is None:
        raise EnvironmentProblem(f"iptables-{kind} --version printed {text.strip()!r}, which holds no version")
    found = (int(match[1]), int(match[2]), int(match[3] or 0))
    if found < OLDEST:
        raise EnvironmentProblem(f"iptables {'.'.join(map(str, found))} is too old; 1.8.4 is needed")
    return found


def _saved(kind: Kind, runner: Runner, *args: str) -> bytes:
    """Return what both families' save programs print; trouble counts as nothing, as in iptables-wrappers."""
    found = b""
    for stem in ("iptables", "ip6tables"):
        try:
            found += runner.run([f"{stem}-{kind}-save", *args], timeout=10.0).stdout
        except (NetfilterError, EnvironmentProblem):
            continue
    return found
