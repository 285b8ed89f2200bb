"""Lists and objects into structs: everything good comes through, everything bad is named."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from watch_builders import endpoint_slice, listing, node, service
from watch_recordings import names, recording

from pykubeproxy.watch.decode import BadObject, ObjectDecoder, UndecodableError, decode_status, decoder_of
from pykubeproxy.watch.objects import EndpointSlice, Service

SERVICES = ObjectDecoder(Service)
SLICES = ObjectDecoder(EndpointSlice)


def problem_of(decoder, obj):
    bad = decoder.decode_one(json.dumps(obj).encode())
    assert isinstance(bad, BadObject)
    return str(bad)


class TestRecordedLists:
    @pytest.mark.parametrize("name", [name for name in names() if b'"items"' in recording(name).body])
    def test_all_decode(self, name):
        found = recording(name)
        kind = json.loads(found.body)["kind"]
        resource = {"ServiceList": "services", "EndpointSliceList": "endpointslices", "NodeList": "nodes"}[kind]
        decoded = decoder_of(resource).decode_list(found.body)
        assert decoded.bad == []
        assert len(decoded.objects) == len(json.loads(found.body)["items"])
        assert decoded.resource_version

    def test_pages_carry_their_token(self):
        assert SERVICES.decode_list(recording("06-list-page-1").body).continue_token
        assert SERVICES.decode_list(recording("09-list-page-4").body).continue_token == ""


class TestProblems:
    def test_name_object_and_field(self):
        assert (
            problem_of(SERVICES, service(spec={"ports": [{"port": "eighty"}]}))
            == "Service default/web: spec.ports[0].port: expected int, got str"
        )
        assert (
            problem_of(SLICES, endpoint_slice(endpoints=[{"addresses": "10.1.0.1"}]))
            == "EndpointSlice default/web-1: endpoints[0].addresses: expected array | null, got str"
        )
        assert problem_of(decoder_of("nodes"), node(spec=[])) == "Node node-a: spec: expected object | null, got array"

    def test_of_objects_that_cannot_be_named(self):
        for obj in (7, [], {}, {"metadata": None}, {"metadata": {"name": 7}}, {"metadata": {"name": ""}}):
            assert problem_of(SERVICES, obj).startswith("Service without a readable name: ")

    def test_keep_the_version(self):
        bad = SERVICES.decode_one(json.dumps(service(version="7", spec={"ports": 1})).encode())
        assert isinstance(bad, BadObject)
        assert bad.resource_version == "7"

    def test_of_one_hide_no_other(self):
        body = listing(service("a"), service("b", spec={"ports": 7}), 7, None, {"metadata": {}}, service("c"))
        decoded = SERVICES.decode_list(body)
        assert [obj.metadata.name for obj in decoded.objects] == ["a", "c"]
        assert len(decoded.bad) == 4

    def test_of_a_nameless_one_hide_no_other(self):
        decoded = SERVICES.decode_list(listing(service("a"), {"metadata": {"namespace": "x"}}, service("c")))
        assert [obj.metadata.name for obj in decoded.objects] == ["a", "c"]
        assert [str(bad) for bad in decoded.bad] == ["Service without a readable name: metadata.name: is missing"]

    @given(st.binary(max_size=100))
    def test_of_a_whole_list_are_one_kind_of_error(self, data):
        with suppress(UndecodableError):
            SERVICES.decode_list(data)

    def test_a_list_of_something_else_is_none(self):
        with pytest.raises(UndecodableError, match="a PodList, not a ServiceList"):
            SERVICES.decode_list(listing(kind="PodList"))


class TestWhatIsKept:
    def test_unknown_fields_are_skipped(self):
        decoded = SERVICES.decode_one(json.dumps(service(status={"conditions": [{"x": 1}]}, new={"a": [1]})).encode())
        assert isinstance(decoded, Service)

    def test_kubectls_copy_of_the_object_is_not(self):
        notes = {"kubectl.kubernetes.io/last-applied-configuration": "{" * 1000, "other": "stays"}
        decoded = SERVICES.decode_list(listing(service(metadata={"annotations": notes}))).objects[0]
        assert decoded.metadata.annotations == {"other": "stays"}

    def test_strings_that_repeat_are_shared(self):
        one, two = SLICES.decode_list(
            listing(endpoint_slice("a", "ns-of-many"), endpoint_slice("b", "ns-of-many"), kind="EndpointSliceList")
        ).objects
        assert one.metadata.namespace is two.metadata.namespace
        assert one.endpoints is not None
        assert two.endpoints is not None
        assert one.endpoints[0].node_name is two.endpoints[0].node_name


class TestStatus:
    def test_reads_when_to_come_back(self):
        status = decode_status(recording("14-list-future-rv").body)
        assert status is not None
        assert status.details is not None
        assert status.details.retry_after_seconds == 1

    def test_is_none_for_anything_else(self):
        for data in (b"", b"<html>", b"[]", b'{"code":"x"}', b"\xff"):
            assert decode_status(data) is None
