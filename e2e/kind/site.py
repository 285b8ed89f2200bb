"""A cluster of kind as a site for the checks: pods of the daemon's own image run the laboratory's servers and clients.

The programs of ``e2e/netlab/inside`` come as a ConfigMap; the image has the Python that runs them, so no other image is
needed. A conversation with a pod is one ``kubectl exec`` that stays.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from e2e.kind.cluster import IMAGE, Cluster
from e2e.lab.site import CLIENT, HTTP, UDP, LongConnection, Replies, replies_of
from e2e.netlab import LabError, Namespace, Soak, wait_for
from e2e.netlab.agent import Agent

Json = dict[str, Any]
INSIDE = Path(__file__).parents[1] / "netlab/inside"
PYTHON = "/opt/pykubeproxy/bin/python"
SERVE = (
    "import os, sys, threading; sys.path.insert(0, '/inside'); from servers import Servers; "
    "s = Servers(os.environ['POD_NAME']); "
    f"[s.listen('http', a, {HTTP}) or s.listen('echo', a, {UDP}) for a in os.environ['POD_IPS'].split(',')]; "
    "threading.Event().wait()"
)


class KubectlAgent(Agent):
    """The process inside a pod, reached through ``kubectl exec``."""

    def __init__(self, cluster: Cluster, pod: str) -> None:
        self._log = Path("/dev/null")
        self._lock = threading.Lock()
        self._pending: dict[int, Future[Any]] = {}
        self._next = 0
        command = [PYTHON, "-B", "/inside/__main__.py", pod]
        argv = cluster.kubectl_command("exec", "--stdin", pod, "--", *command)
        self._process = cluster.commands.converse(argv)
        threading.Thread(target=self._read, name=f"agent {pod}", daemon=True).start()


class Inside(Namespace):
    """A pod to make traffic from."""

    def __init__(self, name: str, agent: Agent) -> None:
        self.name = name
        self.agent = agent


class _Soak:
    def __init__(self, soak: Soak) -> None:
        self._soak = soak

    def stop(self) -> Replies:
        return replies_of(self._soak.stop())

    def started(self) -> int:
        return self._soak.so_far().started


class KindSite:
    """The site. ``proxy`` is the DaemonSet (and its container) that serves the cluster now."""

    def __init__(self, cluster: Cluster, proxy: str) -> None:
        self.cluster = cluster
        self._proxy = proxy
        self._inside: dict[str, Inside] = {}
        nodes = cluster.get("nodes")["items"]
        self._addresses = {node["metadata"]["name"]: _internal_address(node) for node in nodes}
        controls = [n["metadata"]["name"] for n in nodes if _is_control_plane(n)]
        workers = sorted(set(self._addresses) - set(controls))
        self._control, self._worker = controls[0], workers[0]

    def prepare(self) -> None:
        """Bring the programs and the three places to ask from."""
        data = {path.name: path.read_text() for path in sorted(INSIDE.glob("*.py"))}
        meta = {"name": "inside", "namespace": "default"}
        places = [
            self._pod(CLIENT, self._worker),
            self._pod("node", self._worker, host=True),
            self._pod("outside", self._control, host=True),
        ]
        self.cluster.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}, *places])
        names = [pod["metadata"]["name"] for pod in places]
        self.cluster.kubectl(
            "wait", "--for", "condition=Ready", "--timeout", "300s", *(f"pod/{n}" for n in names), timeout=330
        )

    # Site

    def deploy(self, app: str, replicas: int) -> None:
        """Scale an application and wait for its pods."""
        self.cluster.apply([self._deployment(app, replicas)])
        selector = ["--selector", f"app={app}"]
        if replicas:
            self.cluster.kubectl("rollout", "status", f"deployment/{app}", "--timeout", "300s", timeout=330)
        wait_for(
            lambda: len(self.cluster.get("pods", *selector)["items"]) == replicas,
            f"{replicas} pods of {app}", timeout=180, interval=1,
        )  # fmt: skip

    def addresses(self, app: str) -> dict[str, str]:
        """Return the pods' addresses."""
        items = self.cluster.get("pods", "--selector", f"app={app}")["items"]
        return {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in items}

    def expose(self, service: Json) -> Json:
        """Apply a Service."""
        base = {"apiVersion": "v1", "kind": "Service"}
        self.cluster.apply([{**base, **service, "metadata": {"namespace": "default", **service["metadata"]}}])
        return self.cluster.get("service", service["metadata"]["name"])

    def withdraw(self, service: str) -> None:
        """Delete a Service."""
        self.cluster.kubectl("delete", "service", service, "--ignore-not-found")

    def ask(self, place: str, address: str, port: int, *, n: int = 1, udp: bool = False) -> Replies:
        """Make attempts."""
        where = self.place(place)
        if udp:
            return replies_of(where.udp(address, port, n=n, concurrency=min(n, 20)))
        return replies_of(where.http(address, port, n=n, concurrency=min(n, 20)))

    def source(self, place: str) -> str:
        """Return a place's address."""
        hosts = {"node": self._worker, "outside": self._control}
        if place in hosts:
            return self._addresses[hosts[place]]
        return str(self.cluster.get("pod", place)["status"]["podIP"])

    def node_address(self, pod: str) -> str:
        """Return the address of a pod's node; of a worker where no pod is named."""
        node = self.cluster.get("pod", pod)["spec"]["nodeName"] if pod else self._worker
        return self._addresses[node]

    def load(self, place: str, address: str, port: int) -> _Soak:
        """Open new connections until stopped."""
        return _Soak(self.place(place).soak_http(address, port, interval=0.01, timeout=5))

    def udp_flow(self, place: str, address: str, port: int) -> _Soak:
        """Send datagrams from one socket until stopped."""
        return _Soak(self.place(place).soak_udp(address, port, interval=0.02, timeout=2))

    def long_connection(self, place: str, address: str, port: int) -> LongConnection:
        """Keep a connection in use until stopped."""
        return LongConnection(self.place(place).connect(address, port))

    def restart_proxy(self) -> None:
        """Restart the proxy of every node."""
        self.cluster.kubectl("--namespace", "kube-system", "rollout", "restart", f"daemonset/{self._proxy}")
        self.cluster.await_rollout(self._proxy)

    def place(self, name: str) -> Inside:
        """Return the conversation with a pod, begun if need be."""
        if name not in self._inside:
            self._inside[name] = Inside(name, KubectlAgent(self.cluster, name))
        return self._inside[name]

    def close(self) -> None:
        """End all conversations."""
        for inside in self._inside.values():
            inside.agent.close()

    # Objects

    def _pod(self, name: str, node: str, *, host: bool = False) -> Json:
        spec = self._spec(["-c", "import threading; threading.Event().wait()"])
        spec |= {"nodeName": node, "hostNetwork": host, "tolerations": [{"operator": "Exists"}]}
        return {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        }  # fmt: skip

    def _deployment(self, app: str, replicas: int) -> Json:
        spec = self._spec(["-c", SERVE])
        # Not on the node that asks from outside.
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "node-role.kubernetes.io/control-plane", "operator": "DoesNotExist"}]}
        ]}}}  # fmt: skip
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": app, "namespace": "default"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": app}},
                "template": {"metadata": {"labels": {"app": app}}, "spec": spec},
            },
        }

    def _spec(self, arguments: Sequence[str]) -> Json:
        def from_field(name: str, path: str) -> Json:
            return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}

        return {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "inside",
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "command": [PYTHON, *arguments],
                    "env": [from_field("POD_NAME", "metadata.name"), from_field("POD_IPS", "status.podIPs")],
                    "volumeMounts": [{"name": "inside", "mountPath": "/inside"}],
                }
            ],
            "volumes": [{"name": "inside", "configMap": {"name": "inside"}}],
        }


def _internal_address(node: Json) -> str:
    found = [entry["address"] for entry in node["status"]["addresses"] if entry["type"] == "InternalIP"]
    if not found:
        raise LabError(f"node {node['metadata']['name']} has no InternalIP")
    return str(found[0])


def _is_control_plane(node: Json) -> bool:
    return "node-role.kubernetes.io/control-plane" in node["metadata"].get("labels", {})
