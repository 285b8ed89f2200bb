"""EndpointSlices read and merged (R067): one endpoint for each address and port, the better record wins."""

import itertools

import pytest

from pykubeproxy.model.endpoint import merge, repeated, slice_data
from tests.support.builders import endpoint, endpoint_slice, slice_port


def merged(*slices, port="", protocol="TCP"):
    data = [slice_data(one, "IPv4")[0] for one in slices]
    found = merge(one for one in data if one is not None)
    return next((ends for name, ends in found.items() if (name.port, name.protocol) == (port, protocol)), ())


def states(endpoints):
    return [
        (e.target, "ready" if e.is_ready else "serving" if e.is_serving else "dead", e.is_terminating)
        for e in endpoints
    ]


READY = {"ready": True, "serving": True, "terminating": False}
LEAVING = {"ready": False, "serving": True, "terminating": True}
DEAD = {"ready": False, "serving": False, "terminating": True}
UNREADY = {"ready": False, "serving": False, "terminating": False}


def test_slices_are_merged_and_sorted_as_text():
    found = merged(
        endpoint_slice(endpoints=["10.244.2.1"], name="a"), endpoint_slice(endpoints=["10.244.10.1"], name="b")
    )
    assert [e.target for e in found] == ["10.244.10.1:8080", "10.244.2.1:8080"]


@pytest.mark.parametrize(("better", "worse"), list(itertools.combinations([READY, UNREADY, LEAVING, DEAD], 2)))
def test_between_slices_the_better_record_wins_whatever_the_order(better, worse):
    one = endpoint_slice(endpoints=[endpoint("10.244.0.11", **better)], name="a")
    other = endpoint_slice(endpoints=[endpoint("10.244.0.11", **worse)], name="b")
    (found,) = merged(one, other)
    assert merged(other, one) == (found,)
    assert (found.is_ready, found.is_serving, found.is_terminating) == tuple(better.values())


def test_inside_a_slice_the_later_record_that_does_not_terminate_wins():
    for first, second, wanted in ((READY, UNREADY, "dead"), (UNREADY, READY, "ready"), (READY, LEAVING, "ready"),
                                  (LEAVING, READY, "ready")):  # fmt: skip
        (found,) = merged(
            endpoint_slice(endpoints=[endpoint("10.244.0.11", **first), endpoint("10.244.0.11", **second)])
        )
        assert states([found])[0][1] == wanted


def test_one_address_with_two_ports_is_two_endpoints():
    one = endpoint_slice(endpoints=["10.244.0.11"], name="a", ports=[slice_port(8080)])
    other = endpoint_slice(endpoints=["10.244.0.11"], name="b", ports=[slice_port(8081)])
    assert [e.target for e in merged(one, other)] == ["10.244.0.11:8080", "10.244.0.11:8081"]


def test_ports_go_by_name_and_protocol():
    one = endpoint_slice(endpoints=["10.244.0.11"], ports=[slice_port(53, "dns"), slice_port(53, "dns", "UDP")])
    assert len(merged(one, port="dns")) == 1
    assert len(merged(one, port="dns", protocol="UDP")) == 1
    assert merged(one) == ()


@pytest.mark.parametrize(
    ("conditions", "ready", "serving", "terminating"),
    [
        ({}, True, True, False),
        ({"ready": None}, True, True, False),
        ({"terminating": True}, True, True, True),
        ({"ready": False}, False, True, False),
        ({"serving": False}, True, False, False),
    ],
)
def test_absent_conditions(conditions, ready, serving, terminating):
    (found,) = merged(endpoint_slice(endpoints=[endpoint("10.244.0.1", **conditions)]))
    assert (found.is_ready, found.is_serving, found.is_terminating) == (ready, serving, terminating)


def test_only_the_first_address_of_a_record_counts():
    record = endpoint("10.244.0.1") | {"addresses": ["10.244.0.1", "10.244.0.2"]}
    assert [e.address for e in merged(endpoint_slice(endpoints=[record]))] == ["10.244.0.1"]


def test_a_slice_of_the_other_family_is_none_of_this_one():
    assert slice_data(endpoint_slice(endpoints=["10.244.0.1"], family="IPv6"), "IPv4") == (None, [])


@pytest.mark.parametrize("kind", ["FQDN", "", "Nonsense"])
def test_a_slice_of_no_family_is_named(kind):
    data, (problem,) = slice_data(endpoint_slice(endpoints=["10.244.0.1"], family=kind), "IPv4")
    assert data is None
    assert (problem.name, problem.field) == ("web-1", "addressType")
    assert problem.message == f"{kind!r} is not IPv4 or IPv6; the slice is ignored"


def test_what_is_named_more_than_once_is_told():
    slices = [
        endpoint_slice(name="web-1", endpoints=["10.244.0.1", "10.244.0.2", "10.244.0.3"]),
        endpoint_slice(name="web-2", endpoints=["10.244.0.2", "10.244.0.3"]),
        endpoint_slice(name="web-3", endpoints=["10.244.0.9", "10.244.0.9"]),
    ]
    found = repeated((one.metadata.name, slice_data(one, "IPv4")[0]) for one in slices)
    assert [(problem.name, problem.message) for problem in found] == [
        ("web-2", "10.244.0.2:8080 stands in slice web-1 too (and 1 more); it counts once"),
        ("web-3", "10.244.0.9:8080 stands twice; it counts once"),
    ]


@pytest.mark.parametrize(
    ("more", "field", "count"),
    [
        ({"endpoints": [{"addresses": []}, "10.244.0.1"]}, "endpoints[0].addresses", 1),
        ({"endpoints": [{"addresses": None}, "10.244.0.1"]}, "endpoints[0].addresses", 1),
        ({"endpoints": ["pod.example", "10.244.0.1"]}, "endpoints[0].addresses[0]", 1),
        ({"endpoints": ["fd00::1", "10.244.0.1"]}, "endpoints[0].addresses[0]", 1),
        ({"endpoints": ["10.244.0.01", "10.244.0.2"]}, "endpoints[0].addresses[0]", 2),
        ({"endpoints": ["::ffff:10.244.0.1"]}, "endpoints[0].addresses[0]", 0),
        ({"endpoints": ["10.244.0.1"], "ports": [{"port": 80}]}, "ports[0].name", 0),
        ({"endpoints": ["10.244.0.1"], "ports": [{"name": "", "port": None}]}, "ports[0].port", 0),
        ({"endpoints": ["10.244.0.1"], "ports": [{"name": "", "port": 70000}]}, "ports[0].port", 0),
        ({"endpoints": ["10.244.0.1"], "ports": [slice_port(protocol="tcp")]}, "ports[0].protocol", 0),
        ({"endpoints": ["10.244.0.1"], "labels": {}}, "metadata.labels[kubernetes.io/service-name]", 0),
    ],
)
def test_an_odd_field_is_named_and_the_rest_is_used(more, field, count):
    data, problems = slice_data(endpoint_slice(**more), "IPv4")
    assert [problem.field for problem in problems] == [field]
    assert sum(len(found) for found in merge([data] if data else []).values()) == count


@pytest.mark.parametrize(
    ("endpoints", "ports"), [(None, None), ([], None), (["10.244.0.1"], None), (None, [slice_port()])]
)
def test_null_lists_are_empty_lists(endpoints, ports):
    obj = endpoint_slice(endpoints=endpoints)
    obj.ports = None if ports is None else obj.ports
    obj.endpoints = None if endpoints is None else obj.endpoints
    data, problems = slice_data(obj, "IPv4")
    assert problems == []
    assert merge([data]) == {}
