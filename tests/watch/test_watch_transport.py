"""Every way to fail on the way to the API server, over real sockets: one plain sentence, with the server in it."""

import json
import socket
import struct
import threading

import pytest
from watch_server import chunked, client_of, http, raw_server

from e2e.apiserver import StandIn
from pykubeproxy.config.options import ClientOptions
from pykubeproxy.errors import ApiError, SilentError
from pykubeproxy.watch import client as client_module
from pykubeproxy.watch.client import connect


def failure_of(url, kind=ApiError):
    """Return what listing fails with, "list services: " taken off, the server's address written as S."""
    with pytest.raises(kind) as caught:
        connect(ClientOptions(master=url), environ={}).session().list("services", {})
    said = str(caught.value)
    assert said.startswith("list services: ")
    assert "Error" not in said
    return said.removeprefix("list services: ").replace(url, "S")


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "S closed the connection without an answer"),
        (reset, "the connection to S was reset"),
        (b"junk\r\n\r\n", "what S answers is no HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n", "what S answers is no HTTP"),
        (http(b"{}")[:-1], "the answer of S broke off"),
        (chunked(b"{}", ends=False), "the answer of S broke off"),
        (chunked(b"{}", ends=False) + b"no number\r\n", "the answer of S broke off"),
        (http(b"{}", headers="Content-Encoding: gzip\r\n"), "the answer of S cannot be unpacked"),
    ],
    ids=["closed", "reset", "junk", "headers", "short", "chunks", "chunk", "gzip"],
)
def test_what_a_server_may_do(answer, said):
    with raw_server(answer) as (url, _):
        assert failure_of(url) == said


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert failure_of(f"https://127.0.0.1:{port}") == "connection refused at S"


def test_a_name_that_nobody_knows():
    assert failure_of("https://no-such-host.invalid").startswith("the host name of S cannot be resolved (")


def test_no_network_leads_there():
    assert failure_of("http://224.0.0.1:1") == "no network leads to S"


def test_silence(monkeypatch):
    monkeypatch.setattr(client_module, "LIST_TIMEOUT", 0.25)
    with StandIn() as server:
        server.faults.hang()
        assert failure_of(server.url, SilentError) == "no answer within 0.25 s from S"


def test_a_listener_that_takes_no_connection(monkeypatch):
    monkeypatch.setattr(client_module, "CONNECT_TIMEOUT", 0.25)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        with socket.create_connection(address):
            assert failure_of(f"http://127.0.0.1:{address[1]}") == "no connection to S in time"


class TestTls:
    def test_with_a_server_that_is_not_trusted(self, tmp_path):
        with StandIn(tls=True) as server, StandIn(tls=True) as other:
            session = client_of(server, tmp_path, ca=other.ca_path).session()
            with pytest.raises(ApiError, match=r"^list services: certificate verify failed: [^()\[]* \(https://"):
                session.list("services", {})

    def test_with_a_server_that_speaks_none(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def greet():
                made, _ = listener.accept()
                with made:
                    made.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    made.recv(1 << 16)

            server = threading.Thread(target=greet)
            server.start()
            url = f"https://127.0.0.1:{listener.getsockname()[1]}"
            assert failure_of(url) == "TLS with S failed: wrong version number, is it https?"
            server.join()

    def test_with_a_server_that_says_nothing(self, monkeypatch):
        monkeypatch.setattr(client_module, "CONNECT_TIMEOUT", 0.25)
        with StandIn(tls=True) as server:
            server.faults.mute_connections()
            assert failure_of(server.url, SilentError) == "the TLS handshake with S has not ended in time"


def test_a_token_that_no_header_can_carry_is_not_repeated(tmp_path):
    for token in ("sec\nret", "sec€ret"):
        with StandIn() as server, pytest.raises(ApiError) as caught:
            client_of(server, tmp_path, token=token).session().list("services", {})
        assert str(caught.value) == "list services: the token holds characters that no HTTP header may carry"


def test_a_proxy_that_refuses(tmp_path):
    with raw_server(b"HTTP/1.1 403 Forbidden\r\n\r\n") as (proxy, _), StandIn(tls=True) as server:
        path = server.write_kubeconfig(tmp_path / "kubeconfig")
        tree = json.loads(path.read_text())
        tree["clusters"][0]["cluster"]["proxy-url"] = proxy
        path.write_text(json.dumps(tree))
        session = connect(ClientOptions(kubeconfig=str(path)), environ={}).session()
        with pytest.raises(ApiError, match=r"^list services: through the proxy: .*403 Forbidden"):
            session.list("services", {})
