"""A node with the daemon started as kubeadm starts it (--config), an API server, pods, and clients in every place.

Objects are put as a cluster's controllers would put them. The places that packets come from: the pod ``client``, the
``node`` itself (a hostNetwork pod), the ``remote`` node's pod, and ``outside``, which is no part of the cluster.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from e2e.apiserver import StandIn
from e2e.netlab import Lab, wait_for
from e2e.netlab.namespace import Namespace, Page
from e2e.netlab.traffic import Traffic
from e2e.netlab.wiring import NODE_IP, NODE_IP6, REMOTE_IP, REMOTE_IP6, REMOTE_POD_IP, REMOTE_POD_IP6
from tests.support.node import ROOT, inside

Json = dict[str, Any]
INSTEAD = os.environ.get("CONFORMANCE_OF", "")
"""A kube-proxy to ask the same of: the control of what these tests expect."""
HERE, THERE = "node-a", "node-b"
PODS = {"p1": "10.244.2.11", "p2": "10.244.2.12", "p3": "10.244.2.13"}
HTTP, UDP, OTHER_UDP = 80, 5353, 5454
HINT = "KUBE-IPTABLES-HINT"
HOST_PORT = 10180
"""Where the pods of the hosts' networks serve, TCP and UDP."""
CONFIGURATION = """\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection: {{acceptContentTypes: "", burst: 0, contentType: "", kubeconfig: {kubeconfig}, qps: 0}}
clusterCIDR: 10.244.0.0/16,fd00:10:244::/48
configSyncPeriod: 0s
conntrack: {{maxPerCore: 0, min: null, tcpBeLiberal: false, tcpCloseWaitTimeout: null, tcpEstablishedTimeout: null,
  udpStreamTimeout: 0s, udpTimeout: 0s}}
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables: {{localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 20ms, syncPeriod: 0s}}
metricsBindAddress: ""
mode: ""
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
"""


class Cluster:
    """One of it for all tests of a backend; each test has services of its own."""

    def __init__(self, lab: Lab, api: StandIn) -> None:
        self.lab, self.api = lab, api
        self.outside, self.node, self.remote = lab.client, lab.node, lab.remote
        self.client = lab.add_pod("curl", "10.244.2.50", http=[])
        for name, address in PODS.items():
            lab.add_pod(name, address, http=[HTTP, 8080], udp=[UDP, OTHER_UDP])
        self.remote.rename("far")
        self.remote.listen("http", [REMOTE_POD_IP, REMOTE_POD_IP6], [HTTP])
        self.remote.listen("echo", [REMOTE_POD_IP, REMOTE_POD_IP6], [UDP])
        self.node.listen("http", [NODE_IP, NODE_IP6], [HOST_PORT])
        self.node.listen("echo", [NODE_IP, NODE_IP6], [HOST_PORT])
        self.remote.listen("http", [REMOTE_IP, REMOTE_IP6], [HOST_PORT])
        self.remote.listen("echo", [REMOTE_IP, REMOTE_IP6], [HOST_PORT])
        self.log = lab.claim.folder / "daemon.log"
        self._numbers = iter(range(1, 250))
        for name, zone, address in ((HERE, "z1", NODE_IP), (THERE, "z2", "192.168.78.2")):
            self.put_node(name, zone, [address, NODE_IP6] if name == HERE else [address])

    # -- the daemon

    def start(self) -> None:
        """Start it as kubeadm's DaemonSet does."""
        folder = self.lab.claim.folder
        kubeconfig = self.api.write_kubeconfig(folder / "kubeconfig")
        (folder / "config.conf").write_text(CONFIGURATION.format(kubeconfig=kubeconfig), encoding="utf-8")
        programs = folder / "programs"
        programs.mkdir()
        for stem in ("iptables", "ip6tables"):
            for end in ("", "-save", "-restore"):
                found = shutil.which(f"{stem}-{self.lab.backend}{end}")
                assert found
                (programs / f"{stem}{end}").symlink_to(found)
        for family in (4, 6):  # kubelet's, which tells the backend
            self.lab.iptables("-t", "mangle", "-N", HINT, family=family)  # type: ignore[arg-type]
        argv = [INSTEAD] if INSTEAD else [sys.executable, "-m", "pykubeproxy"]
        env = {"PYTHONPATH": str(ROOT), "PATH": f"{programs}:{os.environ['PATH']}"}
        self.node.spawn([*argv, f"--config={folder}/config.conf", f"--hostname-override={HERE}"], log=self.log, env=env)
        page = "/healthz" if INSTEAD else "/readyz"
        wait_for(lambda: self.page("127.0.0.1", 10256, page).status == 200, "ready", timeout=60)

    def page(self, address: str, port: int, path: str = "/", *, source: Namespace | None = None) -> Page:
        """GET a page, from the node unless told otherwise."""
        return (source or self.node).fetch(address, port, path)

    def metric(self, name: str) -> float:
        """Return a counter without labels."""
        body = self.page("127.0.0.1", 10249, "/metrics").body
        found = re.search(rf"^{name} (\S+)$", body, re.MULTILINE)
        assert found, f"{name} is not there"
        return float(found[1])

    # -- objects

    def put_node(self, name: str, zone: str, addresses: Iterable[str]) -> None:
        """Put a Node."""
        labels = {"topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name}
        status = {"addresses": [{"type": "InternalIP", "address": address} for address in addresses]}
        self.api.put(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}
        )

    def service(self, name: str, *ports: Json, **more: Any) -> Service:
        """Make a service of both families; it has no endpoints yet."""
        return Service(self, name, next(self._numbers), ports or (tcp(),), more)


def tcp(port: int = 80, target: int = HTTP, **more: Any) -> Json:
    """A TCP port of a service."""
    return {"name": f"tcp-{port}", "protocol": "TCP", "port": port, "targetPort": target, **more}


def udp(port: int = 53, target: int = UDP, **more: Any) -> Json:
    """A UDP port of a service."""
    return {"name": f"udp-{port}", "protocol": "UDP", "port": port, "targetPort": target, **more}


class Service:
    """A Service and its EndpointSlices, kept as the controllers keep them."""

    def __init__(self, cluster: Cluster, name: str, number: int, ports: Iterable[Json], more: Json) -> None:
        self._cluster, self.name, self.number = cluster, name, number
        self.ips = {4: f"10.96.0.{number}", 6: f"fd00:96::{number:x}"}
        self.ports = [dict(port) for port in ports]
        self.spec: Json = more.pop("spec", {})
        self.status: Json = {}
        self.labels: Json = more.pop("labels", {})
        self._slices: set[str] = set()
        self.put(**more)

    def put(self, **spec: Any) -> None:
        """Put it with these fields changed."""
        self.spec |= spec
        kind = self.spec.get("type", "ClusterIP")
        given: Json = {
            "type": kind,
            "clusterIP": self.ips[4],
            "clusterIPs": list(self.ips.values()),
            "ipFamilies": ["IPv4", "IPv6"],
            "ports": self.ports,
            **self.spec,
        }
        if kind == "ExternalName":
            given = {"type": kind, "externalName": "example.org", "ports": self.ports}
        meta = {"name": self.name, "namespace": "default", "labels": self.labels}
        self._cluster.api.put(
            {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": given, "status": self.status}
        )

    def node_port(self, index: int = 0) -> int:
        """Return the number of a node port that it has or would have."""
        return 30000 + 10 * self.number + index

    def as_node_port(self, **spec: Any) -> None:
        """Make it a NodePort service, or one of the type given."""
        for index, port in enumerate(self.ports):
            port["nodePort"] = self.node_port(index)
        self.put(**{"type": "NodePort", **spec})

    def endpoints(
        self, *records: str | Json, slice_name: str = "1", labels: Json | None = None, **targets: Any
    ) -> None:
        """Put its slices of both families: names of pods, or records of ``backend``. Keywords set target ports."""
        told = [backend(record) if isinstance(record, str) else record for record in records]
        ports = [
            {
                "name": p["name"],
                "protocol": p["protocol"],
                "port": targets.get(p["name"].replace("-", "_"), p["targetPort"]),
            }
            for p in self.ports
        ]
        for family in (4, 6):
            whole = f"{self.name}-{slice_name}-v{family}"
            self._slices.add(whole)
            fitting = [
                {**record, "addresses": [record["addresses"][family == 6]]}
                for record in told
                if len(record["addresses"]) > (family == 6)
            ]
            self._cluster.api.put(
                {
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": "EndpointSlice",
                    "metadata": {
                        "name": whole,
                        "namespace": "default",
                        "labels": {"kubernetes.io/service-name": self.name, **(labels or {})},
                    },
                    "addressType": f"IPv{family}",
                    "ports": ports,
                    "endpoints": fitting,
                }
            )

    def delete(self) -> None:
        """Delete it and its slices."""
        self._cluster.api.delete("Service", "default", self.name)
        for name in self._slices:
            self._cluster.api.delete("EndpointSlice", "default", name)
        self._slices.clear()


def backend(
    pod: str, *, ready: bool = True, serving: bool | None = None, terminating: bool = False, **more: Any
) -> Json:
    """An endpoint as the controller writes it: a pod of this node, ``far`` on the other, or one of a host's network."""
    addresses, node = {
        "far": ([REMOTE_POD_IP, REMOTE_POD_IP6], THERE),
        "node": ([NODE_IP, NODE_IP6], HERE),
        "other-node": ([REMOTE_IP, REMOTE_IP6], THERE),
    }.get(pod, ([PODS[pod], f"fd00:10:244:2::{PODS[pod].rpartition('.')[2]}"] if pod in PODS else [], HERE))
    return {
        "addresses": addresses,
        "nodeName": node,
        "zone": {HERE: "z1", THERE: "z2"}[node],
        "conditions": {
            "ready": ready and not terminating,
            "serving": ready if serving is None else serving,
            "terminating": terminating,
        },
        **more,
    }


def leaves(pod: str, **more: Any) -> Json:
    """An endpoint whose pod is being deleted and still serves."""
    return backend(pod, ready=True, terminating=True, **more)


def reaches(place: Namespace, address: str, port: int, *pods: str, n: int = 25, **more: Any) -> Traffic:
    """Wait until exactly these pods answer, and nothing fails."""
    found: list[Traffic] = []

    def settled() -> bool:
        # Short: what is sent before the rules are there is answered by nobody.
        found[:] = [place.http(address, port, n=n if len(pods) > 1 else 6, concurrency=5, timeout=0.4, **more)]
        return set(found[0].pods) == set(pods) and not found[0].failures

    wait_for(settled, f"{address}:{port} leads to {pods}", timeout=30)
    return found[0]


def fails(place: Namespace, address: str, port: int, kind: str = "refused", *, udp: bool = False) -> None:
    """Wait until nobody answers any more, in this way. (In IPv6 only the second SYN, a second later, is refused.)"""
    ask = place.udp if udp else place.http
    patience = 2.5 if kind == "refused" else 0.3
    wait_for(lambda: ask(address, port, timeout=patience).verdict() == kind, f"{address}:{port} is {kind}", timeout=30)


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    wait_for(condition, what, timeout=30)


@contextmanager
def cluster(kind: str) -> Iterator[Cluster]:
    """Make it all and start the daemon."""
    with Lab(backend=kind) as lab:  # type: ignore[arg-type]
        api = StandIn(serves_faults=True)
        inside(lab.node.netns, api.start)
        try:
            made = Cluster(lab, api)
            made.start()
            yield made
        finally:
            api.close()
