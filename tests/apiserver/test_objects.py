"""Objects as they are put from Python or a file, and how they come out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from e2e.apiserver import StandIn, read_objects
from tests.apiserver.asking import SERVICES, SLICES, answer, endpoint_slice, names, service

DOCUMENTS = """
apiVersion: v1
kind: Service
metadata: {name: a, namespace: shop}
spec: {clusterIP: 10.96.0.1}
---
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: node-a}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: a-1, namespace: shop}
  addressType: IPv4
"""


def test_a_file_of_documents_and_lists(tmp_path: Path) -> None:
    path = tmp_path / "objects.yaml"
    path.write_text(DOCUMENTS)
    with StandIn() as server:
        assert server.load_yaml(path) == 3
        assert names(answer(server, SERVICES)[1]) == ["a"]
        assert names(answer(server, "/api/v1/nodes")[1]) == ["node-a"]
        assert server.objects("endpointslices")[0]["ports"] is None


def test_a_json_list(tmp_path: Path) -> None:
    path = tmp_path / "objects.json"
    path.write_text(json.dumps({"kind": "ServiceList", "items": [service("a"), service("b")]}))
    assert len(list(read_objects(path))) == 2


def test_every_object_set_of_the_oracle_loads() -> None:
    cases = sorted((Path(__file__).parents[1] / "oracle" / "cases").glob("*/*objects.yaml"))
    if not cases:
        pytest.skip("the oracle's cases are not here")
    server = StandIn()
    assert all(server.load_yaml(path) for path in cases)


def test_what_is_given_stays_and_what_the_server_makes_is_added() -> None:
    server = StandIn()
    server.put(service("a", uid="1234", labels={"x": "y"}))
    stored = server.get("svc", "default", "a")
    assert stored is not None
    meta = stored["metadata"]
    assert (meta["uid"], meta["resourceVersion"], meta["labels"]) == ("1234", "2", {"x": "y"})
    assert meta["creationTimestamp"].endswith("Z")
    assert "type" not in stored["spec"]


def test_a_change_keeps_uid_and_time_and_counts_generations_of_slices() -> None:
    server = StandIn()
    server.put(endpoint_slice("a", "10.0.0.1"))
    first = server.objects("EndpointSlice")[0]["metadata"]
    server.put(endpoint_slice("a", "10.0.0.1"))
    same = server.objects("EndpointSlice")[0]["metadata"]
    server.put(endpoint_slice("a", "10.0.0.2"))
    changed = server.objects("EndpointSlice")[0]["metadata"]
    assert {each["uid"] for each in (first, same, changed)} == {first["uid"]}
    assert [each["generation"] for each in (first, same, changed)] == [1, 1, 2]
    assert [each["resourceVersion"] for each in (first, same, changed)] == ["2", "3", "4"]


def test_the_object_that_was_put_is_not_changed_nor_kept() -> None:
    obj = service("a")
    before = json.dumps(obj)
    server = StandIn()
    server.put(obj)
    assert json.dumps(obj) == before
    obj["spec"]["clusterIP"] = "changed later"
    assert "changed later" not in json.dumps(server.objects("Service"))


def test_deleting() -> None:
    server = StandIn()
    server.put(service("a"))
    assert server.delete("Service", "default", "a")
    assert not server.delete("Service", "default", "a")
    assert server.objects("Service") == []


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="no resource for apiVersion 'v1', kind 'Secret'"):
        StandIn().put({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}})


def test_odd_values_go_out_as_they_are() -> None:
    with StandIn() as server:
        server.put({**endpoint_slice("a"), "ports": [{"port": None, "new": {"field": 1}}], "endpoints": "nonsense"})
        (item,) = answer(server, SLICES)[1]["items"]
        assert (item["ports"], item["endpoints"]) == ([{"port": None, "new": {"field": 1}}], "nonsense")


def test_ten_thousand_slices_are_listed_whole() -> None:
    with StandIn() as server:
        server.bulk_put(endpoint_slice(f"s{number:05}", "10.0.0.1") for number in range(10_000))
        assert len(answer(server, f"{SLICES}?resourceVersion=0")[1]["items"]) == 10_000
