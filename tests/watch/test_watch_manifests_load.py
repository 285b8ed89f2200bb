"""Manifests as people write them: every shape is read, what is left out is filled in, what is wrong is named."""

import json
from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from watch_builders import endpoint_slice, listing, node, service

from pykubeproxy.watch.manifests import ManifestError, load, parse

HAND_WRITTEN = """
apiVersion: v1
kind: Service
metadata:
  name: web
  creationTimestamp: 2026-11-30T12:47:27Z
spec:
  selector: {app: web}
  clusterIP: 10.96.0.10
  ports:
  - port: 80
    targetPort: http
---
# only a comment
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  labels: {kubernetes.io/service-name: web}
addressType: IPv4
endpoints:
- addresses: [10.1.0.1]
ports:
- port: 8080
"""


def write(folder, **files):
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("_", ".")).write_text(text)
    return [str(folder)]


def only(objects):
    (obj,) = objects
    return obj


class TestDefaults:
    def test_of_a_service(self, tmp_path):
        found = load(write(tmp_path, a_yaml=HAND_WRITTEN))
        web = only(found.services)
        assert web.metadata.namespace == "default"
        assert web.metadata.creation_timestamp == "2026-11-30T12:47:27Z"
        assert web.spec.type == "ClusterIP"
        assert web.spec.ports[0].protocol == "TCP"
        assert web.spec.cluster_ips == ["10.96.0.10"]
        assert web.spec.ip_families == ["IPv4"]
        assert web.spec.session_affinity == "None"
        assert web.spec.internal_traffic_policy == "Cluster"
        assert found.problems == []

    def test_of_a_dual_stack_service(self, tmp_path):
        obj = service(spec={"clusterIPs": ["fd00::1", "10.96.0.10"]})
        del obj["spec"]["clusterIP"]
        spec = only(load(write(tmp_path, a_json=obj)).services).spec
        assert spec.cluster_ip == "fd00::1"
        assert spec.ip_families == ["IPv6", "IPv4"]

    def test_of_a_slice(self, tmp_path):
        one = only(load(write(tmp_path, a_yaml=HAND_WRITTEN)).slices)
        assert one.metadata.namespace == "default"
        assert (one.ports[0].name, one.ports[0].protocol) == ("", "TCP")
        assert one.endpoints[0].conditions is None

    def test_do_not_overwrite(self, tmp_path):
        spec = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 53, "protocol": "UDP"}]}
        found = only(load(write(tmp_path, a_json=service(namespace="dns", spec=spec))).services)
        assert found.metadata.namespace == "dns"
        assert found.spec.external_traffic_policy == "Local"
        assert found.spec.ports[0].protocol == "UDP"

    def test_what_an_api_server_would_allocate_is_named(self, tmp_path):
        no_ip = service("no-ip")
        del no_ip["spec"]["clusterIP"]
        found = load(write(tmp_path, a_json=no_ip, b_json=service("np", spec={"type": "NodePort"})))
        assert [problem.split(": ", 1)[1] for problem in found.problems] == [
            "Service default/no-ip: spec.clusterIP: is missing, and there is no API server to allocate one",
            "Service default/np: spec.ports[0].nodePort: is missing, and there is no API server to allocate one",
        ]

    def test_an_external_name_needs_no_address(self, tmp_path):
        obj = service(spec={"type": "ExternalName", "externalName": "example.org"})
        del obj["spec"]["clusterIP"]
        assert load(write(tmp_path, a_json=obj)).problems == []


class TestShapes:
    def same(self, folder, **files):
        found = load(write(folder, **files))
        assert found.problems == []
        return sorted(obj.metadata.name for obj in found.services)

    def test_documents(self, tmp_path):
        assert self.same(tmp_path, a_yaml=yaml.dump_all([service("a"), service("b")])) == ["a", "b"]

    def test_json(self, tmp_path):
        assert self.same(tmp_path, a_json=service("a")) == ["a"]

    def test_json_documents_in_a_row(self, tmp_path):
        text = json.dumps(service("a"), indent=1) + "\n" + json.dumps(service("b")) + json.dumps(service("c")) + "\n\n"
        assert self.same(tmp_path, a_json=text) == ["a", "b", "c"]

    def test_yaml_that_begins_like_json(self, tmp_path):
        text = "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: 10.96.0.1}}"
        assert self.same(tmp_path, a_yaml=text) == ["a"]

    @pytest.mark.parametrize("dump", [json.dumps, yaml.dump])
    def test_lists(self, tmp_path, dump):
        inner = {"kind": "List", "apiVersion": "v1", "items": [service("b"), service("c")]}
        outer = {"kind": "List", "apiVersion": "v1", "items": [service("a"), inner, node()]}
        assert self.same(tmp_path, a_yaml=dump(outer)) == ["a", "b", "c"]

    def test_typed_lists_as_a_server_answers_them(self, tmp_path):
        bare = service("a")
        del bare["kind"], bare["apiVersion"]
        slices = json.loads(listing(endpoint_slice(), kind="EndpointSliceList"))
        slices["apiVersion"] = "discovery.k8s.io/v1"
        for item in slices["items"]:
            del item["kind"], item["apiVersion"]
        paths = write(tmp_path, a_json=listing(bare).decode(), b_json=slices)
        found = load(paths)
        assert [obj.metadata.name for obj in found.services] == ["a"]
        assert [obj.metadata.name for obj in found.slices] == ["web-1"]

    def test_empty_files_and_lists(self, tmp_path):
        empty = {"kind": "List", "apiVersion": "v1", "items": None}
        assert self.same(tmp_path, a_yaml="", b_yaml="---\n---\n", c_json=empty, d_yaml="# nothing\n") == []

    def test_other_kinds_are_skipped(self, tmp_path):
        knative = service("not-ours") | {"apiVersion": "serving.knative.dev/v1"}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "x"}}
        endpoints = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "x"}}
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"items": "x"}}
        text = yaml.dump_all([service("a"), knative, account, endpoints, config, config])
        assert self.same(tmp_path, a_yaml=text) == ["a"]
        assert parse(text.encode(), "f").skipped == {
            "serving.knative.dev/v1 Service": 1,
            "v1 ServiceAccount": 1,
            "v1 Endpoints": 1,
            "v1 ConfigMap": 2,
        }

    def test_of_the_selectors(self, tmp_path):
        labelled = service("labelled", metadata={"labels": {"service.kubernetes.io/service-proxy-name": "other"}})
        hidden = endpoint_slice("hidden", metadata={"labels": {"service.kubernetes.io/headless": ""}})
        text = yaml.dump_all([service("a"), service("headless", cluster_ip="None"), labelled, hidden])
        found = load(write(tmp_path, a_yaml=text))
        assert [obj.metadata.name for obj in found.services] == ["a"]
        assert found.slices == []
        assert found.problems == []


class TestFolders:
    def test_are_read_in_the_order_of_names_and_not_into_the_depth(self, tmp_path):
        (tmp_path / "deep").mkdir()
        write(tmp_path / "deep", a_yaml=service("deep"))
        (tmp_path / "..hidden.yaml").write_text("kind: [")
        (tmp_path / "notes.txt").write_text("kind: [")
        write(tmp_path, b_yml=service("b"), a_yaml=service("a"), c_json=service("c"))
        assert [obj.metadata.name for obj in load([str(tmp_path)]).services] == ["a", "b", "c"]

    def test_that_hold_nothing_are_a_problem(self, tmp_path):
        assert "no manifests in this folder" in only(load([str(tmp_path)]).problems)

    def test_that_are_not_there_are_a_problem(self, tmp_path):
        assert load([str(tmp_path / "no")]).problems == [f"{tmp_path}/no: No such file or directory"]


class TestProblems:
    def test_name_file_line_object_and_field(self, tmp_path):
        text = "# one\n" + yaml.dump_all([service("a"), service("bad", spec={"ports": [{"port": "x"}]})])
        found = load(write(tmp_path, a_yaml=text))
        line = text[: text.index("---")].count("\n") + 2
        assert found.problems == [
            f"{tmp_path}/a.yaml:{line}: Service default/bad: spec.ports[0].port: expected int, got str"
        ]
        assert [obj.metadata.name for obj in found.services] == ["a"]

    def test_leave_out_the_part_that_makes_no_sense(self, tmp_path):
        odd = endpoint_slice(namespace="", endpoints=[{"addresses": ["10.1.0.1"]}, {"addresses": "10.1.0.2"}])
        found = load(write(tmp_path, a_yaml=yaml.dump(odd)))
        fault = "endpoints[1].addresses: expected array | null, got str; the endpoint is left out"
        assert found.problems == [f"{tmp_path}/a.yaml:1: EndpointSlice default/web-1: {fault}"]
        assert [one.addresses for one in found.slices[0].endpoints] == [["10.1.0.1"]]

    def test_name_the_line_of_an_item(self, tmp_path):
        text = "kind: List\nitems:\n- kind: Service\n  apiVersion: v1\n- kind: Node\n  metadata: {name: 7}\n"
        assert load(write(tmp_path, a_yaml=text)).problems == [
            f"{tmp_path}/a.yaml:3: Service without a readable name: metadata: is missing",
            f"{tmp_path}/a.yaml:5: Node without a readable name: metadata.name: expected str, got int",
        ]

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ({"kind": "Servce"}, "Service default/web: kind: v1 Servce is unknown; did you mean Service?"),
            ({"kind": "service"}, "Service default/web: kind: v1 service is unknown; did you mean Service?"),
            ({"apiVersion": "v2"}, "Service default/web: apiVersion: v2 is not read; did you mean v1?"),
            (
                {"kind": "Node", "apiVersion": "v1beta1"},
                "Node web: apiVersion: v1beta1 is not read; did you mean v1?",
            ),
            (
                {
                    "kind": "EndpointSlice",
                    "apiVersion": "discovery.k8s.io/v2",
                    "metadata": {"name": "a", "namespace": "b"},
                },
                "EndpointSlice b/a: apiVersion: discovery.k8s.io/v2 is not read; did you mean discovery.k8s.io/v1?",
            ),
        ],
    )
    def test_of_words_that_are_nearly_ours_say_which_are_meant(self, tmp_path, words, said):
        found = load(write(tmp_path, a_json=service("web") | words))
        assert found.problems == [f"{tmp_path}/a.json:1: {said}"]
        assert [str(fault) for fault in found.faults] == [said]

    def test_of_syntax_name_the_line(self, tmp_path):
        write(tmp_path, good_yaml=service("good"), bad_yaml="kind: Service\nmetadata: {name: a\nspec: x\n")
        write(tmp_path, bad_json='{"kind": "Service",\n "spec": }')
        found = load([str(tmp_path)])
        assert [obj.metadata.name for obj in found.services] == ["good"]
        assert [problem.split(" ")[0] for problem in found.problems] == [
            f"{tmp_path}/bad.json:2:",
            f"{tmp_path}/bad.yaml:3:",
        ]

    def test_of_twins_name_both_files(self, tmp_path):
        write(tmp_path, a_yaml=service("web", cluster_ip="10.96.0.1"), b_yaml=service("web", cluster_ip="10.96.0.2"))
        found = load([str(tmp_path)])
        assert only(found.services).spec.cluster_ip == "10.96.0.2"
        a, b = tmp_path / "a.yaml", tmp_path / "b.yaml"
        assert found.problems == [f"{b}: Service default/web is also in {a}; the one in {b} counts"]

    def test_of_twins_in_one_file(self, tmp_path):
        twins = [service("web", cluster_ip="10.96.0.1"), service("web", cluster_ip="10.96.0.2")]
        found = load(write(tmp_path, a_yaml=yaml.dump_all(twins)))
        assert only(found.services).spec.cluster_ip == "10.96.0.2"
        assert "comes twice in this file" in only(found.problems)

    @pytest.mark.parametrize(
        "text", ["7", "[1, 2]", "text", '{"metadata": {}}', "kind: 7", "kind: Service\nmetadata: {}"]
    )
    def test_of_documents_that_are_no_objects(self, tmp_path, text):
        assert len(load(write(tmp_path, a_yaml=text)).problems) >= 1

    @given(st.text(max_size=60) | st.binary(max_size=60))
    def test_are_the_only_answer_to_rubbish(self, data):
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        with suppress(ManifestError):
            parse(raw, "rubbish")

    @pytest.mark.parametrize(
        "data", [b"[" * 5000, b'{"a":' * 5000, b"a: !!python/object:os.system {}\n", b"\xff\xfe\x00"]
    )
    def test_are_the_answer_to_the_malicious(self, data):
        with pytest.raises(ManifestError):
            parse(data, "rubbish")
