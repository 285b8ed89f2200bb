"""The laboratory of the fault bench: a node with the daemon, an API server on the remote node, pods, and traffic.

The API server stands in the remote node's namespace, so that what happens to its connections happens on a real wire,
and so that the node's netfilter is touched by nobody but the daemon. Every connection of the traffic is answered as
long as the rules are right: one that fails, or needs a second SYN, is a connection lost.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from pyroute2 import netns

from e2e.apiserver import StandIn, write_kubeconfig
from e2e.faults.seam import Seam
from e2e.faults.truth import Lost, lost
from e2e.netlab import Backend, Lab, LabError, Process, Traffic, wait_for
from e2e.netlab.wiring import NODE_INNER_IP, NODE_IP, REMOTE_IP

T = TypeVar("T")
Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
STEADY, NODE_PORT = "10.96.0.10", 30080
PODS = {"p1": "10.244.2.11", "p2": "10.244.2.12"}
BACKGROUND = 30
"""Services besides the steady one, so that a plan has several owners."""


class Scene:
    """The whole of it; a context manager."""

    def __init__(self, backend: Backend, *, background: int = BACKGROUND, interval: float = 0.01) -> None:
        self.backend: Backend = backend
        self.lab = Lab(backend=backend)
        self.interval = interval
        self._background = background
        self._probes = 0
        self._process: Process | None = None
        self._stack = contextlib.ExitStack()
        self.program: tuple[str, ...] = ("-m", "pykubeproxy")
        """What python is given: code of a bench's own may stand around the daemon."""
        self.left_out: set[str] = set()
        """Services that are rightly not in the kernel."""
        self.has_comments = True
        """Whether the kernel has the comment match."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            lab = stack.enter_context(self.lab)
            for name, ip in PODS.items():
                lab.add_pod(name, ip, http=[8080])
            self.curl = lab.add_pod("curl", "10.244.2.50", http=[])
            self.seam = Seam(lab.claim.folder / "seam")
            self.log = lab.claim.folder / "daemon.log"
            self.token = lab.claim.folder / "token"
            self.kubeconfig = lab.claim.folder / "kubeconfig"
            self.api = StandIn(host=REMOTE_IP, tokens=["first"], tls=True)
            self.token.write_text("first")
            inside(lab.remote.netns, self.api.start)
            stack.callback(self.api.close)
            self.write_kubeconfig()
            self.api.bulk_put([NODE, *self._first_objects()])
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # The API server

    def write_kubeconfig(self) -> None:
        """Write the daemon's kubeconfig anew, as after a new CA."""
        assert self.api.ca_path is not None
        fresh, ca = self.kubeconfig.with_suffix(".new"), self.kubeconfig.with_name("ca.crt")
        ca.write_bytes(self.api.ca_path.read_bytes())
        write_kubeconfig(fresh, self.api.url, token_file=self.token, ca=ca)
        fresh.replace(self.kubeconfig)

    def break_connections(self) -> None:
        """Let the connections that are open now die without a word; new ones work."""
        shown = self.lab.remote.run(["ss", "-tnH", "state", "established", f"( sport = :{self.api.port} )"]).stdout
        ports = re.findall(rf"{re.escape(NODE_INNER_IP)}\]?:(\d+)", shown)
        if not ports:
            raise LabError(f"no connection to break: {shown}")
        for port in ports:
            self.lab.remote.run(["iptables-nft", "-A", "INPUT", "-p", "tcp", "--sport", port, "-j", "DROP"])
            self.lab.remote.run(["iptables-nft", "-A", "OUTPUT", "-p", "tcp", "--dport", port, "-j", "DROP"])

    def mend_connections(self) -> None:
        """Take the broken ones' rules away."""
        self.lab.remote.run(["iptables-nft", "-F"])

    # Objects

    def _first_objects(self) -> Iterator[Json]:
        yield service("steady", STEADY, nodePort=NODE_PORT)
        yield endpoint_slice("steady", list(PODS.values()))
        for number in range(self._background):
            yield service(f"other-{number}", f"10.96.1.{number + 1}")
            yield endpoint_slice(f"other-{number}", [f"10.244.9.{number + 20}", f"10.244.9.{number + 80}"])

    def change(self) -> str:
        """Make a service, change one, take one away, as a cluster does; return the new one's address.

        The new one is reached by ``answers`` once the kernel has it.
        """
        self._probes += 1
        number = self._probes
        address = f"10.96.{10 + number // 250}.{number % 250 + 1}"
        if number > 1:
            self.api.delete("Service", "default", f"probe-{number - 1}")
            self.api.delete("EndpointSlice", "default", f"probe-{number - 1}-1")
        chosen = f"other-{number % self._background}"
        self.api.put(endpoint_slice(chosen, [f"10.244.9.{number % 200 + 20}"]))
        self.api.put(service(f"probe-{number}", address))
        self.api.put(endpoint_slice(f"probe-{number}", [PODS["p1"]]))
        return address

    def answers(self, address: str) -> bool:
        """Tell whether a new connection to this service comes about."""
        return bool(self.curl.http(address, 80, timeout=0.15).answers)

    def wait_until(self, condition: Callable[[], object], limit: float) -> bool:
        """Poll until a condition holds; tell whether it came in time."""
        return seconds_until(condition, limit) is not None

    def wait_for_answer(self, address: str, limit: float) -> bool:
        """Wait until a new connection to a service comes about."""
        return self.wait_until(lambda: self.answers(address), limit)

    def recover(self) -> None:
        """End the daemon and take back all harm, for the next row's sake. The rules stay."""
        self.seam.clear()
        self.mend_connections()
        self.stop(signal.SIGKILL)
        self.api.faults.clear()
        self.api.faults.set_tokens(["first"])
        self.token.write_text("first")
        for name in ("bad", "sticky"):
            self.api.delete("Service", "default", name)
            self.api.delete("EndpointSlice", "default", f"{name}-1")
        self.left_out.clear()
        self.has_comments = True

    def flush(self) -> None:
        """Take all rules and chains away, in both families, and what conntrack knows."""
        for program in ("iptables", "ip6tables"):
            for table in ("mangle", "filter", "nat"):
                self.lab.node.run([f"{program}-{self.backend}-restore"], stdin=f"*{table}\nCOMMIT\n")
        self.lab.node.run(["conntrack", "-F"], check=False)

    # The daemon

    FLAGS: ClassVar[dict[str, str]] = {
        "hostname-override": "node-a",
        "cluster-cidr": "10.244.0.0/16,fd00:10:244::/48",
    }
    """What decides about rules, the same for the daemon and for the truth."""

    def start(self, *extra: str) -> None:
        """Start the daemon."""
        flags = (f"--{name}={value}" for name, value in self.FLAGS.items())
        argv = [
            sys.executable, *self.program, "--kubeconfig", str(self.kubeconfig), *flags,
            "--conntrack-max-per-core", "0", "--iptables-backend", self.backend, "--iptables-min-sync-period", "10ms",
            *extra,
        ]  # fmt: skip
        environment = {"PATH": f"{self.seam.folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        self._process = self.lab.node.spawn(argv, log=self.log, env=environment)

    def stop(self, number: int = signal.SIGKILL) -> int | None:
        """End the daemon."""
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(ProcessLookupError, LabError):
            process.signal(number)
        return process.wait(30)

    @property
    def pid(self) -> int:
        """Return the daemon's process id."""
        assert self._process is not None
        return self._process.pid

    def is_running(self) -> bool:
        """Tell whether the daemon runs."""
        return self._process is not None and self._process.running()

    def last_words(self, lines: int = 15) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def status(self, path: str, port: int = 10256) -> int:
        """Ask one of its pages; 0 when there is no answer."""
        return self.lab.node.fetch("127.0.0.1", port, path).status

    def is_ready(self) -> bool:
        """Ask /readyz."""
        return self.status("/readyz") == 200

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Wait until /readyz says so; LabError with its last words otherwise."""

        def ready() -> bool:
            if not self.is_running():
                raise LabError(f"the daemon has ended:\n{self.last_words()}")
            return self.is_ready()

        try:
            wait_for(ready, "the daemon to be ready", timeout=timeout)
        except LabError as problem:
            raise LabError(f"{problem}\n{self.last_words()}") from problem

    def metric(self, start: str) -> float:
        """Return the sum of all series that begin so."""
        page = self.lab.node.fetch("127.0.0.1", 10249, "/metrics").body
        return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(start))

    def log_size(self) -> int:
        """Return where the log ends now."""
        return self.log.stat().st_size if self.log.exists() else 0

    def said(self, word: str, since: int = 0) -> bool:
        """Tell whether its log holds a word behind a position."""
        with self.log.open("rb") as file:
            file.seek(since)
            return word.encode() in file.read()

    def descriptors(self) -> int:
        """Return how many descriptors it has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def threads(self) -> int:
        """Return how many threads it has."""
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))

    # Traffic

    @contextlib.contextmanager
    def traffic(self) -> Iterator[Tally]:
        """Make connections all the time: a pod to the cluster address, the outside to the node port."""
        tally = Tally()
        soaks = [
            self.curl.soak_http(STEADY, 80, interval=self.interval, timeout=3.0),
            self.lab.client.soak_http(NODE_IP, NODE_PORT, interval=self.interval, timeout=3.0),
        ]
        try:
            yield tally
        finally:
            for soak in soaks:
                tally.add(soak.stop())

    def lost(self) -> Lost:
        """Compare the kernel with what the API server's objects mean."""
        objects = [*self.api.objects("Service"), *self.api.objects("EndpointSlice"), NODE]
        known = [obj for obj in objects if obj["metadata"]["name"] not in self.left_out]
        return lost(self.lab, known, self.FLAGS, comments=self.has_comments)


class Tally:
    """What came of the traffic."""

    def __init__(self) -> None:
        self.made = 0
        self.failed = 0
        self.kinds: dict[str, int] = {}

    def add(self, traffic: Traffic) -> None:
        """Add one soak's."""
        self.made += traffic.started
        self.failed += len(traffic.failures) + len(traffic.delayed)
        for kind, count in [*traffic.kinds.items(), ("second SYN", len(traffic.delayed))]:
            if count:
                self.kinds[kind] = self.kinds.get(kind, 0) + count


def seconds_until(condition: Callable[[], object], limit: float, *, since: float | None = None) -> float | None:
    """Poll until a condition holds; return the seconds that it took, None when it did not come in time."""
    began = time.monotonic() if since is None else since
    while True:
        if condition():
            return time.monotonic() - began
        if time.monotonic() - began > limit:
            return None
        time.sleep(0.02)


def inside(namespace: str, function: Callable[[], T]) -> T:
    """Run a function in a thread that has entered a network namespace; what it starts stays there.

    A thread, because the laboratory ends every process that is in its namespaces.
    """
    answer: list[T] = []
    failure: list[BaseException] = []

    def enter() -> None:
        try:
            netns.setns(namespace)
            answer.append(function())
        except BaseException as problem:  # noqa: BLE001 - handed to the caller
            failure.append(problem)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return answer[0]


# -- objects


def service(name: str, address: str, **more: Any) -> Json:
    """Build a Service of port 80; ``nodePort`` makes it one of that type, other fields go into the spec."""
    port = {"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}
    kind = "ClusterIP"
    if "nodePort" in more:
        port["nodePort"] = more.pop("nodePort")
        kind = "NodePort"
    spec = {
        "type": kind,
        "clusterIP": address,
        "clusterIPs": [address],
        "ipFamilies": ["IPv4"],
        "ports": [port],
        **more,
    }
    return {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    }  # fmt: skip


def endpoint_slice(service_name: str, addresses: list[str]) -> Json:
    """Build the one EndpointSlice of a service."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service_name}-1",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": service_name},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [a], "conditions": {"ready": True}, "nodeName": "node-a"} for a in addresses],
    }


NODE: Json = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-a"},
    "status": {"addresses": [{"type": "InternalIP", "address": NODE_IP}]},
}
