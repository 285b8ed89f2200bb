"""One client's connection: waits for a head and a body, has the answer made, waits until it is taken, and so on.

Bounds of what a client may use are kept here (see the design in ``http.py``). All of it lives on the loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import threading
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Protocol, cast

import structlog

from pykubeproxy.serving.message import (
    BUSY,
    METHOD_NOT_ALLOWED,
    NOSNIFF,
    NOT_FOUND,
    Handler,
    Head,
    Refused,
    Request,
    Response,
    Route,
    Routes,
    error,
    parse_head,
    render,
)
from pykubeproxy.serving.workers import Job, Workers

log = structlog.get_logger(__name__)

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing throws away what is unsent and resets the connection."""
_LINGER = 0.5
"""Seconds for which what still comes in is thrown away, so that the client sees the answer before the end."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what clients may use; seconds and bytes."""

    head_timeout: float = 10.0
    """From the first byte of a request to the end of its head, and from there to the end of its body."""
    idle_timeout: float = 120.0
    """Between requests. Longer than the usual scrape interval, so that scrapers keep their connection."""
    write_timeout: float = 30.0
    max_head: int = 32 * 1024
    max_body: int = 64 * 1024
    max_connections: int = 256
    """Of one listener group."""
    max_slow_waiting: int = 8
    """Slow answers that may wait for the one thread that makes them."""
    retry_interval: float = 5.0


@dataclass(frozen=True, slots=True)
class Shared:
    """What all connections of a server share."""

    limits: Limits
    loop: asyncio.AbstractEventLoop
    workers: Workers
    slow_workers: Workers
    stopping: threading.Event


class Owner(Protocol):
    """The listener that a connection came in by."""

    routes: Routes
    group: Group
    connections: set[Connection]
    is_closed: bool


class Group:
    """The connections that share one limit; those that wait for their client in order of how long they have."""

    def __init__(self, max_connections: int) -> None:
        self.max_connections = max_connections
        self.members: set[Connection] = set()
        self.waiting: dict[Connection, None] = {}

    def admit(self, connection: Connection) -> bool:
        """Make room for a connection; False if all others have an answer in the making."""
        while len(self.members) >= self.max_connections and self.waiting:
            log.debug("connection displaced", open=len(self.members))
            next(iter(self.waiting)).abort()
        if len(self.members) >= self.max_connections:
            return False
        self.members.add(connection)
        return True

    def remove(self, connection: Connection) -> None:
        """Free a place."""
        self.members.discard(connection)
        self.waiting.pop(connection, None)


class Connection(asyncio.Protocol):
    """One client; it lives on the loop.

    It waits for a head, then for a body, is busy while the answer is made, then waits until the client has taken the
    answer, and so on; or it is ending, and throws away what still comes in.
    """

    def __init__(self, shared: Shared, listener: Owner) -> None:
        self._loop = shared.loop
        self._workers = shared.workers
        self._slow_workers = shared.slow_workers
        self._stopping = shared.stopping
        self._limits = shared.limits
        self._listener = listener
        self._transport = _NO_TRANSPORT
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray()
        self._head: Head | None = None
        self._has_begun = False
        self._searched = 0
        self._is_busy = False
        self._is_ending = False
        self._is_gone = False
        self._is_at_eof = False
        self._is_write_paused = False
        self._job: Job | None = None
        """What makes the answer, where a thread does."""
        self._may_be_left = False
        """Whether a client that shuts its sending side is taken to have left, as Go takes it: the answer costs much."""

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place, or be turned away."""
        self._transport = cast("asyncio.Transport", transport)
        if self._listener.is_closed or not self._listener.group.admit(self):
            self.abort()
            return
        self._listener.connections.add(self)
        self._transport.set_write_buffer_limits(0)  # pause_writing as soon as, and while, the client has not taken all
        self._wait(self._limits.head_timeout)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the loop's signature
        """Give the place back."""
        self._leave()
        self._listener.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        if self._is_ending or self._is_gone:
            return
        self._buffer += data
        if not self._is_busy:
            self._advance()
        elif len(self._buffer) > self._limits.max_head + self._limits.max_body:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """Go on with what has been asked for, if anything; False closes the connection."""
        # A client may shut its sending side and still read; what it has asked for is answered first.
        self._is_at_eof = True
        if self._is_ending or (self._may_be_left and self._job is not None and self._job.cancel()):
            return False
        if self._buffer:
            self._loop.call_soon(self._advance_later)
        return self._is_busy or bool(self._buffer)

    def pause_writing(self) -> None:
        """Note that the client has not taken all yet."""
        self._is_write_paused = True

    def resume_writing(self) -> None:
        """Go on: the client has taken everything."""
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
        if self._job is not None:
            self._job.cancel()
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
        except Refused as refused:
            log.debug("request refused", status=int(refused.response.status))
            self._transport.write(render(refused.response, is_http11=True, is_head=False, closes=True))
            self._end()
            return
        self._answer(self._head, body)

    def _take_head(self) -> Head | None:
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
            raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if end is None:
            return None
        raw = bytes(self._buffer[: end.start()])
        del self._buffer[: end.end()]
        head = parse_head(raw)
        if head.body_length:
            self._wait(self._limits.head_timeout)
            if "expect" in head.request.headers and head.body_length <= self._limits.max_body:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return head

    def _take_body(self, length: int | None) -> bytes | None:
        if not length:
            return b""
        if length > self._limits.max_body:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _answer(self, head: Head, body: bytes) -> None:
        self._is_busy = True
        self._stop_timer()
        self._listener.group.waiting.pop(self, None)
        client, server = (self._transport.get_extra_info(end) or ("",) for end in ("peername", "sockname"))
        request = replace(head.request, body=body, client=client[0], server=server[0])
        route = self._listener.routes.find(request.path)
        if route is None:
            self._respond(head, NOT_FOUND)
        elif route.methods is not None and request.method not in route.methods:
            allow = ("Allow", ", ".join(sorted(route.methods)))
            self._respond(head, replace(METHOD_NOT_ALLOWED, headers=(NOSNIFF, allow)))
        elif route.is_quick:
            self._respond(head, _call(route.handler, request))
        else:
            self._have_made(route, head, request)

    def _have_made(self, route: Route, head: Head, request: Request) -> None:
        """Have the answer made by a thread."""

        def make() -> None:
            response = _call(route.handler, request)
            if self._stopping.is_set():
                return  # what was cut short is no answer
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                self._loop.call_soon_threadsafe(self._respond, head, response)

        self._may_be_left = route.is_slow
        self._job = (self._slow_workers if route.is_slow else self._workers).submit(make)
        if self._job is None:
            self._respond(head, BUSY)

    def _respond(self, head: Head, response: Response) -> None:
        self._job = None
        if self._is_gone:
            return
        closes = head.wants_close or (self._is_at_eof and not self._buffer)
        is_head = head.request.method == "HEAD"
        self._transport.write(render(response, is_http11=head.is_http11, is_head=is_head, closes=closes))
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
