"""The proxy under test, as a program in the node, and what it does to the kernel seen from outside.

Its iptables-restore programs are reached through a folder of small scripts in front of PATH that note each call and
then become the real program: so "it wrote nothing" can be told from outside, on both backends.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from e2e.netlab.errors import LabError
from e2e.netlab.lab import Lab, wait_for
from e2e.netlab.namespace import Process

ROOT = Path(__file__).parents[2]
METRICS_PORT = 10249
_SYNCED = re.compile(
    r'^kubeproxy_sync_proxy_rules_last_timestamp_seconds\{ip_family="(IPv[46])"\} ([0-9.e+]+)', re.MULTILINE
)


class Proxy:
    """One proxy of a laboratory; it can be started and stopped many times.

    ``command`` is what to run in place of this project's daemon; it gets the same arguments.
    """

    def __init__(self, lab: Lab, manifests: Path, *, extra: Sequence[str] = (), command: Sequence[str] = ()) -> None:
        self._lab = lab
        self._command = list(command) or [sys.executable, "-m", "pykubeproxy"]
        self.arguments = [
            "--manifests", str(manifests),
            "--hostname-override", "node-a",
            "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48",
            "--healthz-bind-address", "127.0.0.1:10256",
            "--metrics-bind-address", f"127.0.0.1:{METRICS_PORT}",
            "--conntrack-max-per-core", "0",
            "--iptables-backend", lab.backend,
            *extra,
        ]  # fmt: skip
        self.log = lab.claim.folder / "proxy.log"
        self._calls = lab.claim.folder / "restore-calls"
        self._shims = lab.claim.folder / "shims"
        self._process: Process | None = None
        self._write_shims()

    @property
    def environment(self) -> dict[str, str]:
        """What is set for the proxy besides the laboratory's own environment."""
        return {
            "PATH": f"{self._shims}:{os.environ.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin')}",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
        }

    @property
    def pid(self) -> int:
        """Return the process id of the running proxy."""
        return self._running().pid

    def command_line(self) -> str:
        """Return what is run, as a person would type it."""
        return shlex.join([*self._command, *self.arguments])

    def start(self) -> None:
        """Start it. It has not synced when this returns."""
        argv = [*self._command, *self.arguments]
        self._process = self._lab.node.spawn(argv, log=self.log, env=self.environment)

    def wait_synced(self, timeout: float = 60.0) -> None:
        """Wait until its metrics tell of a sync in both families. LabError with its last words when it ends instead."""

        def has_synced() -> bool:
            self._check_alive()
            return len(self.synced()) == 2

        wait_for(has_synced, "the first sync of both families", timeout=timeout, interval=0.1)

    def synced(self) -> dict[str, float]:
        """Return the time of the last sync of each family that has had one."""
        told = self._lab.node.fetch("127.0.0.1", METRICS_PORT, "/metrics")
        return {family: float(time) for family, time in _SYNCED.findall(told.body) if float(time) > 0}

    def stop(self, number: int = signal.SIGTERM, timeout: float = 30.0) -> int:
        """Send a signal and wait for the end; return the exit status (negative: killed by that signal)."""
        process = self._running()
        process.signal(number)
        status = process.wait(timeout)
        if status is None:
            raise LabError(f"the proxy did not end within {timeout:g} s of signal {number}")
        self._process = None
        return status

    def run(self, *arguments: str) -> None:
        """Run it with other arguments to its end, as for ``--cleanup``. LabError when it fails."""
        argv = [*self._command, *arguments, "--iptables-backend", self._lab.backend]
        self._lab.node.run(argv, env=self.environment)

    def restore_calls(self) -> list[str]:
        """Return the command lines of all restores that it has run by now."""
        return self._calls.read_text().splitlines() if self._calls.exists() else []

    def last_words(self, lines: int = 12) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def _check_alive(self) -> None:
        if not self._running().running():
            raise LabError(f"the proxy has ended by itself:\n{self.last_words()}")

    def _running(self) -> Process:
        if self._process is None:
            raise LabError("the proxy is not running")
        return self._process

    def _write_shims(self) -> None:
        self._shims.mkdir()
        for name in ("iptables", "ip6tables"):
            for program in (f"{name}-restore", f"{name}-nft-restore", f"{name}-legacy-restore"):
                real = shutil.which(program)
                if real:
                    shim = self._shims / program
                    shim.write_text(f'#!/bin/sh\necho "{program} $*" >> {self._calls}\nexec {real} "$@"\n')
                    shim.chmod(0o755)
