"""Values of the wrong JSON type: the smallest part that cannot be used goes and is named; nothing is made up."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from watch_builders import endpoint_slice, listing, node, service

from pykubeproxy.model.state import ClusterState
from pykubeproxy.watch.decode import BadObject, Mended, decoder_of
from pykubeproxy.watch.mend import MOST_LINES, mend
from pykubeproxy.watch.objects import EndpointSlice, Node, Service

RESOURCES = {"Service": "services", "EndpointSlice": "endpointslices", "Node": "nodes"}


def decoded(obj):
    return decoder_of(RESOURCES[obj["kind"]]).decode_one(json.dumps(obj).encode())


def mended(obj):
    found = decoded(obj)
    assert isinstance(found, Mended)
    return found.obj, found.lines()


def refused(obj):
    found = decoded(obj)
    assert isinstance(found, BadObject)
    return str(found)


GOOD = {"addresses": ["10.1.0.1"]}


class TestAnEndpointGoesAlone:
    @pytest.mark.parametrize(
        ("bad", "fault"),
        [
            ({"addresses": "10.1.0.9"}, "endpoints[1].addresses: expected array | null, got str"),
            ({"addresses": [None, "10.1.0.9"]}, "endpoints[1].addresses[0]: expected str, got null"),
            ({"addresses": [7, "10.1.0.9"]}, "endpoints[1].addresses[0]: expected str, got int"),
            (
                {"addresses": ["10.1.0.9"], "conditions": {"ready": "yes"}},
                "endpoints[1].conditions.ready: expected bool | null, got str",
            ),
            (
                {"addresses": ["10.1.0.9"], "conditions": {"terminating": 1}},
                "endpoints[1].conditions.terminating: expected bool | null, got int",
            ),
            (
                {"addresses": ["10.1.0.9"], "conditions": []},
                "endpoints[1].conditions: expected object | null, got array",
            ),
            ({"addresses": ["10.1.0.9"], "nodeName": 7}, "endpoints[1].nodeName: expected str | null, got int"),
            (None, "endpoints[1]: expected object, got null"),
        ],
    )
    def test_of_a_slice(self, bad, fault):
        obj, lines = mended(endpoint_slice(endpoints=[GOOD, bad, GOOD]))
        assert [one.addresses for one in obj.endpoints] == [["10.1.0.1"]] * 2
        assert lines == [f"EndpointSlice default/web-1: {fault}; the endpoint is left out"]

    def test_but_loses_only_its_hints_when_those_are_odd(self):
        bad = {"addresses": ["10.1.0.9"], "hints": {"forZones": [{"name": "a"}, {"name": 7}]}}
        obj, lines = mended(endpoint_slice(endpoints=[bad]))
        assert obj.endpoints[0].addresses == ["10.1.0.9"]
        assert obj.endpoints[0].hints is None
        assert lines == [
            "EndpointSlice default/web-1: endpoints[0].hints.forZones[1].name: expected str, got int; hints is left out"
        ]


class TestPlaces:
    def test_of_what_is_left_are_those_of_the_file(self):
        # Found by the model afterwards, in the mended object.
        obj, _ = mended(endpoint_slice(endpoints=[{"addresses": 7}, GOOD, {"addresses": ["nonsense"]}]))
        held = ClusterState("IPv4")
        held.set_slice(obj)
        assert [problem.field for problem in held.problems()] == ["endpoints[2].addresses[0]"]

    def test_of_an_object_that_needs_no_mending_are_not_kept(self):
        assert decoded(endpoint_slice(endpoints=[GOOD])).places is None


class TestAPortGoesAlone:
    @pytest.mark.parametrize(
        ("bad", "fault"),
        [
            ({"port": "80"}, "spec.ports[1].port: expected int, got str"),
            ({"port": 81, "protocol": 6}, "spec.ports[1].protocol: expected str | null, got int"),
            ({"port": 81, "name": ["x"]}, "spec.ports[1].name: expected str | null, got array"),
            (80, "spec.ports[1]: expected object, got int"),
        ],
    )
    def test_of_a_service(self, bad, fault):
        obj, lines = mended(service(spec={"ports": [{"port": 80, "name": "a"}, bad]}))
        assert [port.port for port in obj.spec.ports] == [80]
        assert lines == [f"Service default/web: {fault}; the port is left out"]

    def test_of_a_slice(self):
        obj, lines = mended(endpoint_slice(ports=[{"name": "a", "port": 80}, {"name": "b", "port": "81"}]))
        assert [port.name for port in obj.ports] == ["a"]
        assert lines == [
            "EndpointSlice default/web-1: ports[1].port: expected int | null, got str; the port is left out"
        ]

    def test_but_loses_only_its_node_port_when_that_is_odd(self):
        obj, lines = mended(service(spec={"ports": [{"port": 80, "nodePort": "30080"}]}))
        assert (obj.spec.ports[0].port, obj.spec.ports[0].node_port) == (80, None)
        assert lines == ["Service default/web: spec.ports[0].nodePort: expected int | null, got str; it is left out"]


class TestAFieldGoesAlone:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("type", 7),
            ("externalIPs", "198.51.100.7"),
            ("sessionAffinity", True),
            ("sessionAffinityConfig", "ClientIP"),
            ("externalTrafficPolicy", ["Local"]),
            ("internalTrafficPolicy", 1),
            ("healthCheckNodePort", "30000"),
        ],
    )
    def test_of_a_service(self, field, value):
        obj, lines = mended(service(spec={field: value}))
        assert obj.spec.cluster_ip
        assert len(lines) == 1
        assert lines[0].startswith(f"Service default/web: spec.{field}: expected ")
        assert lines[0].endswith("; it is left out")

    def test_a_load_balancer_address_whose_mode_is_odd_goes(self):
        ingress = [{"ip": "203.0.113.9", "ipMode": 7}, {"ip": "203.0.113.10"}]
        obj, lines = mended(service(status={"loadBalancer": {"ingress": ingress}}))
        assert [one.ip for one in obj.status.load_balancer.ingress] == ["203.0.113.10"]
        assert len(lines) == 1

    def test_a_label_that_says_nothing_to_a_proxy_goes(self):
        obj, lines = mended(service(metadata={"labels": {"app": 5, "tier": "web"}}))
        assert obj.metadata.labels == {"tier": "web"}
        assert lines == ["Service default/web: metadata.labels[app]: expected str; it is left out"]

    def test_of_a_node(self):
        obj, lines = mended(node(spec={"podCIDR": "10.1.0.0/24", "taints": [{"key": 1}, {"key": "x"}]}))
        assert obj.spec.pod_cidr == "10.1.0.0/24"
        assert [taint.key for taint in obj.spec.taints] == ["x"]
        assert lines == ["Node node-a: spec.taints[0].key: expected str, got int; the taint is left out"]


class TestTheObjectGoes:
    @pytest.mark.parametrize(
        "spec",
        [
            {"ports": 7},
            {"ports": [{"port": "80"}]},
            {"clusterIP": 7},
            {"clusterIPs": "10.96.0.1"},
            {"ipFamilies": ["IPv4", 6]},
            {"loadBalancerSourceRanges": "10.0.0.0/8"},
            {"loadBalancerSourceRanges": [7]},
        ],
    )
    def test_when_a_service_would_be_another_one_without_it(self, spec):
        assert refused(service(spec=spec)).startswith(f"Service default/web: spec.{next(iter(spec))}")

    def test_but_source_ranges_that_remain_are_stricter(self):
        obj, lines = mended(service(spec={"loadBalancerSourceRanges": ["10.0.0.0/8", 7]}))
        assert obj.spec.load_balancer_source_ranges == ["10.0.0.0/8"]
        assert len(lines) == 1

    @pytest.mark.parametrize("change", [{"addressType": 4}, {"endpoints": {}}, {"ports": "80"}])
    def test_when_a_slice_would_be_another_one_without_it(self, change):
        assert refused(endpoint_slice() | change).startswith(f"EndpointSlice default/web-1: {next(iter(change))}: ")

    def test_when_a_node_would_lose_its_pod_network(self):
        assert refused(node(spec={"podCIDRs": ["10.1.0.0/24", 7]})).startswith("Node node-a: spec.podCIDRs[1]: ")

    def test_when_nothing_is_left_of_it(self):
        assert refused(endpoint_slice(endpoints=[{"addresses": ["10.1.0.1"], "conditions": {"ready": "yes"}}])) == (
            "EndpointSlice default/web-1: endpoints[0].conditions.ready: expected bool | null, got str"
        )

    @pytest.mark.parametrize(
        "label",
        ["service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless", "kubernetes.io/service-name"],
    )
    def test_when_a_label_is_odd_that_says_whose_it_is(self, label):
        assert refused(service(metadata={"labels": {label: 7}})) == (
            f"Service default/web: metadata.labels[{label}]: expected str"
        )


class TestNull:
    def test_is_as_good_as_absent(self):
        obj, lines = mended(
            service(metadata={"uid": None, "labels": {"a": None}}, spec={"ports": [{"port": None}, {"port": 80}]})
        )
        assert (obj.metadata.uid, obj.metadata.labels) == ("", {"a": ""})
        assert [port.port for port in obj.spec.ports] == [0, 80]
        assert lines == []


class TestMany:
    def test_faults_of_one_object_are_counted(self):
        _, lines = mended(endpoint_slice(endpoints=[GOOD, *[{"addresses": "x"}] * (MOST_LINES + 7)]))
        assert len(lines) == MOST_LINES + 1
        assert lines[-1] == "EndpointSlice default/web-1: and 7 more faults of this kind"

    def test_objects_of_a_list_do_not_harm_each_other(self):
        body = listing(
            service("a"), service("b", spec={"ports": [{"port": 80}, {"port": "81"}]}), service("c") | {"spec": 7}
        )
        found = decoder_of("services").decode_list(body)
        assert [obj.metadata.name for obj in found.objects] == ["a", "b"]
        assert [line for one in found.mended for line in one.lines()] == [
            "Service default/b: spec.ports[1].port: expected int, got str; the port is left out"
        ]
        assert [bad.name for bad in found.bad] == ["c"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 70000) | st.text(max_size=3) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


def spoil(data, tree):
    if data.draw(st.integers(0, 9)) == 0:
        return data.draw(JSON)
    if isinstance(tree, dict):
        return {key: spoil(data, value) for key, value in tree.items()}
    return [spoil(data, item) for item in tree] if isinstance(tree, list) else tree


@pytest.mark.parametrize(("kind", "make"), [(Service, service), (EndpointSlice, endpoint_slice), (Node, node)])
class TestWhatever:
    @given(data=st.data())
    def test_is_there_nothing_is_made_up(self, kind, make, data):
        tree = spoil(data, make())
        obj, lines = mend(kind, tree)
        try:
            whole = msgspec.convert(tree, kind)
        except msgspec.ValidationError:
            found = {} if obj is None else msgspec.to_builtins(obj)
            found.pop(" places", None)
            assert set(texts(found)) <= set(texts(tree)) | {""}
        else:
            assert (obj, lines) == (whole, [])


def texts(tree):
    """Yield every leaf, its type with it: 1 is not True, and "80" not 80."""
    if isinstance(tree, dict):
        for value in tree.values():
            yield from texts(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from texts(value)
    else:
        yield tree if isinstance(tree, str) else (type(tree), tree)
