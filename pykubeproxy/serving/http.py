"""One small HTTP server for everything that this daemon answers: health, metrics, state.

It exists because what answers a load balancer must not be stopped by a bad client. Python's own http.server gives each
connection a thread and lets a client hold it for as long as it likes; hundreds of health-check ports would be hundreds
of threads. Here one thread runs one event loop with all listening sockets and all connections; a client that is slow
costs a little memory and nobody's time. It must not know what is served: that is ``pages.py`` and ``healthcheck.py``.

HttpServer, the design
----------------------
*Model.* Listeners (a bound socket and a handler) and connections, all owned by the loop thread. A handler is a function
from Request to Response. Quick ones (they read a few values) run on the loop; the others run in a few worker threads.

Goals, and how each is met:

1. A client can hold no more than its own connection: the head of a request must be complete ``head_timeout`` seconds
   after its first byte, however slowly bytes drip, its body ``head_timeout`` after the head, the answer must be taken
   within ``write_timeout``; an idle connection is closed after ``idle_timeout``.
2. Nobody can lock others out: when ``max_connections`` are open, a new one displaces the one that has waited longest
   for its client (never one whose answer is being made). A displaced prober just connects again.
3. Memory is bounded: heads by ``max_head``, bodies by ``max_body``, one request of a connection at a time.
4. A handler that fails costs its own answer (500, logged), not the server.
5. Answers look like those of Go's net/http, header for header, because probers and scripts were written against that.
6. A taken port is not fatal unless asked: it is tried again each ``retry_interval`` seconds.

*Threads.* All public methods may be called from any thread but the loop's own; they return when the loop has done the
work.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, TypeVar, cast
from urllib.parse import parse_qs, unquote

import structlog

from pykubeproxy.errors import EnvironmentProblem

log = structlog.get_logger(__name__)

T = TypeVar("T")

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
NOSNIFF = ("X-Content-Type-Options", "nosniff")

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VERSION = re.compile(r"HTTP/\d\.\d")
_MAX_HEADERS = 100
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing throws away what is unsent and resets the connection."""
_ACCEPTS_PER_TURN = 64
_ACCEPT_PAUSE = 1.0
_LINGER = 0.5
"""Seconds for which what still comes in is thrown away, so that the client sees the answer before the end."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``path`` is decoded; header names are lower case, repeated headers joined by a comma."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def parameter(self, name: str) -> str | None:
        """Return the first value of a query parameter."""
        values = parse_qs(self.query, keep_blank_values=True, max_num_fields=50).get(name)
        return values[0] if values else None


@dataclass(frozen=True, slots=True)
class Response:
    """One answer; Date, Content-Length and Connection are added by the server."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = (NOSNIFF,)


Handler = Callable[[Request], Response]


def plain(text: str, status: int = HTTPStatus.OK) -> Response:
    """Answer with a line of text, no line feed added."""
    return Response(status, text.encode())


def error(status: int, text: str) -> Response:
    """Answer as Go's http.Error does: the text and a line feed."""
    return Response(status, f"{text}\n".encode())


NOT_FOUND = error(HTTPStatus.NOT_FOUND, "404 page not found")
METHOD_NOT_ALLOWED = error(HTTPStatus.METHOD_NOT_ALLOWED, "Method Not Allowed")


@dataclass(frozen=True, slots=True)
class _Route:
    handler: Handler
    is_quick: bool
    methods: frozenset[str] | None


class Routes:
    """Which handler answers which path: exact paths, then the longest prefix."""

    def __init__(self) -> None:
        self._exact: dict[str, _Route] = {}
        self._prefixes: list[tuple[str, _Route]] = []

    def add(
        self,
        path: str,
        handler: Handler,
        *,
        is_quick: bool = False,
        methods: Sequence[str] | None = ("GET", "HEAD"),
    ) -> None:
        """Register a handler; a path that ends with "/" stands for everything below it.

        ``is_quick``: it only reads values and may run on the loop. ``methods``: others are answered with 405; None
        takes any method, as kube-proxy's own pages do.
        """
        route = _Route(handler, is_quick, None if methods is None else frozenset(methods))
        if path.endswith("/"):
            self._prefixes.append((path, route))
            self._prefixes.sort(key=lambda item: -len(item[0]))
        else:
            self._exact[path] = route

    def paths(self) -> list[str]:
        """Return what is registered, sorted."""
        return sorted([*self._exact, *(prefix for prefix, _ in self._prefixes)])

    def find(self, path: str) -> _Route | None:
        """Return the route of a path."""
        route = self._exact.get(path)
        if route is not None:
            return route
        return next((route for prefix, route in self._prefixes if path.startswith(prefix)), None)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what a client may use; seconds and bytes."""

    head_timeout: float = 10.0
    """From the first byte of a request to the end of its head, and from there to the end of its body."""
    idle_timeout: float = 120.0
    """Between requests. Longer than the usual scrape interval, so that scrapers keep their connection."""
    write_timeout: float = 30.0
    max_head: int = 32 * 1024
    max_body: int = 64 * 1024
    max_connections: int = 256
    """Of one listener group."""
    retry_interval: float = 5.0


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, detail: str = "") -> None:
        super().__init__(detail)
        text = f"{status.value} {status.phrase}"
        self.response = Response(status, f"{text}: {detail}".encode() if detail else text.encode(), headers=())


@dataclass(frozen=True, slots=True)
class _Head:
    request: Request
    is_http11: bool
    wants_close: bool
    body_length: int | None
    """None: a body of unknown length (chunked), which is not read."""


def _parse_head(raw: bytes) -> _Head:
    """Read a request head.

    Raises _Refused: it is no HTTP/1 request, or one that invites misunderstanding (RFC 9112, sections 5 and 6).
    """
    lines = raw.decode("latin-1").replace("\r\n", "\n").split("\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not _TOKEN.fullmatch(parts[0]) or not _VERSION.fullmatch(parts[2]):
        raise _Refused(HTTPStatus.BAD_REQUEST)
    method, target, version = parts
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise _Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    is_http11 = version == "HTTP/1.1"
    headers = _parse_headers(lines[1:])
    if is_http11 and "host" not in headers:
        raise _Refused(HTTPStatus.BAD_REQUEST, "missing required Host header")
    if target.startswith(("http://", "https://")):
        target = "/" + target.split("/", 3)[3] if target.count("/") > 2 else "/"
    if not target.startswith("/") or any(c < "!" or c == "\x7f" for c in target):
        raise _Refused(HTTPStatus.BAD_REQUEST)
    path, _, query = target.partition("?")
    length = _body_length(headers)
    connection = {token.strip().lower() for token in headers.get("connection", "").split(",")}
    wants_close = "close" in connection or (not is_http11 and "keep-alive" not in connection)
    wants_close = wants_close or length is None
    if headers.get("expect", "100-continue").lower() != "100-continue":
        raise _Refused(HTTPStatus.EXPECTATION_FAILED)
    return _Head(Request(method, unquote(path), query, headers), is_http11, wants_close, length)


def _parse_headers(lines: Sequence[str]) -> dict[str, str]:
    if len(lines) > _MAX_HEADERS:
        raise _Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name) or "\0" in value or "\r" in value:
            raise _Refused(HTTPStatus.BAD_REQUEST)
        key = name.lower()
        value = value.strip(" \t")
        if key == "host" and key in headers:
            raise _Refused(HTTPStatus.BAD_REQUEST, "too many Host headers")
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers


def _body_length(headers: Mapping[str, str]) -> int | None:
    if "transfer-encoding" in headers:
        if "content-length" in headers:
            raise _Refused(HTTPStatus.BAD_REQUEST)
        return None
    values = {value.strip() for value in headers.get("content-length", "0").split(",")}
    text = values.pop()
    if values or not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise _Refused(HTTPStatus.BAD_REQUEST, "bad Content-Length")
    return int(text)


def _render(response: Response, *, is_http11: bool, is_head: bool, closes: bool) -> bytes:
    try:
        phrase = HTTPStatus(response.status).phrase
    except ValueError:
        phrase = f"status code {response.status}"
    version = "HTTP/1.1" if is_http11 else "HTTP/1.0"
    lines = [f"{version} {response.status} {phrase}", f"Content-Type: {response.content_type}"]
    lines += [f"{name}: {value}" for name, value in response.headers]
    lines += [f"Date: {formatdate(usegmt=True)}", f"Content-Length: {len(response.body)}"]
    if closes and is_http11:
        lines.append("Connection: close")
    elif not closes and not is_http11:
        lines.append("Connection: keep-alive")
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return head if is_head else head + response.body


class Group:
    """The connections that share one limit; those that wait for their client in order of how long they have."""

    def __init__(self, max_connections: int) -> None:
        self.max_connections = max_connections
        self.members: set[_Connection] = set()
        self.waiting: dict[_Connection, None] = {}

    def admit(self, connection: _Connection) -> bool:
        """Make room for a connection; False if all others have an answer in the making."""
        while len(self.members) >= self.max_connections and self.waiting:
            log.debug("connection displaced", open=len(self.members))
            next(iter(self.waiting)).abort()
        if len(self.members) >= self.max_connections:
            return False
        self.members.add(connection)
        return True

    def remove(self, connection: _Connection) -> None:
        """Free a place."""
        self.members.discard(connection)
        self.waiting.pop(connection, None)


class _Connection(asyncio.Protocol):
    """One client; it lives on the loop.

    It waits for a head, then for a body, is busy while the answer is made, then waits until the client has taken the
    answer, and so on; or it is ending, and throws away what still comes in.
    """

    def __init__(self, server: HttpServer, listener: Listener) -> None:
        self._loop = server.loop
        self._workers = server.workers
        self._limits = server.limits
        self._listener = listener
        self._transport = _NO_TRANSPORT
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._has_begun = False
        self._searched = 0
        self._is_busy = False
        self._is_ending = False
        self._is_gone = False
        self._is_at_eof = False
        self._is_write_paused = False

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._listener.is_closed or not self._listener.group.admit(self):
            self.abort()
            return
        self._listener.connections.add(self)
        self._transport.set_write_buffer_limits(0)  # pause_writing as soon as, and while, the client has not taken all
        self._wait(self._limits.head_timeout)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the loop's signature
        self._leave()
        self._listener.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        if self._is_ending or self._is_gone:
            return
        self._buffer += data
        if not self._is_busy:
            self._advance()
        elif len(self._buffer) > self._limits.max_head + self._limits.max_body:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        # A client may shut its sending side and still read; what it has asked for is answered first.
        self._is_at_eof = True
        if self._is_ending:
            return False
        if self._buffer:
            self._loop.call_soon(self._advance_later)
        return self._is_busy or bool(self._buffer)

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        if self._is_ending:
            self._wait(_LINGER)
        elif self._is_busy and self._head is None:
            self._next()

    # Our own steps.

    def abort(self) -> None:
        """End now, whatever is in flight."""
        self._leave()
        if self._is_write_paused:  # else the kernel would keep megabytes for a client that does not read
            sock = cast("socket.socket", self._transport.get_extra_info("socket"))
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    def _leave(self) -> None:
        self._is_gone = True
        self._stop_timer()
        self._listener.group.remove(self)

    def _wait(self, seconds: float) -> None:
        """Give the client this long for what is expected of it next."""
        if self._is_gone:
            return
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self.abort)
        self._listener.group.waiting.pop(self, None)
        self._listener.group.waiting[self] = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _advance(self) -> None:
        """Go on with what is in the buffer: a head, then its body, then the answer."""
        try:
            if self._head is None:
                self._head = self._take_head()
            if self._head is None:
                return
            body = self._take_body(self._head.body_length)
            if body is None:
                return
        except _Refused as refused:
            log.debug("request refused", status=int(refused.response.status))
            self._transport.write(_render(refused.response, is_http11=True, is_head=False, closes=True))
            self._end()
            return
        self._answer(self._head, body)

    def _take_head(self) -> _Head | None:
        if not self._has_begun:
            # Empty lines before a request are ignored (RFC 9112, 2.2).
            del self._buffer[: len(self._buffer) - len(self._buffer.lstrip(b"\r\n"))]
            if not self._buffer:
                return None
            self._has_begun = True
            self._searched = 0
            self._wait(self._limits.head_timeout)
        end = _HEAD_END.search(self._buffer, max(0, self._searched - 3))
        self._searched = len(self._buffer)
        if (len(self._buffer) if end is None else end.start()) > self._limits.max_head:
            raise _Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if end is None:
            return None
        raw = bytes(self._buffer[: end.start()])
        del self._buffer[: end.end()]
        head = _parse_head(raw)
        if head.body_length:
            self._wait(self._limits.head_timeout)
            if "expect" in head.request.headers and head.body_length <= self._limits.max_body:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return head

    def _take_body(self, length: int | None) -> bytes | None:
        if not length:
            return b""
        if length > self._limits.max_body:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _answer(self, head: _Head, body: bytes) -> None:
        self._is_busy = True
        self._stop_timer()
        self._listener.group.waiting.pop(self, None)
        request = replace(head.request, body=body) if body else head.request
        route = self._listener.routes.find(request.path)
        if route is None:
            self._respond(head, NOT_FOUND)
        elif route.methods is not None and request.method not in route.methods:
            allow = ("Allow", ", ".join(sorted(route.methods)))
            self._respond(head, replace(METHOD_NOT_ALLOWED, headers=(NOSNIFF, allow)))
        elif route.is_quick:
            self._respond(head, _call(route.handler, request))
        else:
            future = self._loop.run_in_executor(self._workers, _call, route.handler, request)
            future.add_done_callback(lambda done: None if done.cancelled() else self._respond(head, done.result()))

    def _respond(self, head: _Head, response: Response) -> None:
        if self._is_gone:
            return
        closes = head.wants_close or (self._is_at_eof and not self._buffer)
        is_head = head.request.method == "HEAD"
        self._transport.write(_render(response, is_http11=head.is_http11, is_head=is_head, closes=closes))
        self._head = None
        if closes:
            self._end()
        elif self._is_write_paused:
            self._wait(self._limits.write_timeout)
        else:
            self._next()

    def _next(self) -> None:
        """Be ready for the next request, which may have been read already."""
        self._is_busy = False
        self._has_begun = False
        self._transport.resume_reading()
        self._wait(self._limits.idle_timeout)
        if self._buffer:
            self._loop.call_soon(self._advance_later)

    def _advance_later(self) -> None:
        if self._is_gone or self._is_busy or self._is_ending:
            return
        before = len(self._buffer)
        self._advance()
        if self._is_at_eof and not self._is_busy and not self._is_ending and len(self._buffer) == before:
            self.abort()  # the rest of this request will never come

    def _end(self) -> None:
        """Send the end, and read on for a moment: closing with unread input would take the answer from the client."""
        self._is_ending = True
        self._is_busy = False
        self._buffer.clear()
        if self._is_at_eof:
            self._transport.close()
        else:
            self._transport.resume_reading()
            with contextlib.suppress(OSError):  # the client may be gone already
                self._transport.write_eof()
        self._wait(self._limits.write_timeout if self._is_write_paused else _LINGER)


_NO_TRANSPORT = asyncio.Transport()
"""Stands in until there is a connection."""


def _call(handler: Handler, request: Request) -> Response:
    try:
        return handler(request)
    except Exception:
        log.exception("handler failed", path=request.path)
        return error(HTTPStatus.INTERNAL_SERVER_ERROR, "500 internal server error")


class Listener:
    """One bound socket and what answers on it. Made by :meth:`HttpServer.listen`.

    It accepts by itself: asyncio's Server, closed while connections are on their way to it, drops them unclosed.
    """

    def __init__(self, server: HttpServer, sock: socket.socket, routes: Routes, group: Group) -> None:
        self._server = server
        self._sock = sock
        host, port = sock.getsockname()[:2]
        self.address: tuple[str, int] = (host, port)
        self.routes = routes
        self.group = group
        self.connections: set[_Connection] = set()
        self.is_closed = False

    def close(self) -> None:
        """Stop listening and end all connections. The port is free when this returns."""
        if not self._server.stopping.is_set():
            self._server.run(self.close_on_loop())

    async def close_on_loop(self) -> None:
        """Do the same as :meth:`close`, on the loop."""
        if not self.is_closed:
            self.is_closed = True
            self._server.loop.remove_reader(self._sock)
            self._sock.close()
        for connection in list(self.connections):
            connection.abort()

    def accept_on_loop(self) -> None:
        """Begin to accept, on the loop."""
        if not self.is_closed:
            self._server.loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                client, _address = self._sock.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as problem:
                # Out of files or memory: the connection stays in the queue and would wake the loop again at once.
                log.warning("cannot accept", address=format_address(*self.address), error=problem.strerror)
                self._server.loop.remove_reader(self._sock)
                self._server.loop.call_later(_ACCEPT_PAUSE, self.accept_on_loop)
                return
            client.setblocking(False)
            self._server.adopt(client, self)


class Serving:
    """One named server on one or more addresses. Made by :meth:`HttpServer.serve`."""

    def __init__(self, server: HttpServer, name: str, listeners: list[Listener], missing: set[str]) -> None:
        self.name = name
        self._server = server
        self._listeners = listeners
        self._missing = missing
        self._all_bound = threading.Event()
        if not missing:
            self._all_bound.set()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """What is listened on now: host and port."""
        return [listener.address for listener in list(self._listeners)]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every address is bound; False if that took longer than the timeout."""
        return self._all_bound.wait(timeout)

    def close(self) -> None:
        """Stop listening and trying to."""
        if not self._server.stopping.is_set():
            self._server.run(self._close_on_loop())

    def is_waiting_for(self, address: str) -> bool:
        """Tell whether this address is still to be bound."""
        return address in self._missing

    def bound(self, address: str, listener: Listener) -> None:
        """Note, on the loop, that an address has been bound after all."""
        self._listeners.append(listener)
        self._missing.discard(address)
        if not self._missing:
            self._all_bound.set()

    async def _close_on_loop(self) -> None:
        self._missing.clear()
        for listener in self._listeners:
            await listener.close_on_loop()


class HttpServer:
    """The event loop and its thread; see the design above."""

    def __init__(self, *, limits: Limits | None = None, worker_threads: int = 3) -> None:
        self.limits = limits or Limits()
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(_log_loop_problem)
        self.workers = ThreadPoolExecutor(worker_threads, thread_name_prefix="http-worker")
        self._thread = threading.Thread(target=self._run_loop, name="http", daemon=True)
        self._listeners: set[Listener] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.stopping = threading.Event()
        """Set when the server begins to stop; handlers that take long should look at it."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Close all sockets and end the thread. Handlers that are running are not waited for."""
        if self.stopping.is_set():
            return
        self.stopping.set()
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._close_all(), self.loop).result()
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
        self.workers.shutdown(wait=False, cancel_futures=True)
        self.loop.close()

    def serve(
        self,
        name: str,
        addresses: Sequence[str],
        routes: Routes,
        *,
        is_hard_fail: bool = False,
        on_failure: Callable[[str], None] = lambda _message: None,
    ) -> Serving:
        """Serve on addresses ("10.0.0.1:10256", "[::1]:10256"; a wildcard of either family means both, as in Go).

        An address that cannot be bound is tried again each ``retry_interval``; ``on_failure`` is told once.

        Raises EnvironmentProblem: an address could not be bound and ``is_hard_fail`` is set; nothing is left listening.
        """
        group = Group(self.limits.max_connections)
        listeners: list[Listener] = []
        missing: set[str] = set()
        wanted = {address: split_address(address) for address in addresses}
        for address, (host, port) in wanted.items():
            try:
                listeners.append(self.listen(open_socket(host, port), routes, group))
            except OSError as problem:
                message = f"{name} cannot listen on {address}: {problem.strerror or problem}"
                if is_hard_fail:
                    for listener in listeners:
                        listener.close()
                    raise EnvironmentProblem(message) from problem
                log.warning("cannot listen", server=name, address=address, error=problem.strerror or str(problem))
                missing.add(address)
                on_failure(message)
        serving = Serving(self, name, listeners, missing)
        log.info("serving", server=name, addresses=[format_address(*address) for address in serving.addresses])
        for address in sorted(missing):
            self.run(self._start_retry(serving, address, routes, group))
        return serving

    def listen(self, sock: socket.socket, routes: Routes, group: Group) -> Listener:
        """Take over a bound socket. ``group``: the connections that share one limit."""
        try:
            return self.run(self._listen(sock, routes, group))
        except BaseException:
            sock.close()
            raise

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop and wait for it. Raises RuntimeError where that would wait for ever."""
        if self.stopping.is_set() or not self._thread.is_alive() or threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("the HTTP server does not run, or this is its own thread")
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def adopt(self, client: socket.socket, listener: Listener) -> None:
        """Take over an accepted connection, on the loop."""
        self._spawn(self.loop.connect_accepted_socket(lambda: _Connection(self, listener), client))

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self, sock: socket.socket, routes: Routes, group: Group) -> Listener:
        listener = Listener(self, sock, routes, group)
        self._listeners = {other for other in self._listeners if not other.is_closed}
        self._listeners.add(listener)
        listener.accept_on_loop()
        return listener

    async def _start_retry(self, serving: Serving, address: str, routes: Routes, group: Group) -> None:
        self._spawn(self._retry(serving, address, routes, group))

    async def _retry(self, serving: Serving, address: str, routes: Routes, group: Group) -> None:
        while True:
            await asyncio.sleep(self.limits.retry_interval)
            if not serving.is_waiting_for(address):
                return
            try:
                sock = open_socket(*split_address(address))
            except OSError as problem:
                log.debug("still cannot listen", server=serving.name, address=address, error=problem.strerror)
                continue
            serving.bound(address, await self._listen(sock, routes, group))
            log.info("serving", server=serving.name, addresses=[address])
            return

    async def _close_all(self) -> None:
        for listener in list(self._listeners):
            await listener.close_on_loop()
        await asyncio.sleep(0)  # a connection that was accepted just now gets its transport, and can then be closed
        for task in list(self._tasks):
            task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # connection_lost of those that were aborted


def open_socket(host: str, port: int, *, is_v6_only: bool | None = None) -> socket.socket:
    """Bind a listening socket.

    ``is_v6_only`` None: a wildcard address of either family takes both families where the machine has IPv6, as Go's
    net.Listen does; True or False: exactly the family of the address.

    Raises OSError: the address cannot be bound.
    """
    is_wildcard = host in ("", "0.0.0.0", "::")  # noqa: S104 - the configuration asks for it
    if is_wildcard and is_v6_only is None:
        try:
            return _bind(socket.AF_INET6, "::", port, is_v6_only=False)
        except OSError as problem:
            if problem.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
            return _bind(socket.AF_INET, "0.0.0.0", port)  # noqa: S104
    if ":" in host:
        return _bind(socket.AF_INET6, host, port, is_v6_only=True)
    return _bind(socket.AF_INET, host, port)


def _bind(family: socket.AddressFamily, host: str, port: int, *, is_v6_only: bool = True) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A port whose last connections linger in TIME_WAIT may be taken again at once; a listening one still not.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(is_v6_only))
        sock.setblocking(False)
        sock.bind((host, port))
        sock.listen(128)
    except BaseException:
        sock.close()
        raise
    return sock


def split_address(address: str) -> tuple[str, int]:
    """Take "host:port" apart; an IPv6 host stands in brackets.

    Raises EnvironmentProblem: it is not of that form.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise EnvironmentProblem(f"{address!r} is not an address to listen on (host:port)")
    return host.removeprefix("[").removesuffix("]"), int(port)


def format_address(host: str, port: int) -> str:
    """Write "host:port"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _log_loop_problem(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    log.warning("event loop", problem=context.get("message"), exc_info=context.get("exception"))
