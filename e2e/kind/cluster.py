"""A cluster of kind: made, given images and manifests, removed."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from e2e.kind.commands import Commands, must
from e2e.netlab import LabError
from e2e.netlab.proxy import ROOT

Json = dict[str, Any]
OVERLAYS = ROOT / "deploy/overlays"
IMAGE = "localhost/pykubeproxy:latest"
"""The image as the overlays name it."""
PLACEHOLDER = "kind-control-plane"
SYSTEM = ["--namespace", "kube-system"]


def configuration(*, kube_proxy: bool, workers: int = 2, families: str = "ipv4") -> Json:
    """Return kind's configuration of a cluster."""
    networking: Json = {"ipFamily": families}
    if not kube_proxy:
        networking["kubeProxyMode"] = "none"
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": networking,
        "nodes": [{"role": "control-plane"}, *({"role": "worker"} for _ in range(workers))],
    }


class Cluster:
    """One cluster; a context manager that removes it at the end unless ``keep`` is set."""

    def __init__(
        self, commands: Commands, name: str, *, kube_proxy: bool, engine: str = "docker", keep: bool = False
    ) -> None:
        self.commands = commands
        self.name = name
        self._kube_proxy = kube_proxy
        self._engine = engine
        self._keep = keep
        self._folder = Path()
        self.kubeconfig = Path()

    def __enter__(self) -> Self:
        missing = self.commands.missing(["kind", "kubectl", self._engine])
        if missing:
            raise LabError(f"not installed: {', '.join(missing)}")
        self._folder = Path(tempfile.mkdtemp(prefix="pykubeproxy-kind-"))
        self.kubeconfig = self._folder / "kubeconfig"
        argv = ["kind", "create", "cluster", "--name", self.name, "--kubeconfig", str(self.kubeconfig)]
        # Nodes of a cluster without a service proxy become ready all the same, but it takes longer.
        config = json.dumps(configuration(kube_proxy=self._kube_proxy))
        try:
            must(self.commands, [*argv, "--config", "-", "--wait", "0s"], stdin=config, timeout=900)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keep:
            print(f"The cluster {self.name} stands: export KUBECONFIG={self.kubeconfig}")
            return
        self._remove()

    def _remove(self) -> None:
        self.commands.run(["kind", "delete", "cluster", "--name", self.name])
        shutil.rmtree(self._folder, ignore_errors=True)

    def load(self, image: str) -> None:
        """Give the nodes an image under the name that the overlays use."""
        must(self.commands, [self._engine, "tag", image, IMAGE])
        archive = str(self._folder / "image.tar")
        must(self.commands, [self._engine, "save", "--output", archive, IMAGE], timeout=600)
        must(self.commands, ["kind", "load", "image-archive", archive, "--name", self.name], timeout=600)

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 300.0) -> str:
        """Run kubectl; return what it printed. Raises LabError when it fails."""
        return must(self.commands, self.kubectl_command(*arguments), stdin=stdin, timeout=timeout)

    def kubectl_command(self, *arguments: str) -> list[str]:
        """Return a command line of kubectl for this cluster."""
        return ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]

    def get(self, *arguments: str) -> Json:
        """Return objects."""
        found: Json = json.loads(self.kubectl("get", *arguments, "--output", "json"))
        return found

    def apply(self, objects: Sequence[Json]) -> None:
        """Apply objects."""
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "--filename", "-", stdin=document)

    def apply_overlay(self, overlay: str) -> None:
        """Apply one of the project's overlays, with this cluster's control plane in it."""
        text = self.kubectl("kustomize", str(OVERLAYS / overlay))
        text = text.replace(PLACEHOLDER, f"{self.name}-control-plane")
        self.kubectl("apply", "--server-side", "--force-conflicts", "--filename", "-", stdin=text)

    def await_rollout(self, daemonset: str) -> None:
        """Wait until every node runs the DaemonSet as it is now."""
        self.kubectl(*SYSTEM, "rollout", "status", f"daemonset/{daemonset}", "--timeout", "600s", timeout=660)

    def await_nodes(self) -> None:
        """Wait until all nodes are ready."""
        self.kubectl("wait", "--for", "condition=Ready", "node", "--all", "--timeout", "600s", timeout=660)

    def image_of(self, daemonset: str) -> str:
        """Return the image of a DaemonSet's first container."""
        spec = self.get(*SYSTEM, "daemonset", daemonset)["spec"]["template"]["spec"]
        return str(spec["containers"][0]["image"])

    def set_image(self, daemonset: str, container: str, image: str) -> None:
        """Change the image of a DaemonSet's container."""
        self.kubectl(*SYSTEM, "set", "image", f"daemonset/{daemonset}", f"{container}={image}")
