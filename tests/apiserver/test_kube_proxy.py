"""A real kube-proxy, in a network namespace of its own, takes its objects from the stand-in."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.asking import endpoint_slice, service
from tests.apiserver.programs import program

NODE = {
    "kind": "Node",
    "apiVersion": "v1",
    "metadata": {"name": "node-a"},
    "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.11"}]},  # kube-proxy waits for one
}
BINARY = os.environ.get("KUBE_PROXY", "")


def why_not() -> str:
    if not os.access(BINARY, os.X_OK):
        return f"KUBE_PROXY={BINARY or '(not set)'}: no real kube-proxy to try"
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("iptables-save") is None:
        return "needs root, ip and iptables"
    return ""


pytestmark = [pytest.mark.netns, pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not() or "it runs")]


class Namespace:
    """One network namespace with loopback up."""

    def __init__(self) -> None:
        self.name = f"pkp-{secrets.token_hex(4)}"
        self.enter = ("ip", "netns", "exec", self.name)

    def run(self, *command: str, stdin: str | None = None) -> str:
        return subprocess.run(
            [*self.enter, *command], check=True, capture_output=True, text=True, timeout=60, input=stdin
        ).stdout

    def wait_for(self, text: str, *, gone: bool = False) -> None:
        """Wait until the nat table's text holds (or no longer holds) ``text``."""
        ends = time.monotonic() + 30
        while time.monotonic() < ends:
            saved = self.run("iptables-save", "-t", "nat")
            if (text in saved) != gone:
                return
            time.sleep(0.2)
        raise AssertionError(f"{text!r} {'still' if gone else 'not'} in:\n{saved}")


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = Namespace()
    subprocess.run(["ip", "netns", "add", made.name], check=True)
    try:
        made.run("ip", "link", "set", "lo", "up")
        yield made
    finally:
        subprocess.run(["ip", "netns", "delete", made.name], check=True)


def put(namespace: Namespace, url: str, *objects: object) -> None:
    body = json.dumps({"kind": "List", "items": objects})
    namespace.run("curl", "-sSf", "--data-binary", "@-", f"{url}/_standin/objects", stdin=body)


def named_slice(*addresses: str) -> dict[str, object]:
    made = endpoint_slice("web-1", *addresses)
    made["metadata"]["labels"] = {"kubernetes.io/service-name": "web"}
    return made


@pytest.mark.parametrize("content_type", ["", "application/json"], ids=["protobuf", "json"])
def test_kube_proxy_follows_the_stand_in(namespace: Namespace, tmp_path: Path, content_type: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    with program("--faults", "--kubeconfig", str(kubeconfig), before=namespace.enter) as url:
        put(namespace, url, NODE, service("web"), named_slice("10.244.1.1"))
        config = tmp_path / "config.yaml"
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                    "kind": "KubeProxyConfiguration",
                    "mode": "iptables",
                    "hostnameOverride": "node-a",
                    "bindAddress": "127.0.0.1",
                    "clientConnection": {"kubeconfig": str(kubeconfig), "contentType": content_type},
                    "conntrack": {"maxPerCore": 0},
                }
            )
        )
        with (tmp_path / "log").open("wb") as log:
            proxy = subprocess.Popen(
                [*namespace.enter, BINARY, "--config", str(config)], stdout=log, stderr=subprocess.STDOUT
            )
        try:
            namespace.wait_for("--to-destination 10.244.1.1:8080")
            put(namespace, url, named_slice("10.244.1.2"))
            namespace.wait_for("--to-destination 10.244.1.2:8080")
            namespace.wait_for("10.244.1.1", gone=True)
            namespace.run("curl", "-sSf", "-X", "DELETE", f"{url}/api/v1/namespaces/default/services/web")
            namespace.wait_for("10.244.1.2", gone=True)
            events = json.loads(namespace.run("curl", "-sSf", f"{url}/apis/events.k8s.io/v1/events"))["items"]
            assert {"Starting"} == {each["reason"] for each in events}
            answers = json.loads(namespace.run("curl", "-sSf", f"{url}/_standin/stats"))["answers"]
            assert answers.keys() <= {"200", "201"}
        finally:
            proxy.terminate()
            proxy.wait(30)
