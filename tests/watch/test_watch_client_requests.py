"""What the client makes of answers: bodies, lines, refusals, and everything that a wire can do to them."""

import gzip
import json
import socket
import threading
import time

import pytest
from watch_builders import bookmark, line, service
from watch_recordings import recording
from watch_server import chunked, client_of, http, raw_server, until

from e2e.apiserver import StandIn
from pykubeproxy.config.options import ClientOptions
from pykubeproxy.errors import ApiError, GoneError, SilentError, StreamError
from pykubeproxy.watch import client as client_module
from pykubeproxy.watch.client import connect, refusal


def session_to(url):
    return connect(ClientOptions(master=url), environ={}).session()


def lines_of(url, read_timeout=10.0):
    stream = session_to(url).watch("services", {"watch": "1"}, read_timeout=read_timeout)
    try:
        return list(stream)
    finally:
        stream.close()


class TestLists:
    def test_body_and_parameters(self):
        with raw_server(http(b'{"items":[]}')) as (url, requests):
            assert session_to(url).list("endpointslices", {"labelSelector": "!a/b"}) == b'{"items":[]}'
        head = requests[0].decode()
        assert head.startswith("GET /apis/discovery.k8s.io/v1/endpointslices?labelSelector=%21a%2Fb HTTP/1.1\r\n")
        assert "Accept: application/json\r\n" in head
        assert "User-Agent: pykubeproxy/" in head
        assert "uthorization" not in head

    def test_compressed(self):
        body = json.dumps({"items": ["x" * 100] * 10_000}).encode()
        with raw_server(http(gzip.compress(body), headers="Content-Encoding: gzip\r\n")) as (url, requests):
            assert session_to(url).list("services", {}) == body
        assert b"Accept-Encoding: gzip" in requests[0]

    @pytest.mark.parametrize(
        "answer",
        [
            b"",
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{",
            b"nonsense\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        ],
    )
    def test_cut_or_torn_are_an_api_error(self, answer):
        with raw_server(answer) as (url, _), pytest.raises(ApiError, match=r"^list services: "):
            session_to(url).list("services", {})

    def test_refused_connections_are_an_api_error(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with pytest.raises(ApiError, match=r"^list services: .*refused") as caught:
            session_to(f"http://127.0.0.1:{port}").list("services", {})
        assert caught.value.code == 0
        assert "\n" not in str(caught.value)

    def test_unknown_hosts_are_an_api_error(self):
        with pytest.raises(ApiError, match="list services: "):
            session_to("http://no-such-host.invalid").list("services", {})

    def test_silence_is_told_apart(self):
        with raw_server(lambda sock: sock.recv(1)) as (url, _), pytest.raises(SilentError):
            session_to(url).watch("services", {}, read_timeout=0.2)

    def test_keep_one_connection(self):
        with StandIn() as server:
            session = session_to(server.url)
            for _ in range(20):
                session.list("services", {})
            assert server.stats.connections_ever == 1
            session.close()
            server.stats.wait(lambda stats: stats.connections_open == 0)


class TestLines:
    def test_come_without_their_ends(self):
        with raw_server(chunked(b'{"a":1}\n{"b":2}\n')) as (url, _):
            assert lines_of(url) == [b'{"a":1}', b'{"b":2}']

    def test_may_be_cut_into_chunks_anywhere(self):
        whole = line("ADDED", service("café", metadata={"annotations": {"x": "日本語 🎉"}}))
        text = json.dumps(json.loads(whole), ensure_ascii=False).encode() + b"\n"
        pieces = [text[at : at + 1] for at in range(len(text))]
        with raw_server(chunked(*pieces, text, text[:7], text[7:])) as (url, _):
            assert lines_of(url) == [text[:-1]] * 3

    def test_that_are_empty_come_empty(self):
        with raw_server(chunked(b"\n\n", b"a\n\n")) as (url, _):
            assert lines_of(url) == [b"", b"", b"a", b""]

    def test_that_are_cut_off_do_not_come(self):
        with raw_server(chunked(b"whole\n", b'{"type":"MODIFIED","obj')) as (url, _):
            assert lines_of(url) == [b"whole"]

    def test_before_a_broken_connection_come_first(self):
        with raw_server(chunked(b"whole\n", b"ha", ends=False)) as (url, _):
            got = []
            with pytest.raises(ApiError, match=r"^watch services: "):
                got.extend(session_to(url).watch("services", {}, read_timeout=10))
            assert got == [b"whole"]

    def test_of_five_megabytes_come_whole(self):
        with StandIn() as server:
            version = str(server.put(service()))
            params = {"watch": "1", "resourceVersion": version}
            stream = session_to(server.url).watch("services", params, read_timeout=10)
            server.faults.grow_object("services", 5 << 20)
            big = next(iter(stream))
            stream.close()
        assert len(big) > 5 << 20
        assert json.loads(big)["type"] == "MODIFIED"

    def test_that_never_end_are_given_up(self, monkeypatch):
        monkeypatch.setattr(client_module, "MAX_LINE", 1 << 20)
        with (
            raw_server(chunked(*[b"x" * 65536] * 40)) as (url, _),
            pytest.raises(StreamError, match="longer than 1 MiB"),
        ):
            lines_of(url)

    def test_that_trickle_come(self):
        def trickle(sock):
            sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for byte in bookmark("7") + b"\n":
                sock.sendall(bytes([byte]))
                time.sleep(0.001)

        with raw_server(trickle) as (url, _):
            assert lines_of(url, read_timeout=5) == [bookmark("7")]

    def test_silence_is_told_apart(self):
        def quiet(sock):
            sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na\n\r\n")
            sock.recv(1)

        with raw_server(quiet) as (url, _), pytest.raises(SilentError, match=r"^watch services: "):
            lines_of(url, read_timeout=0.2)

    def test_a_watch_read_to_its_end_keeps_the_connection(self):
        with StandIn() as server:
            server.faults.close_watches_after(0)
            session = session_to(server.url)
            for _ in range(5):
                stream = session.watch("services", {"watch": "1"}, read_timeout=10)
                assert list(stream) == []
                stream.close()
            assert server.stats.connections_ever == 1
            session.close()

    def test_a_watch_given_up_closes_its_connection(self):
        with StandIn() as server:
            session = session_to(server.url)
            for _ in range(5):
                session.watch("services", {"watch": "1"}, read_timeout=10).close()
            server.stats.wait(lambda stats: stats.connections_open == 0)
            assert len(session._sockets) == 0
            session.close()


class TestRefusals:
    def test_say_what_the_server_says(self):
        for name, expected in (
            ("17-no-rights", '403 Forbidden: services is forbidden: User "nobody" cannot list resource "services"'),
            ("15-unknown-resource", "404"),
            ("11-list-bad-field-selector", "400 BadRequest: field label not supported: spec.nosuch"),
            ("16-unknown-token", "401 Unauthorized: Unauthorized"),
        ):
            found = recording(name)
            error = refusal("list services", found.status, "Reason", None, found.body)
            assert str(error).startswith(f"list services: {expected}")
            assert error.code == found.status
            assert not isinstance(error, GoneError)

    def test_410_is_gone(self):
        for name in ("29-list-expired-continue", "30-list-exact-old-version"):
            found = recording(name)
            assert isinstance(refusal("list services", found.status, "Gone", None, found.body), GoneError)
        assert isinstance(refusal("watch services", 410, "Gone", None, b""), GoneError)

    def test_say_when_to_come_back(self):
        found = recording("14-list-future-rv")
        assert refusal("list", 504, "Gateway Timeout", None, found.body).retry_after == 1
        assert refusal("list", 429, "Too Many Requests", "17", b"").retry_after == 17
        assert refusal("list", 429, "Too Many Requests", "Wed, 21 Oct 2026 07:28:00 GMT", b"").retry_after is None

    def test_may_be_anything(self):
        for body in (b"", b"<html>\n<h1>Bad Gateway</h1>", b"\xff", b"[]", b'{"code": "x"}', b"null"):
            error = refusal("list services", 502, "Bad Gateway", None, body)
            assert str(error).startswith("list services: 502 Bad Gateway")
            assert error.code == 502

    def test_come_with_their_headers_over_the_wire(self):
        with StandIn() as server:
            server.faults.answer(429, retry_after=17)
            with pytest.raises(ApiError) as caught:
                session_to(server.url).list("services", {})
        assert (caught.value.code, caught.value.retry_after) == (429, 17)

    def test_of_any_length_end(self):
        with raw_server(http(b"x" * 1_000_000, status="500 Oops")) as (url, _):
            with pytest.raises(ApiError, match="list services: 500") as caught:
                session_to(url).list("services", {})
            assert len(str(caught.value)) < 1000

    def test_keep_the_connection(self):
        with StandIn() as server:
            server.faults.answer(503, times=5)
            session = session_to(server.url)
            for _ in range(5):
                with pytest.raises(ApiError):
                    session.list("services", {})
            session.list("services", {})
            assert server.stats.connections_ever == 1
            session.close()


class TestAbort:
    def started(self, call):
        """Begin ``call`` in a thread; return the thread and the list that its ApiError will be in."""
        errors = []

        def run():
            try:
                call()
            except ApiError as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread, errors

    @pytest.mark.parametrize("tls", [False, True])
    def test_ends_a_watch_that_is_read(self, tmp_path, tls):
        with StandIn(tls=tls) as server:
            session = client_of(server, tmp_path).session()
            stream = session.watch("services", {"watch": "1"}, read_timeout=60)
            thread, _ = self.started(lambda: list(stream))
            session.abort()
            thread.join(10)
            assert not thread.is_alive()
            stream.close()
            with pytest.raises(ApiError, match="stopped"):
                session.list("services", {})

    @pytest.mark.parametrize("tls", [False, True])
    def test_ends_a_request_that_is_not_answered(self, tmp_path, tls):
        with StandIn(tls=tls) as server:
            server.faults.hang()
            session = client_of(server, tmp_path).session()
            thread, errors = self.started(lambda: session.list("services", {}))
            server.stats.wait(lambda stats: stats.connections_open == 1)
            until(lambda: len(session._sockets) == 1)
            session.abort()
            thread.join(10)
            assert not thread.is_alive()
            assert len(errors) == 1

    def test_may_come_first(self):
        session = session_to("http://127.0.0.1:1")
        session.abort()
        with pytest.raises(ApiError, match="stopped"):
            session.list("services", {})


class TestSockets:
    def test_notice_a_dead_peer(self):
        with StandIn() as server:
            session = session_to(server.url)
            session.list("services", {})
            (sock,) = session._sockets
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 25_000
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            session.close()
