"""Manifest files that break, at the start and later: no rule goes, and /readyz names the file."""

import json
import signal

import pytest

from tests.lifecycle.bare import BACKENDS
from tests.support.node import eventually, node

pytestmark = pytest.mark.netns


def put(path, name, number, endpoint):
    objects = [
        {
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": {"name": name},
            "spec": {"clusterIP": f"10.96.0.{number}", "ports": [{"port": 80}]},
        },
        {
            "kind": "EndpointSlice",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "ports": [{"port": 8080}],
            "endpoints": [{"addresses": [endpoint]}],
        },
    ]
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))


def readyz(it):
    status, body = it.get(10256, "/readyz")
    return status, json.loads(body or "{}")


MISSPELT = """{"kind": "Servce", "apiVersion": "v1", "metadata": {"name": "b"}, "spec": {"clusterIP": "10.96.0.2"}}"""


@pytest.mark.parametrize(
    ("backend", "broken", "why"),
    [(backend, '{"kind": "List", "items": [', "no JSON") for backend in BACKENDS]
    + [("nft", MISSPELT, "Service default/b: kind: v1 Servce is unknown; did you mean Service?")],
)
def test_a_file_that_is_broken_at_the_start_costs_nothing(backend, broken, why):
    with node(backend) as it:
        folder = it.folder / "manifests"
        folder.mkdir()
        put(folder / "a.json", "a", 1, "10.244.0.1")
        put(folder / "b.json", "b", 2, "10.244.0.2")
        it.start("--manifests", str(folder))
        it.wait_ready()
        it.stop(signal.SIGKILL)
        put(folder / "a.json", "a", 1, "10.244.0.11")
        (folder / "b.json").write_text(broken)
        it.start("--manifests", str(folder))
        eventually(lambda: "10.244.0.11:8080" in it.save("IPv4", "nat"), "the other file is served")
        assert "10.244.0.1:8080" not in it.save("IPv4", "nat")
        assert "10.244.0.2:8080" in it.save("IPv4", "nat")
        status, body = readyz(it)
        assert status == 503
        assert f"manifests: {folder}/b.json:1: {why}" in body["reasons"][0]
        bad = int(broken == MISSPELT)
        assert f'pykubeproxy_bad_objects_total{{resource="services"}} {bad}\n' in it.get(10249, "/metrics")[1]
        put(folder / "b.json", "b", 2, "10.244.0.22")
        it.wait_ready()
        eventually(lambda: "10.244.0.22:8080" in it.save("IPv4", "nat"), "the mended file is served")
        eventually(lambda: "10.244.0.2:8080" not in it.save("IPv4", "nat"), "the old endpoint goes")


def test_a_file_that_breaks_later_is_told_and_costs_nothing():
    with node("nft") as it:
        folder = it.folder / "manifests"
        folder.mkdir()
        put(folder / "a.json", "a", 1, "10.244.0.1")
        it.start("--manifests", str(folder), "--status-page")
        it.wait_ready()
        assert "notes" not in readyz(it)[1]
        (folder / "a.json").write_text("")
        note = eventually(lambda: readyz(it)[1].get("notes"), "the file is named")[0]
        assert f"{folder}/a.json: is empty, as a file that is being written; its last good content is in force" in note
        assert readyz(it)[0] == 200
        assert "10.244.0.1:8080" in it.save("IPv4", "nat")
        assert "a.json: is empty" in it.get(10249, "/")[1]
        told = it.get(10249, "/debug/state")[1]
        assert json.loads(told)["notes"] == [note]
        put(folder / "a.json", "a", 1, "10.244.0.11")
        eventually(lambda: "10.244.0.11:8080" in it.save("IPv4", "nat"), "the mended file is served")
        eventually(lambda: "notes" not in readyz(it)[1], "nothing is left to tell")
