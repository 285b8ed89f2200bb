"""Connections that hang, break off, or are not made at all."""

from __future__ import annotations

import contextlib
import socket

import pytest

from e2e.apiserver import ManualClock, StandIn
from tests.apiserver.asking import SERVICES, answer, ask, names, service, watch
from tests.apiserver.wireclient import WireClient


def test_a_request_is_taken_and_never_answered() -> None:
    with StandIn() as server:
        server.faults.hang(verb="list")
        with ask(server, SERVICES) as client:
            server.stats.wait(lambda stats: stats.count("list") == 1)
            server.edge.settle()
            client.sock.settimeout(0.05)
            with pytest.raises(TimeoutError):
                client.head()
        assert answer(server, SERVICES)[0] == 200


@pytest.mark.parametrize("resets", [False, True])
def test_an_answer_breaks_off_in_the_middle_of_its_json(*, resets: bool) -> None:
    with StandIn() as server:
        server.bulk_put([service(f"s{number}") for number in range(50)])
        server.faults.cut(1234, verb="list", reset=resets)
        with ask(server, SERVICES) as client:
            client.head()
            assert len(client.body()) == 1234
            assert client.is_cut


def test_an_answer_breaks_off_inside_a_character() -> None:
    with StandIn() as server:
        server.put(service("a", annotations={"place": "Café"}))
        server.faults.cut_in_character(10, verb="list")
        with ask(server, SERVICES) as client:
            client.head()
            body = client.body()
            assert client.is_cut
    assert body.endswith(b"Caf\xc3")


def test_plain_ascii_breaks_off_inside_a_character_too() -> None:
    with StandIn() as server:
        server.faults.cut_in_character(10, verb="list")
        with ask(server, SERVICES) as client:
            client.head()
            assert client.body() == b'{"kind":"S\xc3'


def test_a_watch_breaks_off_after_so_many_bytes() -> None:
    with StandIn() as server:
        server.faults.cut(100, verb="watch")
        with watch(server) as client:
            server.put(service("a"))
            assert len(client.body()) == 100
            assert client.is_cut


def test_an_answer_trickles() -> None:
    clock = ManualClock()
    with StandIn(clock=clock) as server:
        server.faults.trickle(1.0, verb="list")
        with ask(server, SERVICES) as client:
            client.head()
            for _ in range(3):
                clock.wait_for_waiting()
                clock.advance(1)
            server.edge.settle()
            client.is_quiet()
            assert len(client._body) == 4


def test_connections_are_refused_and_open_ones_end() -> None:
    with StandIn() as server, watch(server) as client:
        port = server.port
        server.faults.refuse_connections()
        assert client.body() == b""
        assert client.is_cut
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        server.faults.accept_connections()
        assert server.port == port
        assert answer(server, SERVICES)[0] == 200


def test_connections_are_made_by_the_kernel_and_nobody_reads() -> None:
    with StandIn() as server:
        server.faults.mute_connections()
        with ask(server, SERVICES) as client:
            client.sock.settimeout(0.05)
            with pytest.raises(TimeoutError):
                client.head()
        server.faults.accept_connections()
        assert answer(server, SERVICES)[0] == 200


def test_a_server_that_stopped_starts_again_on_its_port_with_its_objects() -> None:
    with StandIn() as server:
        server.put(service("a"))
        port = server.port
        server.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        server.start()
        assert (server.port, names(answer(server, SERVICES)[1])) == (port, ["a"])


def test_stopping_does_not_wait_for_anyone() -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(StandIn(tls=True))
        silent = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))  # no TLS handshake
        server.stop()
        assert silent.recv(1) == b""


def test_requests_follow_one_another_on_one_connection() -> None:
    with StandIn() as server, WireClient("127.0.0.1", server.port) as client:
        for _ in range(2):
            client.send("GET", SERVICES)
            assert client.head()[0] == 200
            client.body()
            client._body, client.has_ended = b"", False
        assert server.stats.connections_ever == 1


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("turns", [0, 1])
def test_a_connection_accepted_just_now_is_closed_with_the_others(*, tls: bool, turns: int) -> None:
    # An unclosed socket is a warning, and that an error.
    with StandIn(tls=tls) as server:
        edge = server.edge
        server.faults.mute_connections()
        with socket.create_connection(("127.0.0.1", server.port)) as client:

            async def accept_and_drop() -> None:
                assert edge.loop is not None
                assert edge._listener is not None
                if turns:
                    edge.loop.call_soon(edge._accept_from, edge._listener)
                else:
                    edge._accept_from(edge._listener)
                await edge.drop_connections()

            edge.call(accept_and_drop)
            server.stop()
            client.settimeout(60)
            with contextlib.suppress(ConnectionError):
                assert client.recv(1) == b""
            assert edge.connections == {}
