"""The room in which one measurement happens: a laboratory's node, an API server in it, and one proxy at a time.

The remote node of the laboratory answers for every endpoint address, so that any service can be connected to.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from e2e.bench import clusters
from e2e.bench.clusters import Cluster
from e2e.bench.contestants import ROOT, Backend, Contestant
from e2e.bench.kernel import Legacy, Nft
from e2e.bench.load import Api
from e2e.netlab import Lab, LabError, Process, wait_for
from e2e.netlab.wiring import REMOTE_IP

API_PORT = 18080


class Running:
    """One started proxy."""

    def __init__(self, process: Process, started: float) -> None:
        self._process = process
        self.started = started
        """Monotonic time just before the process was started."""

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    def check(self) -> None:
        """Raise LabError when it has ended."""
        if not self._process.running():
            raise LabError(f"the proxy ended: {self.log()[-2000:]}")

    def log(self) -> str:
        """Return what it wrote."""
        return self._process.output()

    def stop(self) -> None:
        """End it and wait."""
        with contextlib.suppress(LabError):
            self._process.signal(signal.SIGTERM)
        if self._process.wait(60) is None:
            self._process.signal(signal.SIGKILL)
            self._process.wait(10)


class Room:
    """A context manager. ``cluster``'s objects are there from the start."""

    def __init__(self, backend: Backend, cluster: Cluster) -> None:
        self.backend: Backend = backend
        self.cluster = cluster
        self._stack = contextlib.ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.lab = stack.enter_context(Lab(backend=self.backend))
            self.folder: Path = self.lab.claim.folder
            self.netns = self.lab.node.netns
            self._answer_for_all()
            stack.callback(self._serve())
            self.kernel: Nft | Legacy = Nft(self.netns) if self.backend == "nft" else Legacy(self.netns)
            stack.callback(self.kernel.close)
            self.api = Api(self.netns, API_PORT)
            stack.callback(self.api.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start(self, contestant: Contestant, *, notes: Path | None = None) -> Running:
        """Start a proxy; it has not synced when this returns."""
        self._count += 1
        command = contestant.command(self.folder, self.kubeconfig, self.backend)
        environment = contestant.environment(self.folder, self.backend, notes=notes)
        log = self.folder / f"{contestant.name}-{self._count}.log"
        started = time.monotonic()
        return Running(self.lab.node.spawn(command, log=log, env=environment), started)

    def flush(self) -> None:
        """Take away all rules."""
        if self.backend == "nft":
            self._run("nft", "flush", "ruleset")
            return
        for stem in ("iptables", "ip6tables"):
            for table in ("nat", "filter", "mangle"):
                self._run(f"{stem}-legacy", "-w", "60", "-t", table, "-F")
                self._run(f"{stem}-legacy", "-w", "60", "-t", table, "-X")

    def save(self, table: str = "nat") -> str:
        """Return iptables-save's text of a table."""
        return self._run(f"iptables-{self.backend}-save", "-t", table)

    def _run(self, *argv: str) -> str:
        done = subprocess.run(
            ["ip", "netns", "exec", self.netns, *argv],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "XTABLES_LOCKFILE": str(self.folder / "xtables.lock")},
        )
        if done.returncode:
            raise LabError(f"{' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def _answer_for_all(self) -> None:
        self.lab.remote.run(["ip", "route", "add", "local", clusters.POD_CIDR, "dev", "lo"])
        self.lab.node.run(["ip", "route", "add", clusters.POD_CIDR, "via", REMOTE_IP])

    def _serve(self) -> object:
        objects = self.folder / "objects.json"
        objects.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": list(self.cluster.objects())}))
        self.kubeconfig = self.folder / "kubeconfig"
        command = [sys.executable, "-m", "e2e.apiserver", "--port", str(API_PORT), "--faults"]
        command += ["--objects", str(objects), "--kubeconfig", str(self.kubeconfig)]
        server = self.lab.node.spawn(command, env={"PYTHONPATH": str(ROOT)}, log=self.folder / "apiserver.log")

        def is_up() -> bool:
            if not server.running():
                raise LabError(f"the API server ended: {server.output()[-2000:]}")
            return "http" in server.output()

        wait_for(is_up, "the API server", timeout=120, interval=0.1)
        return server.signal
