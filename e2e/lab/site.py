"""What the checks need of a cluster, and the laboratory as one: Pods are objects at the API server and namespaces here.

There is no kubelet, so this is where a Pod becomes ready, and where it ends.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from e2e.lab.controlplane import PROXY, ControlPlane, InNode
from e2e.netlab import Backend, Connection, Lab, LabError, Namespace, Process, Soak, Traffic, wait_for
from e2e.netlab.proxy import ROOT
from e2e.netlab.wiring import CLUSTER_CIDR, CLUSTER_CIDR6, NODE_IP, NODE_IP6, REMOTE_IP, REMOTE_IP6

Json = dict[str, Any]
NODE, REMOTE = "node-a", "node-b"
HTTP, UDP = 8080, 5353
CLIENT = "caller"
METRICS = 10249


@dataclass(slots=True)
class Replies:
    """What came of a number of attempts: who answered, which source they saw, and what became of the others."""

    pods: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def answered(self) -> int:
        """How many were answered."""
        return sum(self.pods.values())


class Load(Protocol):
    """Traffic that goes on."""

    def stop(self) -> Replies:
        """End it and tell what came of it; a packet that had to be sent again is a failure too (``resent``)."""


class Site(Protocol):
    """A cluster with the proxy in it. Places to ask from: ``caller`` (a pod), ``node``, ``outside``, a server pod."""

    def deploy(self, app: str, replicas: int) -> None:
        """Let so many pods (and no others) serve HTTP on 8080 and UDP echo on 5353 under the label ``app``."""

    def addresses(self, app: str) -> dict[str, str]:
        """Return the IPv4 addresses of an application's ready pods, by name."""

    def expose(self, service: Json) -> Json:
        """Create or change a Service of the namespace ``default``; return it as the server shows it."""

    def withdraw(self, service: str) -> None:
        """Delete a Service."""

    def ask(self, place: str, address: str, port: int, *, n: int = 1, udp: bool = False) -> Replies:
        """Make ``n`` attempts, each from a new socket."""

    def source(self, place: str) -> str:
        """Return the address that a server sees if nobody masquerades."""

    def node_address(self, pod: str) -> str:
        """Return the address of the node that a pod is on, as the place ``outside`` reaches it."""

    def load(self, place: str, address: str, port: int) -> Load:
        """Open new connections, many a second, until stopped."""

    def restart_proxy(self) -> None:
        """Restart the proxy of all nodes and wait until it is ready again."""


def replies_of(traffic: Traffic) -> Replies:
    """Convert what a namespace's process reports."""
    found = Replies(Counter(traffic.pods), Counter(traffic.sources), Counter(traffic.kinds))
    if traffic.delayed:
        found.failures["resent"] += len(traffic.delayed)
    return found


class _Soak:
    def __init__(self, soak: Soak) -> None:
        self._soak = soak

    def stop(self) -> Replies:
        return replies_of(self._soak.stop())

    def started(self) -> int:
        return self._soak.so_far().started


class LongConnection:
    """One TCP connection that is asked all the time."""

    def __init__(self, connection: Connection) -> None:
        if connection.failure:
            raise LabError(f"the long connection did not come about: {connection.failure}")
        self._connection = connection
        self._replies = Replies()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def stop(self) -> Replies:
        """End it."""
        self._ending.set()
        self._thread.join(30)
        self._connection.close()
        return self._replies

    def started(self) -> int:
        """Return how often it was asked."""
        return self._replies.answered + sum(self._replies.failures.values())

    def _ask(self) -> None:
        while not self._ending.wait(0.02):
            told = self._connection.ask(timeout=5)
            if "answer" in told:
                self._replies.pods[told["answer"]["pod"]] += 1
            else:
                self._replies.failures[told["failure"]] += 1
                return


class LabSite:
    """One laboratory with a real control plane in its node. A context manager."""

    def __init__(self, binaries: Mapping[str, Path], backend: Backend, kube_proxy: Path | None = None) -> None:
        self.lab = Lab(backend=backend)
        self._binaries = binaries
        self._kube_proxy = kube_proxy
        self._numbers = itertools.count(20)
        self._apps: dict[str, list[str]] = {}
        self._proxy: Process | None = None
        self._start_proxy: Callable[[], None] = self.ours
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            lab = stack.enter_context(self.lab)
            self.control = stack.enter_context(ControlPlane(self._binaries, InNode(lab.node), address=NODE_IP))
            self.api = self.control.api
            self._link_programs()
            for name, addresses in ((NODE, (NODE_IP, NODE_IP6)), (REMOTE, (REMOTE_IP, REMOTE_IP6))):
                self._add_node(name, addresses)
            self._client = lab.add_pod(CLIENT, "10.244.2.250", http=[])
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # The proxies

    def ours(self, *extra: str) -> None:
        """Start this project's daemon, with the tree of prefixes, and wait until it is ready."""
        python = sys.executable
        flags = ["--iptables-backend", self.lab.backend, "--service-dispatch", "tree", *extra]
        self._start([python, "-m", "pykubeproxy", *self._flags(), *flags])
        wait_for(lambda: self._page(10256, "/readyz").status == 200, "our daemon to be ready", timeout=60)

    def theirs(self) -> None:
        """Start the real kube-proxy and wait until it has synced."""
        if self._kube_proxy is None:
            raise LabError("no kube-proxy was given")
        self._start([str(self._kube_proxy), *self._flags(), "--proxy-mode", "iptables"])
        synced = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
        wait_for(lambda: self.metric(synced) > 0, "kube-proxy's first sync", timeout=60)

    def stop_proxy(self) -> int | None:
        """End the running proxy with SIGTERM; return its exit status."""
        proxy, self._proxy = self._proxy, None
        if proxy is None:
            return None
        proxy.signal(signal.SIGTERM)
        return proxy.wait(30)

    def take_over(self) -> None:
        """Replace whatever runs by our daemon."""
        self.stop_proxy()
        self._start_proxy = self.ours
        self.ours()

    def give_back(self) -> None:
        """Replace whatever runs by the real kube-proxy."""
        self.stop_proxy()
        self._start_proxy = self.theirs
        self.theirs()

    def clean_up(self) -> None:
        """Run --cleanup."""
        argv = [sys.executable, "-m", "pykubeproxy", "--cleanup"]
        self.lab.node.run(argv, env=self._environment())

    def restart_proxy(self) -> None:
        """Restart what runs."""
        self.stop_proxy()
        self._start_proxy()

    def metric(self, name: str) -> float:
        """Return the sum of a metric's series, 0 where there is none."""
        found = 0.0
        for line in self._page(METRICS, "/metrics").body.splitlines():
            if line.startswith((f"{name}{{", f"{name} ")):
                found += float(line.rpartition(" ")[2])
        return found

    def rights_are_enough(self) -> list[str]:
        """Return what the proxy was refused, and what it could not do with the rights of system:node-proxier."""
        log = (self.lab.claim.folder / "proxy.log").read_text(errors="replace")
        found = [line for line in log.splitlines() if " 403" in line or "orbidden" in line][:3]
        events = self.api.list("Event", "default")
        if not [event for event in events if event["reason"] == "Starting" and event["involvedObject"]["name"] == NODE]:
            found.append("no Event of the start was posted")
        return found

    def last_words(self) -> str:
        """Return the end of the proxy's log."""
        log = self.lab.claim.folder / "proxy.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else ""

    def _flags(self) -> list[str]:
        return [
            "--kubeconfig", str(self.control.kubeconfig(PROXY)),
            "--hostname-override", NODE,
            "--cluster-cidr", f"{CLUSTER_CIDR},{CLUSTER_CIDR6}",
            "--conntrack-max-per-core", "0",
            "--iptables-min-sync-period", "100ms",
            "--healthz-bind-address", "127.0.0.1:10256",
            "--metrics-bind-address", f"127.0.0.1:{METRICS}",
        ]  # fmt: skip

    def _start(self, argv: Sequence[str]) -> None:
        log = self.lab.claim.folder / "proxy.log"
        self._proxy = self.lab.node.spawn(argv, log=log, env=self._environment())

    def _environment(self) -> dict[str, str]:
        path = f"{self.lab.claim.folder}/programs:{os.environ.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin')}"
        return {"PATH": path, "PYTHONPATH": str(ROOT), "NO_PROXY": "*", "no_proxy": "*"}

    def _link_programs(self) -> None:
        """Let ``iptables`` mean the laboratory's backend: kube-proxy takes what it finds under that name."""
        folder = self.lab.claim.folder / "programs"
        folder.mkdir()
        for stem in ("iptables", "ip6tables"):
            for what in ("", "-save", "-restore"):
                real = self.lab.node.run(["sh", "-c", f"command -v {stem}-{self.lab.backend}{what}"]).stdout.strip()
                (folder / f"{stem}{what}").symlink_to(real)

    def _page(self, port: int, path: str) -> Any:
        if self._proxy is not None and not self._proxy.running():
            raise LabError(f"the proxy has ended by itself:\n{self.last_words()}")
        return self.lab.node.fetch("127.0.0.1", port, path)

    # Objects

    def deploy(self, app: str, replicas: int) -> None:
        """Scale an application."""
        names = self._apps.setdefault(app, [])
        while len(names) > replicas:
            name = names.pop()
            self.api.delete("Pod", "default", name)
            wait_for(lambda name=name: name not in self._endpoints(app), f"{name} out of the endpoints")  # type: ignore[misc]
            self._retired.append(name)
        while len(names) < replicas:
            number = next(self._numbers)
            name, address = f"{app}-{number}", f"10.244.2.{number}"
            pod = self.lab.add_pod(name, address, http=[HTTP], udp=[UDP])
            self._add_pod(name, app, (pod.ip, pod.ip6))
            names.append(name)

    @property
    def _retired(self) -> list[str]:
        """Names of pods that are no longer endpoints; their namespaces go with the laboratory.

        A pod lives on for a while after it has left its services' endpoints: what is under way must end well.
        """
        return self._apps.setdefault("", [])

    def addresses(self, app: str) -> dict[str, str]:
        """Return the pods' addresses."""
        return {name: self.lab.pods[name].ip for name in self._apps.get(app, [])}

    def expose(self, service: Json) -> Json:
        """Apply a Service."""
        base = {"apiVersion": "v1", "kind": "Service"}
        return self.api.apply({**base, **service, "metadata": {"namespace": "default", **service["metadata"]}})

    def withdraw(self, service: str) -> None:
        """Delete a Service."""
        self.api.delete("Service", "default", service)

    def _endpoints(self, app: str) -> set[str]:
        """Return the names of the ready pods in the slices of all services that select the application."""
        found = set()
        for piece in self.api.list("EndpointSlice", "default"):
            for endpoint in piece["endpoints"] or ():
                target = endpoint.get("targetRef") or {}
                if target.get("name", "").startswith(f"{app}-") and endpoint["conditions"]["ready"]:
                    found.add(target["name"])
        return found

    def _add_node(self, name: str, addresses: Sequence[str]) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        self.api.apply(node)
        told = [{"type": "InternalIP", "address": address} for address in addresses]
        self.api.patch(node, {"status": {"addresses": told}}, "status")

    def _add_pod(self, name: str, app: str, addresses: Sequence[str]) -> None:
        ports = [
            {"name": "http", "containerPort": HTTP, "protocol": "TCP"},
            {"name": "udp", "containerPort": UDP, "protocol": "UDP"},
        ]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
            "spec": {"nodeName": NODE, "containers": [{"name": "server", "image": "none", "ports": ports}]},
        }
        self.api.apply(pod)
        status = {
            "phase": "Running",
            "podIP": addresses[0],
            "podIPs": [{"ip": address} for address in addresses],
            "hostIP": NODE_IP,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.api.patch(pod, {"status": status}, "status")

    # Traffic

    def ask(self, place: str, address: str, port: int, *, n: int = 1, udp: bool = False) -> Replies:
        """Make attempts."""
        where = self._place(place)
        if udp:
            return replies_of(where.udp(address, port, n=n, concurrency=min(n, 20)))
        return replies_of(where.http(address, port, n=n, concurrency=min(n, 20)))

    def source(self, place: str) -> str:
        """Return a place's address."""
        known = {"node": NODE_IP, "outside": "192.168.77.2"}
        return known[place] if place in known else self.lab.pods[place].ip

    def node_address(self, pod: str) -> str:
        """All pods are on the one node."""
        del pod
        return NODE_IP

    def load(self, place: str, address: str, port: int) -> _Soak:
        """Open new connections until stopped."""
        return _Soak(self._place(place).soak_http(address, port, interval=0.01, timeout=5))

    def udp_flow(self, place: str, address: str, port: int) -> _Soak:
        """Send datagrams from one socket until stopped."""
        return _Soak(self._place(place).soak_udp(address, port, interval=0.02, timeout=2))

    def udp_load(self, place: str, address: str, port: int) -> _Soak:
        """Send datagrams from new sockets until stopped."""
        return _Soak(self._place(place).soak_udp(address, port, interval=0.02, timeout=2, one_socket=False))

    def long_connection(self, place: str, address: str, port: int) -> LongConnection:
        """Keep a connection in use until stopped."""
        return LongConnection(self._place(place).connect(address, port))

    def chains(self) -> set[str]:
        """Return the names of all chains of both families."""
        return {chain for family in (4, 6) for chains in self.lab.save(family).tables.values() for chain in chains}

    def _place(self, place: str) -> Namespace:
        known: dict[str, Namespace] = {"node": self.lab.node, "outside": self.lab.client}
        return known[place] if place in known else self.lab.pods[place]


@contextlib.contextmanager
def proxy_running(site: LabSite) -> Iterator[LabSite]:
    """Run our daemon on a site while the block lasts."""
    site.ours()
    try:
        yield site
    finally:
        site.stop_proxy()
