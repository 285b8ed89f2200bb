"""kubectl, the way people and the demo use it, against the stand-in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.apiserver import StandIn
from tests.apiserver.asking import endpoint_slice, service

KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not in PATH, nor named by KUBECTL")


class Kubectl:
    """kubectl with a configuration of its own."""

    def __init__(self, server: StandIn, folder: Path) -> None:
        self.server = server
        self.folder = folder
        server.write_kubeconfig(folder / "config", token="t")  # noqa: S106 - no secret

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(KUBECTL), "--cache-dir", str(self.folder / "cache"), *arguments],
            env={**os.environ, "KUBECONFIG": str(self.folder / "config"), "HOME": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write(self, *objects: object) -> str:
        path = self.folder / "objects.json"
        path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
        return str(path)


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    with StandIn(tls=True, tokens=["t"]) as server:
        yield Kubectl(server, tmp_path)


def test_get(kubectl: Kubectl) -> None:
    kubectl.server.bulk_put([service("a"), endpoint_slice("a-1", "10.0.0.1")])
    assert "service/a" in kubectl("get", "svc,endpointslices", "-A")
    assert json.loads(kubectl("get", "svc", "a", "-o", "json"))["spec"]["clusterIP"] == "10.96.0.10"
    assert kubectl("get", "svc", "-l", "x=y", "-o", "name") == ""


def test_create_replace_and_delete(kubectl: Kubectl) -> None:
    path = kubectl.write(service("a"), endpoint_slice("a-1", "10.0.0.1"))
    assert kubectl("create", "--validate=false", "-f", path).count("created") == 2
    assert kubectl.server.objects("Service")[0]["spec"]["type"] == "ClusterIP"
    path = kubectl.write(service("a", labels={"x": "y"}))
    assert "replaced" in kubectl("replace", "--validate=false", "-f", path)
    assert kubectl.server.objects("Service")[0]["metadata"]["labels"] == {"x": "y"}
    assert "deleted" in kubectl("delete", "-f", path)
    assert kubectl.server.objects("Service") == []


def test_apply_makes_then_changes_then_leaves_alone(kubectl: Kubectl) -> None:
    slices = kubectl.write(service("a"), endpoint_slice("a-1", "10.0.0.1"))
    assert kubectl("apply", "--validate=false", "-f", slices).count("created") == 2
    slices = kubectl.write(service("a"), endpoint_slice("a-1", "10.0.0.2", "10.0.0.3"))
    told = kubectl("apply", "--validate=false", "-f", slices)
    assert ("service/a unchanged" in told, "a-1 configured" in told) == (True, True)
    (applied,) = kubectl.server.objects("EndpointSlice")
    assert [each["addresses"] for each in applied["endpoints"]] == [["10.0.0.2"], ["10.0.0.3"]]


def test_apply_on_the_server_side(kubectl: Kubectl) -> None:
    path = kubectl.write(service("a"))
    assert "serverside-applied" in kubectl("apply", "--server-side", "--validate=false", "-f", path)
    assert kubectl.server.objects("Service")[0]["metadata"]["name"] == "a"


def test_patch_label_and_annotate(kubectl: Kubectl) -> None:
    kubectl.server.put(service("a"))
    kubectl("patch", "svc", "a", "--type=merge", "-p", '{"spec":{"externalIPs":["203.0.113.1"]}}')
    kubectl("label", "svc", "a", "x=y")
    kubectl("annotate", "svc", "a", "p=q")
    (patched,) = kubectl.server.objects("Service")
    assert patched["spec"]["externalIPs"] == ["203.0.113.1"]
    assert (patched["metadata"]["labels"], patched["metadata"]["annotations"]) == ({"x": "y"}, {"p": "q"})


def test_create_by_its_own_means_which_speak_protobuf(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "shop")
    kubectl("create", "service", "nodeport", "web", "-n", "shop", "--tcp=80:8080", "--node-port=30080")
    (made,) = kubectl.server.objects("Service")
    assert made["spec"]["ports"] == [
        {"name": "80-8080", "protocol": "TCP", "port": 80, "targetPort": 8080, "nodePort": 30080}
    ]
    assert made["spec"]["clusterIP"].startswith("10.")
    kubectl("delete", "namespace", "shop")
    assert kubectl.server.objects("Service") == []


def test_version_and_resources(kubectl: Kubectl) -> None:
    assert json.loads(kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"] == "v1.36.2"
    assert "endpointslices" in kubectl("api-resources", "-o", "name")
