"""A client of bytes: sends what it is told and reads what comes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from serving_recordings import Recorded

from pykubeproxy.serving.connection import Limits
from pykubeproxy.serving.http import HttpServer, Serving
from pykubeproxy.serving.message import Routes, plain

TIMEOUT = 30


@contextmanager
def running(limits: Limits | None = None) -> Iterator[HttpServer]:
    server = HttpServer(limits=limits)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def serving(routes: Routes, limits: Limits | None = None) -> Iterator[tuple[str, int]]:
    """Serve on a port of loopback; yields its address."""
    with running(limits) as server:
        (address,) = server.serve("test", ["127.0.0.1:0"], routes).addresses
        yield address


def hello() -> Routes:
    routes = Routes()
    routes.add("/hello", lambda request: plain(f"hello {request.body.decode()}"), is_quick=True, methods=None)
    return routes


def connect(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=TIMEOUT)


def read_all(sock: socket.socket) -> bytes:
    """Read to the end; a reset counts as one."""
    data = b""
    try:
        while chunk := sock.recv(65536):
            data += chunk
    except ConnectionResetError:
        pass
    return data


def read_answer(sock: socket.socket, *, has_body: bool = True) -> Recorded:
    """Read one answer and not a byte more."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = sock.recv(1)
        if not chunk:
            raise EOFError(data)
        data += chunk
    head, _, _ = data.partition(b"\r\n\r\n")
    parsed = parse(head + b"\r\n\r\n")
    body = b""
    length = int(parsed.header("Content-Length")) if has_body else 0
    while len(body) < length:
        chunk = sock.recv(length - len(body))
        if not chunk:
            raise EOFError(data + body)
        body += chunk
    return Recorded(parsed.status, parsed.reason, parsed.headers, body)


def parse(raw: bytes) -> Recorded:
    head, _, body = raw.partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    version, status, reason = status_line.split(" ", 2)
    assert version in ("HTTP/1.0", "HTTP/1.1")
    headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
    return Recorded(int(status), reason, headers, body)


def request(method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def ask(
    address: tuple[str, int], path: str, method: str = "GET", headers: dict[str, str] | None = None, body: bytes = b""
) -> Recorded:
    """Ask once, on a connection of its own."""
    with connect(address) as sock:
        sock.sendall(request(method, path, headers, body))
        return read_answer(sock, has_body=method != "HEAD")


def exchange(address: tuple[str, int], raw: bytes) -> bytes:
    """Send bytes, read to the end."""
    with connect(address) as sock:
        sock.sendall(raw)
        return read_all(sock)


def assert_same_headers(ours: Recorded, recorded: Recorded, *, free: tuple[str, ...] = ("Date",)) -> None:
    """Check names, order and values, but for those that differ from answer to answer."""
    assert [name for name, _ in ours.headers] == [name for name, _ in recorded.headers]
    assert [item for item in ours.headers if item[0] not in free] == [
        item for item in recorded.headers if item[0] not in free
    ]


__all__ = ["Serving"]
