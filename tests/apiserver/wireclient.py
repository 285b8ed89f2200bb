"""A client that hides nothing: one request, then the bytes as they come, headers and chunks included."""

from __future__ import annotations

import json
import select
import socket
import ssl
from typing import Any, Self


class WireClient:
    """One connection with one request on it."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None = None, timeout: float = 20.0) -> None:
        self.sock = socket.create_connection((host, port), timeout)
        if context is not None:
            self.sock = context.wrap_socket(self.sock, server_hostname=host)
        self._raw = b""
        self._body = b""
        self._is_chunked = False
        self._left: int | None = None
        self.has_ended = False
        self.is_cut = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: standin"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self.sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + body)

    def head(self) -> tuple[int, dict[str, str]]:
        while b"\r\n\r\n" not in self._raw:
            self._receive()
        head, _, self._raw = self._raw.partition(b"\r\n\r\n")
        first, *rest = head.decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in rest)
        self._is_chunked = headers.get("Transfer-Encoding") == "chunked"
        if not self._is_chunked:
            self._left = int(headers.get("Content-Length", 0))
        self._unpack()
        return int(first.split(" ")[1]), headers

    def body(self) -> bytes:
        """Everything up to the end of the answer, or of the connection if that comes first (then ``is_cut``)."""
        while not self.has_ended:
            self._receive_or_cut()
        return self._body

    def line(self) -> Any:
        """The next line of a stream as JSON."""
        while b"\n" not in self._body:
            assert not self.has_ended, f"the stream ended; left over: {self._body!r}"
            self._receive_or_cut()
        line, _, self._body = self._body.partition(b"\n")
        return json.loads(line)

    def is_quiet(self) -> bool:
        """Tell whether nothing has come that was not read."""
        while not self.has_ended and select.select([self.sock], [], [], 0)[0]:
            self._receive_or_cut()
        return not self._body and not self.has_ended

    def wait_end(self) -> None:
        """Read until the answer is over; nothing may come before that."""
        while not self.has_ended:
            self._receive_or_cut()
        assert self._body == b""

    def _receive_or_cut(self) -> None:
        try:
            self._receive()
        except ConnectionError:
            self.has_ended = self.is_cut = True
        else:
            self._unpack()

    def _receive(self) -> None:
        data = self.sock.recv(1 << 20)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._raw += data

    def _unpack(self) -> None:
        if not self._is_chunked:
            assert self._left is not None
            self._body, self._raw = self._body + self._raw, b""
            self.has_ended = len(self._body) >= self._left
            return
        while b"\r\n" in self._raw:
            size, _, rest = self._raw.partition(b"\r\n")
            length = int(size, 16)
            if len(rest) < length + 2:
                return
            self._body += rest[:length]
            self._raw = rest[length + 2 :]
            if length == 0:
                self.has_ended = True
                return
