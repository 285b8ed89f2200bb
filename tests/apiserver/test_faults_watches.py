"""Open watches that stall, end, and say things that they should not say."""

from __future__ import annotations

import pytest

from e2e.apiserver import ManualClock, StandIn
from tests.apiserver.asking import SERVICES, SLICES, answer, endpoint_slice, event, service, watch


def test_a_stalled_watch_says_nothing_and_catches_up_later() -> None:
    with StandIn() as server, watch(server, resourceVersion=1) as client:
        server.faults.stall_watches("services")
        server.put(service("a"))
        server.edge.settle()
        assert client.is_quiet()
        assert server.stats.open_watches("services") == 1
        server.faults.resume_watches()
        assert event(client.line()) == ("ADDED", "a")


def test_only_the_stalled_resource_is_silent() -> None:
    with StandIn() as server, watch(server, SLICES) as client:
        server.faults.stall_watches("services")
        server.put(endpoint_slice("a"))
        assert event(client.line()) == ("ADDED", "a")


@pytest.mark.parametrize("resets", [False, True])
def test_watches_end_without_a_last_chunk(*, resets: bool) -> None:
    with StandIn() as server, watch(server) as client:
        assert server.faults.end_watches(reset=resets) == 1
        assert client.body() == b""
        assert client.is_cut
        server.stats.wait(lambda stats: stats.open_watches() == 0)


def test_each_watch_is_closed_after_so_many_seconds() -> None:
    clock = ManualClock()
    with StandIn(clock=clock) as server:
        server.faults.close_watches_after(5)
        with watch(server) as client:
            clock.wait_for_waiting()
            clock.advance(4.9)
            assert client.is_quiet()
            clock.advance(0.2)
            client.wait_end()
            assert not client.is_cut


def test_a_quiet_server_sends_no_bookmarks() -> None:
    clock = ManualClock()
    with StandIn(clock=clock) as server, watch(server, allowWatchBookmarks="true", timeoutSeconds=3600) as client:
        server.faults.bookmarks(on=False)
        clock.wait_for_waiting()
        clock.advance(600)
        assert client.is_quiet()
        server.faults.bookmarks(on=True)
        clock.advance(60)
        assert client.line()["type"] == "BOOKMARK"


def test_a_bookmark_without_a_version() -> None:
    with StandIn() as server, watch(server) as client:
        assert server.faults.send_bookmark("services") == 1
        line = client.line()
    assert (line["type"], line["object"]["metadata"]) == ("BOOKMARK", {})


def test_blank_lines() -> None:
    with StandIn() as server, watch(server) as client:
        server.faults.send_blank_lines(count=3)
        server.faults.end_watches()
        assert client.body() == b"\n\n\n"


def test_an_object_is_added_twice() -> None:
    with StandIn() as server:
        server.put(service("a"))
        with watch(server) as client:
            server.faults.send_duplicate_added("services")
            assert [event(client.line()) for _ in range(2)] == [("ADDED", "a"), ("ADDED", "a")]


def test_an_unknown_object_is_deleted() -> None:
    with StandIn() as server, watch(server) as client:
        server.faults.send_unknown_deleted("services")
        assert event(client.line()) == ("DELETED", "never-was")


def test_an_error_event_without_reason_and_code() -> None:
    with StandIn() as server, watch(server) as client:
        server.faults.send_error("services")
        line = client.line()
    assert line["type"] == "ERROR"
    assert line["object"].keys().isdisjoint({"reason", "code", "message"})


def test_events_come_last_first() -> None:
    with StandIn() as server, watch(server, resourceVersion=1) as client:
        server.store.bump()
        assert server.faults.reorder_events("services", 3) == 1
        for name in "abcd":
            server.put(service(name))
        assert [event(client.line())[1] for _ in range(4)] == ["c", "b", "a", "d"]


def test_an_event_of_five_megabytes_stands_in_lists_too() -> None:
    with StandIn() as server:
        server.put(service("a"))
        with watch(server) as client:
            client.line()
            server.faults.grow_object("services")
            line = client.line()
        assert len(str(line)) > 5 << 20
        assert answer(server, SERVICES)[1]["items"][0] == {
            key: value for key, value in line["object"].items() if key not in {"kind", "apiVersion"}
        }


def test_half_an_event_then_the_end() -> None:
    with StandIn() as server, watch(server) as client:
        server.faults.cut_watches("services", in_character=True)
        body = client.body()
        assert client.is_cut
    assert body.startswith(b'{"type":"MODIFIED"')
    assert body.endswith(b"\xc3")


def test_any_line_at_all() -> None:
    with StandIn() as server, watch(server) as client:
        server.faults.send_line("services", {"type": "SURPRISE", "object": {}})
        assert client.line() == {"type": "SURPRISE", "object": {}}
