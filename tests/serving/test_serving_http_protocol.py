from __future__ import annotations

import socket

import pytest
from serving_client import ask, connect, exchange, hello, parse, read_all, read_answer, request, serving
from serving_recordings import answer

from pykubeproxy.serving.connection import Limits
from pykubeproxy.serving.message import Request, Routes, plain


def test_two_requests_on_one_connection():
    with serving(hello()) as address, connect(address) as sock:
        for _ in range(2):
            sock.sendall(request("GET", "/hello?x=1"))
            assert read_answer(sock).body == b"hello "


def test_head_has_the_headers_of_get_and_no_body():
    with serving(hello()) as address, connect(address) as sock:
        sock.sendall(request("HEAD", "/hello"))
        assert read_answer(sock, has_body=False).header("Content-Length") == "6"
        sock.sendall(request("GET", "/hello"))  # had there been a body, this would read it
        assert read_answer(sock).status == 200


def test_requests_sent_in_one_go_are_answered_in_order():
    routes = hello()
    routes.add("/slow", lambda _: plain("slow"))
    with serving(routes) as address:
        raw = request("GET", "/slow") + request("GET", "/hello") + request("GET", "/slow", {"Connection": "close"})
        data = exchange(address, raw)
    assert [part.rsplit(b"\r\n\r\n", 1)[1] for part in data.split(b"HTTP/1.1 ")[1:]] == [b"slow", b"hello ", b"slow"]


@pytest.mark.parametrize("path", ["/hello", "/slow"])
def test_a_client_that_has_shut_its_side_is_answered(path):
    routes = hello()
    routes.add("/slow", lambda _: plain("hello "))
    with serving(routes) as address, connect(address) as sock:
        sock.sendall(request("GET", path) * 2)
        sock.shutdown(socket.SHUT_WR)
        assert read_all(sock).count(b"hello ") == 2


def test_a_client_that_shuts_its_side_in_the_middle_of_a_request_is_let_go():
    with serving(hello()) as address, connect(address) as sock:
        sock.sendall(request("GET", "/hello") + b"GET /he")
        sock.shutdown(socket.SHUT_WR)
        assert read_all(sock).count(b"hello ") == 1


def test_close_is_announced_and_kept():
    with serving(hello()) as address:
        data = parse(exchange(address, request("GET", "/hello", {"Connection": "close"})))
    assert data.headers[-1] == ("Connection", "close")
    assert data.body == b"hello "


def test_http_1_0_closes_unless_asked_to_keep_alive():
    with serving(hello()) as address:
        raw = exchange(address, b"GET /hello HTTP/1.0\r\n\r\n")
        assert raw.startswith(b"HTTP/1.0 200 OK\r\n")
        assert b"Connection" not in raw
        with connect(address) as sock:
            for _ in range(2):
                sock.sendall(b"GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
                assert read_answer(sock).header("Connection") == "keep-alive"


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /hello HTTP/1.0\n\n",
        b"\r\n\r\nGET /hello HTTP/1.0\r\n\r\n",
        b"GET http://somewhere:1/hello HTTP/1.1\r\nHost: somewhere\r\nConnection: close\r\n\r\n",
        b"GET /%68ello HTTP/1.0\r\nX-Odd:\r\nX-Odd: \tb \r\n\r\n",
    ],
)
def test_unusual_but_allowed(raw):
    with serving(hello()) as address:
        assert exchange(address, raw).endswith(b"hello ")


@pytest.mark.parametrize(
    ("raw", "status", "body"),
    [
        (b"nonsense\r\n\r\n", 400, b"400 Bad Request"),
        (b"GET /hello\r\n\r\n", 400, b"400 Bad Request"),
        (b"GET  /hello HTTP/1.1\r\n\r\n", 400, b"400 Bad Request"),
        (b"G@T /hello HTTP/1.1\r\nHost: a\r\n\r\n", 400, b"400 Bad Request"),
        (b"GET /hello HTTP/1.1\r\nHost : a\r\n\r\n", 400, b"400 Bad Request"),
        (b"GET /hello HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400, b"400 Bad Request"),
        (b"GET /hello HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400, b"400 Bad Request"),
        (b"GET /hello HTTP/1.1\r\nHost: a\x00b\r\n\r\n", 400, b"400 Bad Request"),
        (b"GET hello HTTP/1.1\r\nHost: a\r\n\r\n", 400, b"400 Bad Request"),
        (b"GET /hello HTTP/1.1\r\n\r\n", 400, b"400 Bad Request: missing required Host header"),
        (b"GET /hello HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, b"400 Bad Request: too many Host headers"),
        (b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400, b"400 Bad Request: bad Content-Length"),
        (
            b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            400,
            b"400 Bad Request: bad Content-Length",
        ),
        (
            b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
            b"400 Bad Request",
        ),
        (b"GET /hello HTTP/1.1\r\nHost: a\r\nExpect: magic\r\n\r\n", 417, b"417 Expectation Failed"),
        (b"GET /hello HTTP/2.0\r\nHost: a\r\n\r\n", 505, b"505 HTTP Version Not Supported"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, b"400 Bad Request"),
        (
            b"GET /hello HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 101 + b"\r\n",
            431,
            b"431 Request Header Fields Too Large",
        ),
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_ended(raw, status, body):
    with serving(hello()) as address:
        refusal = parse(exchange(address, raw))
        assert (refusal.status, refusal.body) == (status, body)
        assert refusal.header("Connection") == "close"
        assert ask(address, "/hello").status == 200


@pytest.mark.parametrize("has_end", [True, False])
def test_a_head_that_does_not_end_is_refused_at_the_limit(has_end):
    raw = b"GET /hello HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 100_000 + (b"\r\n\r\n" if has_end else b"")
    with serving(hello(), Limits(max_head=8192)) as address:
        refusal = parse(exchange(address, raw))
    assert refusal.status == 431


def test_a_body_is_handed_on_and_what_follows_is_the_next_request():
    with serving(hello()) as address, connect(address) as sock:
        sock.sendall(request("POST", "/hello", body=b"you") + request("GET", "/hello"))
        assert read_answer(sock).body == b"hello you"
        assert read_answer(sock).body == b"hello "


def test_a_body_that_comes_in_pieces():
    raw = request("PUT", "/hello", body=b"abc")
    with serving(hello()) as address, connect(address) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for position in range(len(raw)):
            sock.sendall(raw[position : position + 1])
        assert read_answer(sock).body == b"hello abc"


def test_a_client_that_asks_before_it_sends_its_body_is_told_to_go_on():
    with serving(hello()) as address, connect(address) as sock:
        sock.sendall(b"PUT /hello HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        go_on = b"HTTP/1.1 100 Continue\r\n\r\n"
        assert sock.recv(len(go_on), socket.MSG_WAITALL) == go_on
        sock.sendall(b"abc")
        assert read_answer(sock).body == b"hello abc"


def test_a_body_above_the_limit_is_refused_although_it_is_still_being_sent():
    with serving(hello(), Limits(max_body=1000)) as address:
        refusal = parse(exchange(address, request("POST", "/hello", body=b"x" * 50_000)))
    assert refusal.status == 413


def test_a_body_of_unknown_length_is_not_read_and_ends_the_connection():
    raw = b"POST /hello HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    raw += request("GET", "/hello")
    with serving(hello()) as address:
        data = exchange(address, raw)
    assert data.count(b"HTTP/1.1 200 OK") == 1
    assert data.endswith(b"hello ")


def test_unknown_paths_are_answered_as_recorded():
    with serving(hello()) as address:
        for path in ("/", "/hello/", "/nosuch"):
            ours = ask(address, path)
            recorded = answer("10249-root")
            assert (ours.status, ours.reason, ours.body) == (recorded.status, recorded.reason, recorded.body)


def test_other_methods_than_those_of_a_route_are_refused():
    routes = Routes()
    routes.add("/read", lambda _: plain("read"))
    with serving(routes) as address:
        refusal = ask(address, "/read", "DELETE")
        assert (refusal.status, refusal.body) == (405, b"Method Not Allowed\n")
        assert refusal.header("Allow") == "GET, HEAD"
        assert ask(address, "/read", "HEAD").status == 200


def test_a_handler_that_fails_costs_its_own_answer():
    def fail(_: Request):
        raise KeyError("lost")

    routes = hello()
    routes.add("/quick", fail, is_quick=True)
    routes.add("/slow", fail)
    with serving(routes) as address, connect(address) as sock:
        for path in ("/quick", "/slow"):
            sock.sendall(request("GET", path))
            assert read_answer(sock).status == 500
        sock.sendall(request("GET", "/hello"))
        assert read_answer(sock).status == 200


def test_routes_below_a_prefix_and_their_parameters():
    seen: list[Request] = []

    def remember(request: Request):
        seen.append(request)
        return plain("")

    routes = Routes()
    routes.add("/debug/", lambda _: plain("index"))
    routes.add("/debug/services/", remember)
    with serving(routes) as address:
        ask(address, "/debug/services/ns/a%2Fb?port=80&port=81&empty=")
        assert ask(address, "/debug/else").body == b"index"
    assert seen[0].path == "/debug/services/ns/a/b"
    assert [seen[0].parameter(name) for name in ("port", "empty", "none")] == ["80", "", None]
