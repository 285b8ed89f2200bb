"""Make traffic from one namespace: many short connections, datagrams, and streams that go on while rules change.

One engine serves bulk runs and soaks alike: attempts are started by pace and by a limit of those in flight, each ends
as an answer or as a failure of one kind. A SYN that had to be sent again is told apart (``retransmits``): on a
laboratory's links nothing is lost but by a rule. What is sent again later is not counted: on a busy machine the kernel
does so after 200 ms without an answer, though nothing was lost.
"""

from __future__ import annotations

import errno
import json
import selectors
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Any

_TOTAL_RETRANS = 100  # offset of tcpi_total_retrans in struct tcp_info (include/uapi/linux/tcp.h)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_KINDS = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
    errno.EPERM: "forbidden",
    errno.EACCES: "forbidden",
    errno.ETIMEDOUT: "timeout",
}


def kind_of(number: int) -> str:
    """Name a failure by its errno."""
    return _KINDS.get(number) or errno.errorcode.get(number, str(number)).lower()


def kind_of_error(problem: OSError) -> str:
    """Name a failure of a blocking socket, whose own timeout carries no errno."""
    return "timeout" if isinstance(problem, TimeoutError) else kind_of(problem.errno or 0)


def http_request(host: str, path: str, *, last: bool) -> bytes:
    """Write a GET request."""
    where = f"[{host}]" if ":" in host else host
    end = "Connection: close\r\n" if last else ""
    return f"GET {path} HTTP/1.1\r\nHost: {where}\r\n{end}\r\n".encode()


def http_body(buffer: bytes | bytearray) -> bytes | None:
    """Return the body of a whole response, None as long as it is not whole."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(buffer[:end]).lower()
    start = head.find(b"content-length:")
    if start < 0:
        return None
    length = int(head[start + 15 :].split(b"\r\n", 1)[0])
    return bytes(buffer[end + 4 : end + 4 + length]) if len(buffer) >= end + 4 + length else None


@dataclass(slots=True)
class Attempt:
    """One connection or datagram under way."""

    sock: socket.socket
    number: int
    began: float
    connecting: bool
    retransmits: int = 0
    """SYNs that were sent again."""
    buffer: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class Run:
    """What to send, and what came of it. Written by the engine's thread, read by others: lists only grow."""

    proto: str
    ip: str
    port: int
    n: int | None = 1
    path: str = "/"
    payload: str = "x"
    source_ip: str | None = None
    source_port: int | None = None
    timeout: float = 2.0
    concurrency: int = 1
    interval: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)
    started: int = 0
    answers: list[list[Any]] = field(default_factory=list)
    """number, pod, source, latency in ms, retransmits, own port, time"""
    failures: list[list[Any]] = field(default_factory=list)
    """number, kind, latency in ms, time when the attempt began"""

    def report(self, skip_answers: int = 0, skip_failures: int = 0) -> dict[str, Any]:
        """Give what is known by now, without the entries that were given before."""
        return {
            "started": self.started,
            "answers": self.answers[skip_answers:],
            "failures": self.failures[skip_failures:],
        }


class Engine:
    """Drives one Run to its end. Single-threaded; ``run.stop`` ends it from outside."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._selector = selectors.DefaultSelector()
        self._open: dict[int, Attempt] = {}
        self._next = time.monotonic()

    def drive(self) -> None:
        """Work until all attempts have ended."""
        run = self._run
        while True:
            while self._may_start():
                self._start()
            over = run.stop.is_set() or (run.n is not None and run.started >= run.n)
            if over and not self._open:
                break
            for key, _ in self._selector.select(self._patience(over=over)):
                self._step(key.data)
            self._expire()
        self._selector.close()

    def _may_start(self) -> bool:
        run = self._run
        if run.stop.is_set() or (run.n is not None and run.started >= run.n) or len(self._open) >= run.concurrency:
            return False
        return not run.interval or time.monotonic() >= self._next

    def _patience(self, *, over: bool) -> float:
        waits = [0.1]
        if self._open:
            waits.append(next(iter(self._open.values())).began + self._run.timeout - time.monotonic())
        if not over and len(self._open) < self._run.concurrency:
            waits.append(self._next - time.monotonic())
        return max(0.0, min(waits))

    def _start(self) -> None:
        run = self._run
        run.started += 1
        self._next = max(self._next + run.interval, time.monotonic() - 10 * run.interval)
        tcp = run.proto == "tcp"
        sock = socket.socket(
            socket.AF_INET6 if ":" in run.ip else socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM
        )
        attempt = Attempt(sock, run.started - 1, time.monotonic(), connecting=tcp)
        try:
            sock.setblocking(False)
            if tcp:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            if run.source_ip or run.source_port:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((run.source_ip or ("::" if ":" in run.ip else "0.0.0.0"), run.source_port or 0))
            result = sock.connect_ex((run.ip, run.port))
            if result not in (0, errno.EINPROGRESS):
                self._fail(attempt, kind_of(result))
                return
            if not tcp:
                sock.send(run.payload.encode())
        except OSError as problem:
            self._fail(attempt, kind_of(problem.errno or 0))
            return
        self._open[attempt.number] = attempt
        self._selector.register(sock, selectors.EVENT_WRITE if tcp else selectors.EVENT_READ, attempt)

    def _step(self, attempt: Attempt) -> None:
        run, sock = self._run, attempt.sock
        try:
            if attempt.connecting:
                if problem := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    self._fail(attempt, kind_of(problem))
                    return
                attempt.connecting = False
                info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                attempt.retransmits = struct.unpack_from("I", info, _TOTAL_RETRANS)[0]
                sock.send(http_request(run.ip, run.path, last=True))
                self._selector.modify(sock, selectors.EVENT_READ, attempt)
                return
            data = sock.recv(65536)
        except OSError as problem:
            self._fail(attempt, kind_of(problem.errno or 0))
            return
        if run.proto == "udp":
            self._answer(attempt, data)
            return
        attempt.buffer += data
        body = http_body(attempt.buffer)
        if body is not None:
            self._answer(attempt, body)
        elif not data:
            self._fail(attempt, "closed")

    def _expire(self) -> None:
        limit = time.monotonic() - self._run.timeout
        for attempt in list(self._open.values()):
            if attempt.began > limit:
                return  # in the order of their beginning
            self._fail(attempt, "timeout")

    def _close(self, attempt: Attempt) -> float:
        if self._open.pop(attempt.number, None) is not None:
            self._selector.unregister(attempt.sock)
        attempt.sock.close()
        return round((time.monotonic() - attempt.began) * 1000, 2)

    def _fail(self, attempt: Attempt, kind: str) -> None:
        latency = self._close(attempt)
        self._run.failures.append([attempt.number, kind, latency, round(time.time() - latency / 1000, 3)])

    def _answer(self, attempt: Attempt, body: bytes) -> None:
        try:
            told = json.loads(body)
            pod, source = str(told["pod"]), str(told["source"])
        except (ValueError, KeyError, TypeError):
            self._fail(attempt, "nonsense")
            return
        port = attempt.sock.getsockname()[1]
        latency = self._close(attempt)
        self._run.answers.append(
            [attempt.number, pod, source, latency, attempt.retransmits, port, round(time.time(), 3)]
        )


def udp_stream(run: Run) -> None:
    """Send numbered datagrams from one socket that is never replaced, until stopped or ``n`` are sent.

    An answer ends the datagram whose number it carries; one that is refused has no number and is a failure of its own.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in run.ip else socket.AF_INET, socket.SOCK_DGRAM)
    if run.source_ip or run.source_port:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((run.source_ip or ("::" if ":" in run.ip else "0.0.0.0"), run.source_port or 0))
    own_port = sock.getsockname()[1]
    sock.connect((run.ip, run.port))
    pending: dict[int, float] = {}
    due = time.monotonic()

    def note(number: int, kind: str) -> None:
        latency = round((time.monotonic() - pending.pop(number, time.monotonic())) * 1000, 2)
        run.failures.append([number, kind, latency, round(time.time() - latency / 1000, 3)])

    while True:
        now = time.monotonic()
        over = run.stop.is_set() or (run.n is not None and run.started >= run.n)
        if over and not pending:
            break
        if not over and now >= due:
            pending[run.started] = now
            try:
                sock.send(str(run.started).encode())
            except OSError as problem:
                note(run.started, kind_of(problem.errno or 0))
            run.started += 1
            due = max(due + run.interval, now)
        sock.settimeout(max(0.001, min(0.1, due - time.monotonic())) if not over else 0.05)
        try:
            told = json.loads(sock.recv(65536))
            number = int(told["payload"])
            latency = round((time.monotonic() - pending.pop(number, now)) * 1000, 2)
            run.answers.append([number, told["pod"], told["source"], latency, 0, own_port, round(time.time(), 3)])
        except TimeoutError:
            pass
        except OSError as problem:
            note(-1, kind_of(problem.errno or 0))
        limit = time.monotonic() - run.timeout
        for number in [number for number, began in pending.items() if began <= limit]:
            note(number, "timeout")
    sock.close()
