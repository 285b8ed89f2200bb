"""An API source against a server whose answers go wrong in every way: it ends up with what the server holds."""

import random
import threading

import pytest
from watch_builders import endpoint_slice, node, service
from watch_server import following, open_sockets, until

from e2e.apiserver import ManualClock, StandIn
from pykubeproxy.watch import client as client_module
from pykubeproxy.watch import reflector as reflector_module


def hurried(seconds):
    """Wait a thousandth of what was asked for."""
    return seconds / 1000


def names_on(server, kind):
    return sorted(obj["metadata"]["name"] for obj in server.objects(kind))


class TestBeginning:
    def test_hands_over_all_three_resources(self, tmp_path):
        with StandIn(tls=True, tokens=["secret"]) as server:
            server.bulk_put([service("a"), endpoint_slice("a-1"), node("node-a"), node("node-b")])
            with following(server, tmp_path, token="secret") as (source, receivers):  # noqa: S106
                until(lambda: all(status.has_synced for status in source.statuses.values()))
                assert {name: receiver.names for name, receiver in receivers.items()} == {
                    "services": ["a"],
                    "endpointslices": ["a-1"],
                    "nodes": ["node-a"],
                }

    def test_has_synced_without_a_node(self, tmp_path):
        with StandIn() as server:
            server.faults.hang(resource="nodes", times=None)
            with following(server, tmp_path) as (source, _):
                until(lambda: source.has_synced)
                assert not source.statuses["nodes"].has_synced

    def test_has_not_synced_while_one_list_hangs(self, tmp_path):
        with StandIn() as server:
            server.faults.hang(resource="endpointslices")
            with following(server, tmp_path) as (source, _):
                until(lambda: source.statuses["services"].has_synced)
                assert not source.has_synced

    def test_an_empty_cluster_is_synced(self, tmp_path):
        with StandIn() as server, following(server, tmp_path) as (source, _):
            until(lambda: source.has_synced)


class TestFollowing:
    def test_changes_come_through(self, tmp_path):
        with StandIn() as server, following(server, tmp_path) as (source, receivers):
            until(lambda: source.has_synced)
            got = receivers["services"]
            server.put(service("a"))
            until(lambda: got.names == ["a"])
            server.put(service("a", cluster_ip="10.96.0.77"))
            until(lambda: got.objects["default", "a"].spec.cluster_ip == "10.96.0.77")
            server.delete("services", "default", "a")
            until(lambda: got.names == [])
            assert server.stats.count("list", "services") == 1

    def test_an_object_that_stops_matching_goes(self, tmp_path):
        with StandIn() as server, following(server, tmp_path) as (_, receivers):
            server.put(service("a"))
            until(lambda: receivers["services"].names == ["a"])
            server.put(service("a", metadata={"labels": {"service.kubernetes.io/service-proxy-name": "x"}}))
            until(lambda: receivers["services"].names == [])

    def test_ten_quiet_minutes_and_a_cut_need_no_list(self, tmp_path):
        clock = ManualClock()
        with StandIn(clock=clock) as server:
            server.put(service("a"))
            with following(server, tmp_path, sleep=hurried) as (source, receivers):
                server.stats.wait(lambda stats: stats.open_watches("services") == 1)
                status = source.statuses["services"]
                for minute in range(4):
                    server.put(endpoint_slice(f"busy-{minute}"))  # moves the version that bookmarks carry
                    clock.advance(61)
                    until(lambda minute=minute: status.events > minute)
                server.faults.drop_connections(reset=True)
                server.stats.wait(lambda stats: stats.count("watch", "services") >= 2)
                server.put(service("b"))
                until(lambda: receivers["services"].names == ["a", "b"])
                assert server.stats.count("list", "services") == 1

    def test_a_server_without_field_selectors_is_filtered_here(self, tmp_path):
        with StandIn() as server:
            server.faults.reject_field_selectors()
            server.bulk_put([service("a"), service("headless", cluster_ip="None")])
            with following(server, tmp_path) as (source, receivers):
                until(lambda: source.has_synced)
                server.put(service("b", cluster_ip="None"))
                server.put(service("c"))
                until(lambda: "c" in receivers["services"].names)
                assert receivers["services"].names == ["a", "c"]


class TestTrouble:
    def test_of_each_kind_is_got_over(self, tmp_path):
        with StandIn() as server:
            server.bulk_put([service("a"), endpoint_slice("a-1")])
            with following(server, tmp_path, sleep=hurried) as (source, receivers):
                until(lambda: source.has_synced)
                faults = server.faults
                for index, trouble in enumerate(
                    (
                        lambda: faults.answer(410, resource="services", times=3),
                        lambda: faults.answer(410, resource="services", verb="watch", in_stream=True, times=3),
                        lambda: faults.answer(500, times=5),
                        lambda: faults.answer(429, times=2, retry_after=1),
                        lambda: faults.answer(403, times=2),
                        lambda: faults.cut(100, verb="list", reset=True),
                        lambda: faults.cut(30, verb="watch", times=3),
                        lambda: faults.cut_in_character(verb="watch", times=3),
                        faults.cut_watches,
                        lambda: faults.cut_watches(in_character=True, reset=True),
                        faults.send_blank_lines,
                        lambda: faults.send_line("services", '{"type":"MODIFIED","object":{"metadata":\n'),
                        lambda: faults.send_line("services", b"\xff\xfe\x00\n"),
                        lambda: faults.send_duplicate_added("services"),
                        lambda: faults.send_unknown_deleted("services"),
                        lambda: faults.send_error("services"),
                        lambda: faults.send_error("services", code=410),
                        lambda: faults.send_error("services", message="too old resource version: 1 (2)"),
                        lambda: faults.send_bookmark("services"),
                        lambda: faults.grow_object("services", 5 << 20),
                        faults.compact,
                        faults.restart,
                        lambda: faults.drop_connections(reset=True),
                    )
                ):
                    server.stats.wait(lambda stats: stats.open_watches() == 3)
                    trouble()
                    faults.end_watches("services")
                    name = f"after-{index}"
                    server.put(service(name))
                    until(lambda name=name: name in receivers["services"].names)
                    assert receivers["services"].names == names_on(server, "services")

    def test_of_many_kinds_at_once_is_got_over(self, tmp_path):
        rng = random.Random(7)
        with StandIn() as server:
            faults = server.faults
            with following(server, tmp_path, sleep=hurried) as (source, receivers):
                until(lambda: source.has_synced)
                acts = (
                    lambda: server.put(service(f"s{rng.randrange(20)}", cluster_ip=f"10.96.1.{rng.randrange(250)}")),
                    lambda: server.put(service(f"s{rng.randrange(20)}", cluster_ip="None")),
                    lambda: server.delete("services", "default", f"s{rng.randrange(20)}"),
                    lambda: server.put(
                        endpoint_slice(f"e{rng.randrange(20)}", addresses=(f"10.1.{rng.randrange(250)}.1",))
                    ),
                    lambda: server.delete("endpointslices", "default", f"e{rng.randrange(20)}"),
                    lambda: faults.answer(rng.choice((410, 429, 500, 503)), in_stream=rng.random() < 0.5),
                    lambda: faults.cut(rng.randrange(2000), reset=rng.random() < 0.5),
                    lambda: faults.cut_watches(in_character=rng.random() < 0.5),
                    lambda: faults.send_line("*", bytes(rng.randrange(256) for _ in range(20)) + b"\n"),
                    faults.end_watches,
                    faults.compact,
                    lambda: faults.drop_connections(reset=rng.random() < 0.5),
                )
                for _ in range(600):
                    rng.choice(acts)()
                faults.clear()

                def services_on_server():
                    found = (obj for obj in server.objects("services") if obj["spec"]["clusterIP"] != "None")
                    return {(obj["metadata"]["name"], obj["spec"]["clusterIP"]) for obj in found}

                def services_here():
                    return {(name, obj.spec.cluster_ip) for (_, name), obj in receivers["services"].objects.items()}

                def slices_on_server():
                    found = server.objects("endpointslices")
                    return {(obj["metadata"]["name"], obj["endpoints"][0]["addresses"][0]) for obj in found}

                def slices_here():
                    found = receivers["endpointslices"].objects
                    return {(name, obj.endpoints[0].addresses[0]) for (_, name), obj in found.items()}

                until(lambda: services_here() == services_on_server())
                until(lambda: slices_here() == slices_on_server())

    def test_a_server_back_from_a_backup_is_listed_anew(self, tmp_path, monkeypatch):
        monkeypatch.setattr(reflector_module, "READ_TIMEOUT", 0.2)
        with StandIn() as server:
            server.bulk_put(service(f"s{n}") for n in range(30))
            with following(server, tmp_path, sleep=hurried) as (source, receivers):
                until(lambda: source.has_synced)
                server.faults.bookmarks(on=False)
                server.faults.restart(version=3)
                server.delete("services", "default", "s7")
                until(lambda: "s7" not in receivers["services"].names)
                assert receivers["services"].names == names_on(server, "services")

    def test_a_server_that_takes_connections_and_says_nothing(self, tmp_path, monkeypatch):
        monkeypatch.setattr(client_module, "LIST_TIMEOUT", 0.2)
        with StandIn() as server:
            server.faults.hang(verb="list", times=6)
            with following(server, tmp_path, sleep=hurried) as (source, _):
                status = source.statuses["services"]
                until(lambda: status.consecutive_failures > 0)
                assert not source.has_synced
                until(lambda: source.has_synced)

    def test_a_token_that_is_replaced(self, tmp_path):
        token = tmp_path / "token"
        token.write_text("one")
        with (
            StandIn(tokens=["one"]) as server,
            following(server, tmp_path, sleep=hurried, token_file=token) as (source, receivers),
        ):
            until(lambda: source.has_synced)
            server.faults.set_tokens(["two"])
            server.faults.drop_connections()
            until(lambda: "401" in source.statuses["services"].last_error)
            token.write_text("two")
            server.put(service("after"))
            until(lambda: receivers["services"].names == ["after"])

    def test_a_ca_that_is_replaced(self, tmp_path):
        with StandIn(tls=True) as server:
            ca = tmp_path / "ca.crt"
            ca.write_bytes(server.ca_path.read_bytes())
            with following(server, tmp_path, sleep=hurried, ca=ca) as (source, receivers):
                until(lambda: source.has_synced)
                server.faults.rotate_ca()
                until(lambda: "certificate" in source.statuses["services"].last_error)
                ca.write_bytes(server.ca_path.read_bytes())
                server.put(service("after"))
                until(lambda: receivers["services"].names == ["after"])

    def test_an_event_that_is_too_long(self, tmp_path, monkeypatch):
        monkeypatch.setattr(client_module, "MAX_LINE", 1 << 20)
        with StandIn() as server:
            server.bulk_put([service("a"), service("b")])
            with following(server, tmp_path, sleep=hurried) as (source, receivers):
                server.stats.wait(lambda stats: stats.open_watches("services") == 1)
                server.faults.grow_object("services", 2 << 20, name="a")
                until(lambda: source.statuses["services"].relists == 1)
                server.put(service("after"))
                until(lambda: receivers["services"].names == ["a", "after", "b"])


class TestLeaks:
    def test_a_thousand_watches_leave_nothing_behind(self, tmp_path):
        with StandIn() as server:
            server.faults.close_watches_after(0)
            with following(server, tmp_path, sleep=lambda _: 0) as (source, _):
                until(lambda: all(server.stats.count("watch", resource) > 20 for resource in source.statuses))
                threads, sockets = threading.active_count(), open_sockets()
                until(lambda: server.stats.count("watch") > 1050, timeout=60)
                assert threading.active_count() == threads
                assert open_sockets() <= sockets
                assert server.stats.connections_ever == 3

    def test_nor_do_a_few_hundred_that_are_cut(self, tmp_path):
        with StandIn() as server:
            server.faults.cut(10, verb="watch", times=None, reset=True)
            server.put(service("a"))
            server.faults.send_duplicate_added("services")
            with following(server, tmp_path, sleep=lambda _: 0) as (source, _):
                until(lambda: source.has_synced)
                server.faults.answer(500, verb="list", times=None)
                threads = threading.active_count()
                for _ in range(200):
                    server.faults.drop_connections(reset=True)
                assert threading.active_count() == threads
                until(lambda: server.stats.connections_open <= 3)


class TestStopping:
    @pytest.mark.parametrize("tls", [False, True])
    @pytest.mark.parametrize("trouble", ["none", "hang", "mute", "refuse"])
    def test_is_prompt(self, tmp_path, tls, trouble):
        with StandIn(tls=tls) as server:
            if trouble == "hang":
                server.faults.hang(times=None)
            with following(server, tmp_path) as (source, _):
                if trouble == "hang":
                    server.stats.wait(lambda stats: stats.connections_open == 3)
                else:
                    until(lambda: source.has_synced)
                    server.stats.wait(lambda stats: stats.open_watches() == 3)
                if trouble == "mute":
                    server.faults.mute_connections()
                if trouble == "refuse":
                    server.faults.refuse_connections()
                source.stop(10)
                assert not any(reflector._thread.is_alive() for reflector in source._reflectors.values())
