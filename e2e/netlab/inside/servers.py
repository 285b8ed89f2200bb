"""Serve HTTP, UDP echo and DNS in one namespace, all in one thread.

Every answer tells who answered and which source address that one saw: this is what the experiments are about. HTTP
connections stay open unless the client asks otherwise, so that one of them can outlive changes of rules.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import struct
import threading
from functools import partial
from typing import Any

import dns

_MAX_SEEN = 100_000


def plain(address: str) -> str:
    """Take the IPv4 address out of its IPv6 clothes."""
    return address.removeprefix("::ffff:")


class Servers:
    """All listening sockets of one namespace, and the thread that serves them."""

    def __init__(self, pod: str) -> None:
        self.pod = pod
        self.zone: dict[str, list[str]] = {}
        self._seen: dict[int, list[tuple[str, int, str]]] = {}
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._waker, wakee = socket.socketpair()
        self._selector.register(wakee, selectors.EVENT_READ, lambda sock: sock.recv(64))

    def listen(self, kind: str, address: str, port: int, *, silent: bool = False) -> None:
        """Open one listener. ``kind`` is http, echo (UDP) or dns (both); ``silent`` UDP receives and never answers."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if kind in ("http", "dns"):
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if address == "::":
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind((address, port))
            sock.listen(4096)
            self._add(sock, lambda listener: self._accept(listener, kind))
        if kind in ("echo", "dns"):
            sock = socket.socket(family, socket.SOCK_DGRAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            sock.bind((address, port))
            self._add(sock, lambda s: self._datagrams(s, kind, port, silent=silent))

    def seen(self, port: int) -> list[tuple[str, int, str]]:
        """Return the datagrams received on one UDP port: source address, source port, payload."""
        return list(self._seen.get(port, []))

    def _add(self, sock: socket.socket, handler: Any) -> None:
        sock.setblocking(False)
        with self._lock:
            self._selector.register(sock, selectors.EVENT_READ, handler)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, daemon=True)
                self._thread.start()
        self._waker.send(b"!")

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                try:
                    key.data(key.fileobj)
                except OSError:
                    self._drop(key.fileobj)

    def _drop(self, sock: Any) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(sock)
        sock.close()

    def _accept(self, listener: socket.socket, kind: str) -> None:
        for _ in range(64):
            try:
                sock, peer = listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            buffer = bytearray()
            source = plain(peer[0])
            serve = self._http if kind == "http" else self._dns_stream
            handler = partial(serve, buffer=buffer, source=source, port=peer[1])
            self._selector.register(sock, selectors.EVENT_READ, handler)

    def _http(self, sock: socket.socket, buffer: bytearray, source: str, port: int) -> None:
        data = sock.recv(65536)
        if not data:
            self._drop(sock)
            return
        buffer += data
        while (end := buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(buffer[:end])
            del buffer[: end + 4]
            path = head.split(b" ", 2)[1].decode(errors="replace")
            fields = {"pod": self.pod, "source": source, "port": port, "to": plain(sock.getsockname()[0]), "path": path}
            body = json.dumps(fields).encode() + b"\n"
            last = b"connection: close" in head.lower()
            sock.send(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: %s\r\n\r\n%s"
                % (len(body), b"close" if last else b"keep-alive", body)
            )
            if last:
                self._drop(sock)
                return

    def _datagrams(self, sock: socket.socket, kind: str, port: int, *, silent: bool) -> None:
        for _ in range(64):
            try:
                data, peer = sock.recvfrom(65536)
            except BlockingIOError:
                return
            source = plain(peer[0])
            log = self._seen.setdefault(port, [])
            if len(log) < _MAX_SEEN:
                log.append((source, peer[1], data[:64].decode(errors="replace")))
            if silent:
                continue
            if kind == "dns":
                reply = self._resolve(data, source, peer[1])
            else:
                text = data.decode(errors="replace")
                reply = json.dumps({"pod": self.pod, "source": source, "port": peer[1], "payload": text}).encode()
            sock.sendto(reply, peer)

    def _dns_stream(self, sock: socket.socket, buffer: bytearray, source: str, port: int) -> None:
        data = sock.recv(65536)
        if not data:
            self._drop(sock)
            return
        buffer += data
        while len(buffer) >= 2 and len(buffer) >= 2 + (length := struct.unpack_from("!H", buffer)[0]):
            reply = self._resolve(bytes(buffer[2 : 2 + length]), source, port)
            del buffer[: 2 + length]
            sock.send(struct.pack("!H", len(reply)) + reply)

    def _resolve(self, query: bytes, source: str, port: int) -> bytes:
        _, name, qtype = dns.read_question(query)
        if name == "whoami" and qtype == "TXT":
            return dns.answer(query, [json.dumps({"pod": self.pod, "source": source, "port": port})], known=True)
        values = self.zone.get(name, [])
        wanted = [v for v in values if (":" in v) == (qtype == "AAAA")] if qtype in ("A", "AAAA") else []
        return dns.answer(query, wanted, known=name in self.zone)
