"""What is listed, how, and what becomes of it."""

import json

from structlog.testing import capture_logs
from watch_builders import Receiver, Script, bookmark, endpoint_slice, error_line, follow, line, listing, node, service

from pykubeproxy.errors import ApiError, GoneError

GONE = error_line(code=410, reason="Expired", message="too old resource version: 10 (99)")


class TestTheFirstList:
    def test_asks_for_any_version_and_for_no_pages(self):
        script = Script(lists=[listing(service())])
        follow(script)
        assert script.lists_asked == [
            {
                "labelSelector": "!service.kubernetes.io/service-proxy-name",
                "fieldSelector": "spec.clusterIP!=None",
                "resourceVersion": "0",
            }
        ]

    def test_asks_so_again_when_it_fails(self):
        script = Script(lists=[ApiError("no"), listing(service())])
        reflector, receiver = follow(script)
        assert [params["resourceVersion"] for params in script.lists_asked] == ["0", "0"]
        assert reflector.has_synced
        assert receiver.names == ["web"]

    def test_is_handed_over_whole(self):
        _, receiver = follow(Script(lists=[listing(service("a"), service("b"))]))
        assert receiver.calls == [("replace", ["a", "b"])]

    def test_of_nothing_is_a_list_too(self):
        for items in ([], None):
            body = json.dumps({"kind": "ServiceList", "metadata": {"resourceVersion": "1"}, "items": items}).encode()
            reflector, receiver = follow(Script(lists=[body]))
            assert reflector.has_synced
            assert receiver.calls == [("replace", [])]

    def test_that_is_no_list_is_no_sync(self):
        for body in (
            b"",
            b"<html>",
            b"[]",
            b'{"kind":"Status"}',
            b'{"kind":"ServiceList","items":[]}',
            b'{"items":"\xff"}',
        ):
            reflector, receiver = follow(Script(lists=[body]))
            assert not reflector.has_synced
            assert receiver.calls == []


class TestSelectors:
    def test_of_endpointslices(self):
        script = Script(lists=[listing(endpoint_slice(), kind="EndpointSliceList")])
        _, receiver = follow(script, resource="endpointslices")
        assert script.lists_asked == [{"labelSelector": "!service.kubernetes.io/headless", "resourceVersion": "0"}]
        assert receiver.names == ["web-1"]

    def test_of_nodes(self):
        script = Script(lists=[listing(node("node-a"), node("node-b"), kind="NodeList")])
        _, receiver = follow(script, resource="nodes")
        assert script.lists_asked == [{"fieldSelector": "metadata.name=node-a", "resourceVersion": "0"}]
        assert receiver.names == ["node-a"]

    def test_a_refused_field_selector_is_left_out_and_done_here(self):
        headless = service("headless", cluster_ip="None")
        script = Script(
            lists=[ApiError("field label not supported", code=400), listing(service(), headless)],
            watches=[[line("ADDED", headless), bookmark("12")]],
        )
        reflector, receiver = follow(script)
        assert "fieldSelector" not in script.asked[1]
        assert all("fieldSelector" not in params for params in script.asked[1:])
        assert receiver.names == ["web"]
        assert script.clock.sleeps[:1] != [0.0]
        assert reflector.status.relists == 0

    def test_a_field_selector_refused_at_the_watch_is_left_out_too(self):
        script = Script(lists=[listing(service())], watches=[ApiError("no", code=400), [bookmark("11")]])
        _reflector, _ = follow(script)
        assert [("fieldSelector" in params) for params in script.watches_asked[:2]] == [True, False]
        assert len(script.lists_asked) == 1

    def test_an_object_that_stops_matching_is_deleted(self):
        gone_headless = service("a", cluster_ip="None", version="11")
        labelled = service(
            "b", metadata={"labels": {"service.kubernetes.io/service-proxy-name": "other"}}, version="12"
        )
        script = Script(
            lists=[listing(service("a"), service("b"))],
            watches=[[line("MODIFIED", gone_headless), line("MODIFIED", labelled)]],
        )
        _, receiver = follow(script)
        assert receiver.calls[1:] == [("delete", "a"), ("delete", "b")]


class TestALaterList:
    def test_asks_for_no_version_and_in_pages(self):
        script = Script(
            lists=[
                listing(service("old")),
                listing(service("a"), more="t1", remaining=2, version="50"),
                listing(service("b"), more="t2", remaining=1, version="50"),
                listing(service("c"), version="50"),
            ],
            watches=[[GONE]],
        )
        reflector, receiver = follow(script)
        asked = [
            {key: params.get(key) for key in ("resourceVersion", "limit", "continue")} for params in script.lists_asked
        ]
        assert asked[1:4] == [
            {"resourceVersion": None, "limit": "500", "continue": None},
            {"resourceVersion": None, "limit": "500", "continue": "t1"},
            {"resourceVersion": None, "limit": "500", "continue": "t2"},
        ]
        assert receiver.calls[-1] == ("replace", ["a", "b", "c"])
        assert script.watches_asked[1]["resourceVersion"] == "50"
        assert reflector.status.relists == 1

    def test_that_expires_between_pages_starts_over_whole(self):
        script = Script(
            lists=[
                listing(service("old")),
                listing(service("a"), more="t1", version="50"),
                GoneError("the continue token is too old", code=410),
                listing(service("a"), service("b"), version="60"),
            ],
            watches=[[GONE]],
        )
        _, receiver = follow(script)
        assert "limit" not in script.lists_asked[3]
        assert "continue" not in script.lists_asked[3]
        assert receiver.calls[-1] == ("replace", ["a", "b"])

    def test_half_of_which_fails_hands_over_nothing(self):
        script = Script(
            lists=[listing(service("old")), listing(service("a"), more="t1", version="50"), ApiError("cut off")],
            watches=[[GONE]],
        )
        _, receiver = follow(script)
        assert receiver.calls == [("replace", ["old"])]

    def test_that_lacks_an_object_says_that_it_is_gone(self):
        script = Script(lists=[listing(service("a"), service("b")), listing(service("b"))], watches=[[GONE]])
        _, receiver = follow(script)
        assert receiver.names == ["b"]


class TestABadObject:
    BAD = service("bad", spec={"ports": [{"port": "eighty"}]})

    def test_in_the_first_list_hides_no_other(self):
        reflector, receiver = follow(Script(lists=[listing(service("a"), self.BAD, service("b"))]))
        assert receiver.names == ["a", "b"]
        assert reflector.status.bad_objects == 1
        assert reflector.has_synced

    def test_is_named_with_its_field_in_one_line(self):
        with capture_logs() as logs:
            follow(Script(lists=[listing(service("a"), self.BAD)]))
        assert [entry["problem"] for entry in logs if entry["event"].startswith("object ignored")] == [
            "Service default/bad: spec.ports[0].port: expected int, got str"
        ]

    def test_in_a_later_list_keeps_its_last_state(self):
        script = Script(
            lists=[listing(service("a"), service("bad"), service("gone")), listing(service("a"), self.BAD)],
            watches=[[GONE]],
        )
        reflector, receiver = follow(script)
        assert receiver.names == ["a", "bad"]
        assert receiver.objects["default", "bad"].spec.ports[0].port == 80
        assert reflector.status.bad_objects == 1

    def test_is_used_in_part_where_that_can_be_and_named(self):
        odd = service("odd", version="11", spec={"ports": [{"port": 80}, {"port": "eighty"}]})
        again = service("odd", version="12", spec={"ports": [{"port": 80}, {"port": []}]})
        with capture_logs() as logs:
            reflector, receiver = follow(Script(lists=[listing(odd)], watches=[[line("MODIFIED", again)]]))
        assert [entry["problem"] for entry in logs if entry["event"] == "object used in part"] == [
            "Service default/odd: spec.ports[1].port: expected int, got str; the port is left out",
            "Service default/odd: spec.ports[1].port: expected int, got array; the port is left out",
        ]
        assert [port.port for port in receiver.objects["default", "odd"].spec.ports] == [80]
        assert reflector.status.bad_objects == 2

    def test_that_was_kept_is_deleted_when_it_goes(self):
        script = Script(
            lists=[listing(service("bad")), listing(self.BAD), listing()],
            watches=[[GONE], [GONE]],
        )
        _, receiver = follow(script)
        assert receiver.names == []

    def test_in_an_event_keeps_its_last_state_and_the_watch_goes_on(self):
        bad = service("a", version="11", spec={"ports": "none"})
        script = Script(
            lists=[listing(service("a"))],
            watches=[[line("MODIFIED", bad), line("ADDED", service("b", version="12"))]],
        )
        reflector, receiver = follow(script)
        assert receiver.names == ["a", "b"]
        assert receiver.objects["default", "a"].spec.ports is not None
        assert reflector.status.bad_objects == 1
        assert len(script.lists_asked) == 1

    def test_moves_the_version_on(self):
        bad = service("a", version="11", spec={"ports": "none"})
        script = Script(lists=[listing()], watches=[[line("ADDED", bad)]])
        follow(script)
        assert [params["resourceVersion"] for params in script.watches_asked] == ["10", "11"]

    def test_can_be_deleted(self):
        bad = service("a", version="11", spec={"ports": "none"})
        script = Script(lists=[listing(service("a"))], watches=[[line("DELETED", bad)]])
        _, receiver = follow(script)
        assert receiver.names == []

    def test_with_null_for_lists_is_a_good_one(self):
        empty = endpoint_slice(endpoints=None, ports=None)
        no_port = endpoint_slice("no-port", ports=[{"name": None, "port": None}])
        fqdn = endpoint_slice("fqdn", addressType="FQDN", addresses=("example.org",), unknown={"field": [1]})
        script = Script(lists=[listing(empty, no_port, fqdn, kind="EndpointSliceList")])
        reflector, receiver = follow(script, resource="endpointslices", receiver=Receiver())
        assert receiver.names == ["fqdn", "no-port", "web-1"]
        assert reflector.status.bad_objects == 0
