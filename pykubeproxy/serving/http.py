"""One small HTTP server for everything that this daemon answers: health, metrics, state.

It exists because what answers a load balancer must not be stopped by a bad client. Python's own http.server gives each
connection a thread and lets a client hold it for as long as it likes; hundreds of health-check ports would be hundreds
of threads. Here one thread runs one event loop with all listening sockets and all connections; a client that is slow
costs a little memory and nobody's time. It must not know what is served: that is ``pages.py`` and ``healthcheck.py``.
Messages are in ``message.py``, what one client may do is in ``connection.py``, threads in ``workers.py``.

HttpServer, the design
----------------------
*Model.* Listeners (a bound socket and a handler) and connections, all owned by the loop thread. A handler is a function
from Request to Response. Quick ones (they read a few values) run on the loop; the others run in a few worker threads;
slow ones one after the other in a thread of their own, and are not begun for a client that has left.

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
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import structlog

from pykubeproxy.errors import EnvironmentProblem
from pykubeproxy.serving.connection import Connection, Group, Limits, Shared
from pykubeproxy.serving.message import Routes
from pykubeproxy.serving.sockets import format_address, open_socket, split_address
from pykubeproxy.serving.workers import Workers

log = structlog.get_logger(__name__)

T = TypeVar("T")

_ACCEPTS_PER_TURN = 64
_ACCEPT_PAUSE = 1.0


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
        self.connections: set[Connection] = set()
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
        self.limits = limits = limits or Limits()
        self.stopping = threading.Event()
        """Set when the server begins to stop; handlers that take long should look at it."""
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(_log_loop_problem)
        self._shared = Shared(
            limits,
            self.loop,
            Workers("http-worker", worker_threads, max_waiting=limits.max_connections),
            Workers("http-slow", 1, max_waiting=limits.max_slow_waiting),
            self.stopping,
        )
        self._thread = threading.Thread(target=self._run_loop, name="http", daemon=True)
        self._listeners: set[Listener] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

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
        self._shared.workers.stop()
        self._shared.slow_workers.stop()
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
                again = self.limits.retry_interval
                said = problem.strerror or str(problem)
                log.warning("cannot listen", server=name, address=address, error=said, retry_in=again)
                missing.add(address)
                on_failure(message)
        serving = Serving(self, name, listeners, missing)
        if listeners:
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
        self._spawn(self.loop.connect_accepted_socket(lambda: Connection(self._shared, listener), client))

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


def _log_loop_problem(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    log.warning("event loop", problem=context.get("message"), exc_info=context.get("exception"))
