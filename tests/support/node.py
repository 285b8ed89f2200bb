"""A node in a network namespace: the API stand-in and the daemon as a process, both inside it."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pyroute2 import netns

from e2e.apiserver import StandIn
from pykubeproxy.netfilter.read import SavedTable, parse

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


def inside(name: str, function: Callable[[], T]) -> T:
    """Run a function in a thread that has entered a network namespace; threads that it starts stay there."""
    answer: list[T] = []
    failure: list[BaseException] = []

    def enter() -> None:
        try:
            netns.setns(name)
            answer.append(function())
        except BaseException as exc:  # noqa: BLE001 - handed to the caller
            failure.append(exc)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return answer[0]


def eventually(condition: Callable[[], T], what: str, *, patience: float = PATIENCE, interval: float = 0.02) -> T:
    """Wait until a condition is true and return its value; fail with what was waited for."""
    limit = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > limit:
            raise AssertionError(f"not within {patience:g} s: {what}")
        time.sleep(interval)


class TestNode:
    """One node. Use ``node(...)``."""

    __test__ = False

    def __init__(self, name: str, folder: Path, backend: str) -> None:
        self.name = name
        self.folder = folder
        self.backend = backend
        self.api = StandIn(serves_faults=True)
        self.log = folder / "daemon.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.program: tuple[str, ...] = ("-m", "pykubeproxy")
        """What python is given; a test may put code of its own around the daemon."""
        inside(name, self.api.start)
        self.kubeconfig = self.api.write_kubeconfig(folder / "kubeconfig")

    # -- the daemon

    def arguments(self) -> list[str]:
        return [
            "--kubeconfig", str(self.kubeconfig), "--hostname-override", "node-a",
            "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48",
            "--conntrack-max-per-core", "0", "--iptables-backend", self.backend, "--iptables-min-sync-period", "10ms",
        ]  # fmt: skip

    def start(self, *extra: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        argv = ["ip", "netns", "exec", self.name, sys.executable, *self.program, *self.arguments(), *extra]
        environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "XTABLES_LOCKFILE": str(self.folder / "xtables.lock"),
            **(env or {}),
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, env=environ)
        return self.process

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(30)
        self.process = None
        return status

    def words(self) -> str:
        return self.log.read_text()[-4000:] if self.log.exists() else ""

    def get(self, port: int, path: str) -> tuple[int, str]:
        def ask() -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
            finally:
                connection.close()

        try:
            return inside(self.name, ask)
        except (OSError, http.client.HTTPException):
            return 0, ""

    def wait_ready(self) -> None:
        def is_ready() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.words()
            return self.get(10256, "/readyz")[0] == 200

        eventually(is_ready, f"ready\n{self.words()}")

    def metric(self, series: str) -> float:
        _, text = self.get(10249, "/metrics")
        return next(
            (float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(series + " ")), 0.0
        )

    # -- the kernel

    def run(self, *argv: str, stdin: str = "") -> str:
        env = {**os.environ, "XTABLES_LOCKFILE": str(self.folder / "xtables.lock")}
        done = subprocess.run(
            ["ip", "netns", "exec", self.name, *argv], input=stdin, capture_output=True, text=True, check=False, env=env
        )
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def save(self, family: str = "IPv4", table: str = "nat") -> str:
        stem = "ip6tables" if family == "IPv6" else "iptables"
        return self.run(f"{stem}-{self.backend}-save", "-t", table)

    def table(self, family: str = "IPv4", table: str = "nat") -> SavedTable:
        return parse(self.save(family, table)).get(table, SavedTable())


@contextlib.contextmanager
def node(backend: str) -> Iterator[TestNode]:
    """Make a node with one interface (10.0.0.11, fd00:10::11); nothing of it is left afterwards."""
    name = f"pkp-{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    made: TestNode | None = None
    try:
        batch = (
            "link set lo up\nlink add eth0 type veth peer name eth0p\nlink set eth0 up\nlink set eth0p up\n"
            "addr add 10.0.0.11/24 dev eth0\naddr add fd00:10::11/64 dev eth0 nodad\n"
        )
        subprocess.run(["ip", "-n", name, "-batch", "-"], input=batch, text=True, check=True)
        with tempfile.TemporaryDirectory() as folder:
            made = TestNode(name, Path(folder), backend)
            try:
                yield made
            finally:
                if made.process is not None:
                    made.process.kill()
                    made.process.wait()
                made.api.close()
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


# -- objects


def service(number: int, *, name: str = "", **spec: Any) -> dict[str, Any]:
    """Build a Service of one TCP port 80 named http, cluster IP 10.96.x.y."""
    address = f"10.96.{number // 250}.{number % 250 + 1}"
    ports = [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name or f"svc-{number}", "namespace": "default"},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address,
            "clusterIPs": [address],
            "ipFamilies": ["IPv4"],
            "ports": ports,
            **spec,
        },
    }


def endpoint_slice(number: int, addresses: list[str], *, name: str = "", **fields: Any) -> dict[str, Any]:
    """Build the EndpointSlice of ``service(number)``; all endpoints ready, on this node."""
    service_name = name or f"svc-{number}"
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service_name}-abcde",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": service_name},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [a], "conditions": {"ready": True}, "nodeName": "node-a"} for a in addresses],
        **fields,
    }


def pod(number: int, index: int) -> str:
    """Return the address of one pod of ``service(number)``."""
    serial = number * 5 + index
    return f"10.{244 + serial // 62500}.{serial // 250 % 250}.{serial % 250 + 1}"


def cluster(count: int, endpoints: int = 5) -> list[dict[str, Any]]:
    """Build ``count`` services with ``endpoints`` endpoints each, and the Node."""
    objects: list[dict[str, Any]] = [NODE]
    for number in range(count):
        objects.append(service(number))
        objects.append(endpoint_slice(number, [pod(number, i) for i in range(endpoints)]))
    return objects


NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-a", "labels": {"topology.kubernetes.io/zone": "z1"}},
    "status": {"addresses": [{"type": "InternalIP", "address": a} for a in ("10.0.0.11", "fd00:10::11")]},
}
