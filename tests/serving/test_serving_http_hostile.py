"""Clients that are slow, silent, greedy or mad must cost nobody else anything."""

from __future__ import annotations

import os
import resource
import select
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving_client import ask, connect, hello, read_all, read_answer, request, running, serving

from pykubeproxy.serving.connection import Limits
from pykubeproxy.serving.message import Response, plain


def test_a_client_that_says_nothing_is_let_go():
    with serving(hello(), Limits(head_timeout=0.2)) as address, connect(address) as sock:
        assert read_all(sock) == b""


def test_a_client_that_drips_is_let_go_although_it_never_pauses_for_long():
    with serving(hello(), Limits(head_timeout=0.3)) as address, connect(address) as sock:
        sock.sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\n")
        ended = threading.Event()

        def drip() -> None:
            try:
                while not ended.wait(0.02):
                    sock.sendall(b"X: y\r\n")
            except OSError:
                pass

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            assert read_all(sock) == b""
        finally:
            ended.set()
            thread.join()


def test_a_body_that_never_comes_ends_the_wait():
    with serving(hello(), Limits(head_timeout=0.2)) as address, connect(address) as sock:
        sock.sendall(b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
        assert read_all(sock) == b""


def test_an_idle_connection_is_closed():
    with serving(hello(), Limits(idle_timeout=0.2)) as address, connect(address) as sock:
        sock.sendall(request("GET", "/hello"))
        assert read_answer(sock).status == 200
        assert read_all(sock) == b""


def test_more_slow_clients_than_places_do_not_keep_a_good_one_out():
    limits = Limits(max_connections=8, head_timeout=600)
    with serving(hello(), limits) as address, ExitStack() as stack:
        for number in range(30):
            sock = stack.enter_context(connect(address))
            if number % 2:
                sock.sendall(b"GET /hello HT")
            assert ask(address, "/hello").status == 200


def test_connections_beyond_the_limit_are_those_that_waited_longest():
    limits = Limits(max_connections=2, head_timeout=600)
    with serving(hello(), limits) as address, connect(address) as first, connect(address) as second:
        for sock in (second, first):  # so that the second is the one that has waited longest
            sock.sendall(request("GET", "/hello"))
            assert read_answer(sock).status == 200
        with connect(address) as third:
            assert read_all(second) == b""
            third.sendall(request("GET", "/hello"))
            assert read_answer(third).status == 200
            first.sendall(request("GET", "/hello"))
            assert read_answer(first).status == 200


def test_answers_in_the_making_are_not_displaced():
    release = threading.Event()
    begun = threading.Semaphore(0)

    def slow(_):
        begun.release()
        release.wait(30)
        return plain("done")

    routes = hello()
    routes.add("/slow", slow)
    with serving(routes, Limits(max_connections=2)) as address, connect(address) as one, connect(address) as two:
        for sock in (one, two):
            sock.sendall(request("GET", "/slow"))
            assert begun.acquire(timeout=30)
        with connect(address) as late:
            assert read_all(late) == b""
        release.set()
        assert read_answer(one).body == b"done"
        assert read_answer(two).body == b"done"


def test_slow_handlers_do_not_keep_quick_ones_waiting():
    release = threading.Event()
    routes = hello()

    def slow(_):
        release.wait(30)
        return plain("done")

    routes.add("/slow", slow)
    with serving(routes) as address, ExitStack() as stack:
        socks = [stack.enter_context(connect(address)) for _ in range(20)]
        for sock in socks:
            sock.sendall(request("GET", "/slow"))
        assert ask(address, "/hello").status == 200
        release.set()
        assert [read_answer(sock).body for sock in socks] == [b"done"] * 20


def test_a_client_that_does_not_take_its_answer_is_let_go():
    routes = hello()
    routes.add("/big", lambda _: Response(200, b"x" * 20_000_000), methods=None)
    with serving(routes, Limits(write_timeout=0.3)) as address:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(30)
            sock.connect(address)
            sock.sendall(request("GET", "/big"))
            sock.recv(1)
            assert ask(address, "/hello").status == 200
            other = ask(address, "/big")
            assert len(other.body) == 20_000_000
            wait_until_gone(sock)
        assert ask(address, "/hello").status == 200


def wait_until_gone(sock: socket.socket) -> None:
    """Wait, without reading, until the other side has reset the connection."""
    poller = select.poll()
    poller.register(sock, 0)  # hang-up and error are always reported
    assert poller.poll(30_000) != []


def test_a_big_answer_arrives_whole_and_the_connection_goes_on():
    routes = hello()
    body = os.urandom(1 << 20) * 4
    routes.add("/big", lambda _: Response(200, body))
    with serving(routes) as address, connect(address) as sock:
        for _ in range(2):
            sock.sendall(request("GET", "/big") + request("GET", "/hello"))
            assert read_answer(sock).body == body
            assert read_answer(sock).body == b"hello "


def test_a_flood_of_requests_on_one_connection_while_an_answer_is_made_is_kept_within_bounds():
    release = threading.Event()
    routes = hello()

    def slow(_):
        release.wait(30)
        return plain("done")

    routes.add("/slow", slow)
    with serving(routes, Limits(max_head=1000, max_body=1000)) as address, connect(address) as sock:
        sock.sendall(request("GET", "/slow"))
        sock.setblocking(False)
        sent = 0
        with_bounds = False
        for _ in range(100_000):
            try:
                sent += sock.send(request("GET", "/hello") * 1000)
            except BlockingIOError:
                with_bounds = True
                break
        assert with_bounds, sent
        release.set()
        sock.settimeout(30)
        assert read_answer(sock).body == b"done"


def test_clients_that_vanish_leave_nothing_behind():
    with running() as server:
        (address,) = server.serve("test", ["127.0.0.1:0"], hello()).addresses
        ask(address, "/hello")
        before = open_files()
        for _ in range(50):
            with connect(address) as sock:
                sock.sendall(b"GET /hel")
        for _ in range(50):
            ask(address, "/hello")
        wait_for(lambda: open_files() <= before)


def test_running_out_of_files_is_a_pause_and_not_the_end():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving(hello()) as address, socket.socket() as sock:
        ask(address, "/hello")
        sock.settimeout(30)
        resource.setrlimit(resource.RLIMIT_NOFILE, (sock.fileno() + 1, hard))
        try:
            sock.connect(address)
            sock.sendall(request("GET", "/hello"))
            assert select.select([sock], [], [], 0.2)[0] == []
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert read_answer(sock).status == 200


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def wait_for(condition) -> None:
    tick = threading.Event()
    for _ in range(3000):
        if condition():
            return
        tick.wait(0.01)
    raise AssertionError("the condition did not become true")


def test_no_bytes_whatever_stop_the_server():
    with serving(hello(), Limits(head_timeout=0.05, idle_timeout=0.05)) as address:

        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            st.one_of(
                st.binary(max_size=300),
                st.lists(
                    st.sampled_from(
                        [
                            b"GET ",
                            b"/hello",
                            b" HTTP/1.1",
                            b"\r\n",
                            b"Host: a",
                            b":",
                            b"\0",
                            b"Content-Length: ",
                            b"3",
                            b"\xff",
                        ]
                    ),
                    max_size=20,
                ).map(b"".join),
            )
        )
        def send(raw: bytes) -> None:
            with connect(address) as sock:
                sock.sendall(raw)
                sock.shutdown(socket.SHUT_WR)
                read_all(sock)

        send()
        assert ask(address, "/hello").status == 200
