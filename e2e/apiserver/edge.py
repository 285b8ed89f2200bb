"""The HTTP edge: sockets, TLS, threads and time for the answers that ``api`` works out, and the wire side of faults.

Threads. One thread runs an asyncio loop that owns every socket; other threads speak to it through ``call`` only. The
store tells of changes in whichever thread changed it; the edge carries that into its loop.

It must not know what an API server says, only when and how bytes go out.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import http
import socket
import ssl
import struct
import threading
import uuid
from asyncio.trsock import TransportSocket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from e2e.apiserver import status
from e2e.apiserver.access import Access
from e2e.apiserver.api import GZIP_FROM, Api
from e2e.apiserver.clock import Clock, settle
from e2e.apiserver.requests import Answer, NeedsVersion, Request, Target, parse_query, target_of
from e2e.apiserver.stats import Seen, Stats
from e2e.apiserver.watching import Line, Watch, WatchOptions, error_line

if TYPE_CHECKING:
    from e2e.apiserver.faults import Faults, Plan

T = TypeVar("T")

_CHUNKED_FROM = 2048  # what Go's net/http gathers before it gives up on Content-Length
_PIECE = 256 * 1024
_MAX_HEAD = 256 * 1024
_MAX_BODY = 256 * 1024 * 1024
OWN_PATHS = "/_standin/"
FUTURE_VERSION_WAIT = 3.0


class _ClosedError(Exception):
    """The connection is over: the client went, or a fault ended it; ``resets`` tells how."""

    def __init__(self, *, resets: bool = True) -> None:
        super().__init__()
        self.resets = resets


@dataclass(slots=True)
class Stream:
    """One open watch as faults see it."""

    resource: str
    watch: Watch
    wake: asyncio.Event
    injected: list[bytes]
    hold: int = 0
    ends: str = ""  # "", "close" or "reset"


@dataclass(slots=True)
class _Link:
    """One connection, from accept to end. Once it has a writer, the transport behind that owns the socket."""

    sock: socket.socket
    writer: asyncio.StreamWriter | None = None
    is_over: bool = False


class Edge:
    """A listening server. ``start`` and ``stop`` may be called again; the port stays the same."""

    def __init__(
        self,
        api: Api,
        access: Access,
        faults: Faults,
        stats: Stats,
        clock: Clock,
        *,
        host: str,
        port: int,
        own_paths: Callable[[Request], Answer | None],
        context: ssl.SSLContext | None,
    ) -> None:
        self.api = api
        self.access = access
        self.faults = faults
        self.stats = stats
        self.clock = clock
        self.host = host
        self.port = port
        self.context = context
        self.own_paths = own_paths
        self.loop: asyncio.AbstractEventLoop | None = None
        self.streams: list[Stream] = []
        self._thread: threading.Thread | None = None
        self._listener: socket.socket | None = None
        self.connections: dict[asyncio.Task[None], _Link] = {}
        self._waiting: set[asyncio.Event] = set()
        self._wakes_asked = False
        api.store.listen(lambda _resource: self.wake())

    # From other threads

    def start(self) -> None:
        """Bind, listen, and run the loop in a thread of its own."""
        if self._thread is not None:
            raise RuntimeError("the server runs already")
        sock = self._bind()
        self._wakes_asked = False
        self.port = sock.getsockname()[1]
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"apiserver-{self.port}", daemon=True)
        self._thread.start()
        self.call(lambda: self._serve(sock))

    def stop(self) -> None:
        """Close everything and wait until the thread has gone."""
        if self._thread is None or self.loop is None:
            return
        self.call(self._shut_down)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        self._thread = self.loop = None

    @property
    def is_running(self) -> bool:
        """Tell whether the loop runs."""
        return self._thread is not None

    def call(self, do: Callable[[], object]) -> object:
        """Run ``do`` (a function, or one that returns an awaitable) in the loop and return its result."""
        if self.loop is None:
            raise RuntimeError("the server does not run")

        async def run() -> object:
            result = do()
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(30)

    def wake(self) -> None:
        """Let every waiting request look at the store again."""
        loop = self.loop
        if loop is not None and not self._wakes_asked:
            self._wakes_asked = True
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self._wake_all)

    def settle(self) -> None:
        """Wait until the loop has done what it had to do."""
        if self.loop is not None:
            settle(self.loop)

    # In the loop

    def _run(self) -> None:
        loop = self.loop
        if loop is None:
            return
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_default_executor())

    def _wake_all(self) -> None:
        self._wakes_asked = False
        for event in self._waiting:
            event.set()

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self.host, self.port))
            sock.listen(256)
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
        return sock

    def _serve(self, sock: socket.socket) -> None:
        """Accept on ``sock`` from now on."""
        self._listener = sock
        asyncio.get_running_loop().add_reader(sock, self._accept_from, sock)

    def _accept_from(self, sock: socket.socket) -> None:
        """Give each connection that was made a task; asyncio's own server may lose one while it closes."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                made, _ = sock.accept()
            except OSError:
                return
            made.setblocking(False)
            link = _Link(made)
            self.connections[loop.create_task(self._connected(link))] = link

    def refuse(self) -> None:
        """Stop listening: connections are refused from now on."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def mute(self) -> None:
        """Listen, let the kernel complete connections, and never read from them."""
        self.refuse()
        self._listener = self._bind()

    def accept(self) -> None:
        """Listen again, on the same port."""
        self.refuse()
        self._serve(self._bind())

    async def _shut_down(self) -> None:
        self.refuse()
        await self.drop_connections()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await asyncio.sleep(0)  # transports close their sockets a turn later

    async def drop_connections(self, *, reset: bool = False) -> None:
        """End every connection at once."""
        links = list(self.connections.items())
        for task, link in links:
            link.is_over = True
            if reset:
                _set_reset(link.sock)
            if link.writer is not None:
                link.writer.transport.abort()
                task.cancel()
            else:
                # A task that has not begun would not close its socket if it were cancelled, and a transport in the
                # making must not lose its own: the end of the stream ends them.
                with contextlib.suppress(OSError):
                    link.sock.shutdown(socket.SHUT_RDWR)
        await asyncio.gather(*(task for task, _ in links), return_exceptions=True)

    async def _connected(self, link: _Link) -> None:
        """Serve one connection, TLS handshake included, until it ends."""
        loop = asyncio.get_running_loop()
        sock = link.sock
        task = asyncio.current_task()
        self.stats.note_connection(1)
        reader = asyncio.StreamReader(_MAX_HEAD, loop)
        protocol = asyncio.StreamReaderProtocol(reader)
        writer: asyncio.StreamWriter | None = None
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, sock, ssl=self.context)
            writer = link.writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            if not link.is_over:
                await _Connection(self, reader, writer).run()
        except _ClosedError as end:
            if end.resets and writer is not None:
                writer.transport.abort()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            if writer is not None:
                writer.transport.abort()
        finally:
            if writer is None:
                sock.close()
            else:
                writer.close()
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    await writer.wait_closed()
            if task is not None:
                self.connections.pop(task, None)
            self.stats.note_connection(-1)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever the store changed."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            yield event
        finally:
            self._waiting.discard(event)

    async def wait_until(self, event: asyncio.Event, when: float | None) -> None:
        """Wait for the event or the time, whichever comes first; the event is cleared."""
        handle = None
        if when is not None and self.loop is not None:
            handle = self.clock.call_at(when, self.loop, event.set)
        try:
            await event.wait()
            event.clear()
        finally:
            if handle is not None:
                handle.cancel()


class _Connection:
    """One client's connection: requests one after the other until one side ends it."""

    def __init__(self, edge: Edge, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.edge = edge
        self.reader = reader
        self.writer = writer

    async def run(self) -> None:
        """Answer requests until the client goes."""
        while True:
            request = await self._read_request()
            if request is None:
                return
            await self._answer(request)
            if request.headers.get("connection", "").lower() == "close":
                return

    async def _read_request(self) -> Request | None:
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError:
            raise _ClosedError from None
        first, *rest = head.decode("latin-1").split("\r\n")
        try:
            method, url, _ = first.split(" ")
        except ValueError:
            self.writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            raise _ClosedError from None
        headers = {}
        for line in rest:
            name, colon, value = line.partition(":")
            if colon:
                headers[name.strip().lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue":
            self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        path, _, query = url.partition("?")
        return Request(method, unquote(path), parse_query(query), headers, await self._read_body(headers))

    async def _read_body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while size := int((await self.reader.readline()).split(b";")[0], 16):
                body += await self.reader.readexactly(size)
                await self.reader.readexactly(2)
            await self.reader.readline()
            return body
        length = int(headers.get("content-length") or 0)
        if length > _MAX_BODY:
            raise _ClosedError
        return await self.reader.readexactly(length) if length else b""

    async def _answer(self, request: Request) -> None:
        edge = self.edge
        if request.path.startswith(OWN_PATHS) and await self._answer_own(request):
            return
        target = target_of(request)
        plan = edge.faults.take(request, target)
        if plan is not None and plan.delay:
            with edge.waiting() as event:
                until = edge.clock.monotonic() + plan.delay
                while edge.clock.monotonic() < until:
                    await edge.wait_until(event, until)
        if plan is not None and plan.hangs:
            self._note(request, target, 0)
            await self.reader.read()  # until the client gives up
            raise _ClosedError
        try:
            if plan is not None and plan.failure is not None:
                raise plan.failure
            if plan is not None and plan.page is not None:
                self._note(request, target, plan.page.status)
                await self._send(request, plan.page, plan)
                return
            user = edge.access.user(request.headers.get("authorization", ""))
            _authorize(user_may=user.may, name=user.name, target=target)
            result = await self._ready(request, target)
        except status.ApiFailureError as failure:
            if target.verb == "watch" and plan is not None and plan.in_stream:
                self._note(request, target, 200)
                body = await self._begin_stream(plan)
                await body.send(error_line(failure).encoded)
                await body.end()
                return
            self._note(request, target, failure.code)
            await self._send(request, Answer(failure.code, failure.encoded() + b"\n", failure.headers), plan)
            return
        if isinstance(result, Answer):
            self._note(request, target, result.status)
            await self._send(request, result, plan)
        else:
            self._note(request, target, 200)
            await self._watch(result, plan)

    async def _answer_own(self, request: Request) -> bool:
        """Answer one of the stand-in's own paths, from a thread; this connection outlives what is done there."""
        task = asyncio.current_task()
        link = self.edge.connections.pop(task, None) if task is not None else None
        try:
            answer = await asyncio.get_running_loop().run_in_executor(None, self.edge.own_paths, request)
        finally:
            if task is not None and link is not None:
                self.edge.connections[task] = link
        if answer is None:
            return False
        await self._send(request, answer, None)
        return True

    async def _ready(self, request: Request, target: Target) -> Answer | WatchOptions:
        """Return the answer, waiting for a version that has not come yet. Raises ApiFailureError."""
        edge = self.edge
        until = edge.clock.monotonic() + FUTURE_VERSION_WAIT
        with edge.waiting() as event:
            while True:
                result = edge.api.handle(request, target)
                if not isinstance(result, NeedsVersion):
                    return result
                if edge.clock.monotonic() >= until:
                    raise status.future_version(result.version, edge.api.store.version)
                await edge.wait_until(event, until)

    def _note(self, request: Request, target: Target, code: int) -> None:
        query = "&".join(f"{name}={value}" for name, values in request.query.items() for value in values)
        self.edge.stats.note(
            Seen(
                target.verb,
                target.resource_name,
                request.method,
                request.path + (f"?{query}" if query else ""),
                code,
                request.headers.get("authorization", "").removeprefix("Bearer "),
                request.headers.get("user-agent", ""),
            )
        )

    # Writing

    def _head(self, code: int, headers: dict[str, str]) -> bytes:
        phrase = http.HTTPStatus(code).phrase if code in http.HTTPStatus._value2member_map_ else "Unknown"
        lines = [f"HTTP/1.1 {code} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _headers(self, content_type: str) -> dict[str, str]:
        now = self.edge.clock.wall()
        return {
            "Audit-Id": str(uuid.uuid4()),
            "Cache-Control": "no-cache, private",
            "Content-Type": content_type,
            "Date": email.utils.format_datetime(now, usegmt=True),
        }

    async def _send(self, request: Request, answer: Answer, plan: Plan | None) -> None:
        body = answer.body if plan is None else plan.substituted(answer.body)
        is_chunked = len(body) > _CHUNKED_FROM
        headers = self._headers(answer.content_type) | dict(answer.headers)
        if len(body) >= GZIP_FROM and "gzip" in request.headers.get("accept-encoding", ""):
            body = self.edge.api.compressed(body)
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        headers |= {"Transfer-Encoding": "chunked"} if is_chunked else {"Content-Length": str(len(body))}
        self.writer.write(self._head(answer.status, headers))
        if request.method == "HEAD":
            return
        out = _Body(self, plan, is_chunked=is_chunked)
        for start in range(0, len(body), _PIECE):
            await out.send(body[start : start + _PIECE])
        await out.end()

    async def _begin_stream(self, plan: Plan | None) -> _Body:
        headers = self._headers("application/json") | {"Transfer-Encoding": "chunked"}
        self.writer.write(self._head(200, headers))
        await self.writer.drain()
        return _Body(self, plan, is_chunked=True, is_stream=True)

    async def _watch(self, options: WatchOptions, plan: Plan | None) -> None:
        edge = self.edge
        watch = Watch(edge.api.store, options, edge.clock.monotonic())
        out = await self._begin_stream(plan)
        gone = asyncio.ensure_future(self.reader.read(1))
        limit = edge.faults.watch_seconds
        closes_at = None if limit is None else edge.clock.monotonic() + limit
        with edge.waiting() as event:
            stream = Stream(options.resource.name, watch, event, [])
            gone.add_done_callback(lambda _done: event.set())
            edge.streams.append(stream)
            edge.stats.note_watch(stream.resource, 1)
            held: list[Line] = []
            try:
                while not gone.done():
                    wake_at = await self._watch_turn(stream, out, held)
                    now = edge.clock.monotonic()
                    if stream.ends or wake_at is None or (closes_at is not None and now >= closes_at):
                        break
                    times = [time for time in (wake_at, closes_at) if time is not None and time > 0]
                    await edge.wait_until(event, min(times, default=None))
            finally:
                edge.streams.remove(stream)
                edge.stats.note_watch(stream.resource, -1)
                went = gone.done()
                gone.cancel()
                await asyncio.wait((gone,))  # not awaited itself: its cancellation would hide our own
                if not gone.cancelled():
                    gone.exception()
        if went or stream.ends:
            if stream.ends == "reset":
                _set_reset(self.writer.get_extra_info("socket"))
            raise _ClosedError(resets=went or stream.ends == "reset")
        await out.end()

    async def _watch_turn(self, stream: Stream, out: _Body, held: list[Line]) -> float | None:
        """Send what is due; return when to look again: 0 for "only when woken", None for the end."""
        injected, stream.injected = stream.injected, []
        for raw in injected:
            await out.send(raw)
        if self.edge.faults.is_stalled(stream.resource):
            return 0.0
        stream.watch.sends_bookmarks = self.edge.faults.sends_bookmarks
        step = stream.watch.step(self.edge.clock.monotonic())
        lines = step.lines
        if stream.hold:
            events = [line for line in lines if line.kind != "BOOKMARK"]
            held += events
            lines = []
            if len(held) >= stream.hold or step.has_ended:
                lines = held[: stream.hold][::-1] + held[stream.hold :]
                held.clear()
                stream.hold = 0
        for start in range(0, len(lines), 256):
            await out.send(b"".join(line.encoded for line in lines[start : start + 256]))
        return None if step.has_ended else step.wake_at


class _Body:
    """The bytes of one answer on their way out, cut or slowed down where a fault says so."""

    def __init__(
        self, connection: _Connection, plan: Plan | None, *, is_chunked: bool, is_stream: bool = False
    ) -> None:
        self._connection = connection
        self._writer = connection.writer
        self._plan = plan
        self._is_chunked = is_chunked
        self._is_stream = is_stream
        self._sent = 0

    async def send(self, data: bytes) -> None:
        plan = self._plan
        if plan is not None and self._is_stream:
            data = plan.substituted(data)
        if plan is not None and plan.cut_at is not None:
            data, is_cut = plan.cut(data, self._sent)
            self._sent += len(data)
            await self._write(data)
            if is_cut:
                if plan.resets:
                    await asyncio.sleep(0.05)  # let the client read what was sent: a reset discards it
                    _set_reset(self._writer.get_extra_info("socket"))
                raise _ClosedError(resets=plan.resets)
            return
        await self._write(data)

    async def _write(self, data: bytes) -> None:
        if not data:
            return
        if self._is_chunked:
            data = f"{len(data):x}\r\n".encode() + data + b"\r\n"
        plan = self._plan
        if plan is None or plan.rate is None:
            self._writer.write(data)
            await self._writer.drain()
            return
        edge = self._connection.edge
        piece = max(1, int(plan.rate / 10))
        with edge.waiting() as event:
            for start in range(0, len(data), piece):
                self._writer.write(data[start : start + piece])
                await self._writer.drain()
                until = edge.clock.monotonic() + piece / plan.rate
                while edge.clock.monotonic() < until and not self._writer.is_closing():
                    await edge.wait_until(event, until)

    async def end(self) -> None:
        if self._is_chunked:
            self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()


def _set_reset(sock: socket.socket | TransportSocket) -> None:
    """Let the close of ``sock`` be a reset."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _authorize(*, user_may: Callable[[str, str], bool], name: str, target: Target) -> None:
    if target.resource_name and not user_may(target.verb, target.resource_name):
        raise status.forbidden(
            name,
            target.verb,
            target.resource_name,
            target.group,
            namespace=target.namespace,
            name=target.name,
        )
