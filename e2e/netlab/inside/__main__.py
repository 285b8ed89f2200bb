"""The process that lives in one network namespace and does there what the laboratory asks.

Requests come as JSON lines on standard input, each is served by a thread of its own, answers go out as JSON lines. When
the input ends the laboratory is gone, and so is this process with all that it started. Only the standard library, and
not much of it: a laboratory starts a dozen of these.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import dns
from servers import Servers
from traffic import Engine, Run, http_body, http_request, kind_of_error, udp_stream


class Inside:
    """The requests that can be made, one method each."""

    def __init__(self, name: str) -> None:
        self._servers = Servers(name)
        self._soaks: dict[int, tuple[Run, threading.Thread]] = {}
        self._held: dict[int, socket.socket] = {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._handles = iter(range(1, 1 << 60))

    # Programs

    def exec(
        self, argv: list[str], stdin: str | None = None, env: dict[str, str] | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """Run a program to its end."""
        try:
            done = subprocess.run(
                argv,
                input=None if stdin is None else stdin.encode(),
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                env={**os.environ, **(env or {})},
                timeout=timeout,
                check=False,
            )
        except FileNotFoundError as problem:
            return {"status": 127, "stdout": "", "stderr": str(problem)}
        except subprocess.TimeoutExpired as problem:
            out, err = (part.decode(errors="replace") if part else "" for part in (problem.stdout, problem.stderr))
            return {"status": 124, "stdout": out, "stderr": err + f"\nended after {timeout} s"}
        return {
            "status": done.returncode,
            "stdout": done.stdout.decode(errors="replace"),
            "stderr": done.stderr.decode(errors="replace"),
        }

    def spawn(self, argv: list[str], log: str, env: dict[str, str] | None = None, cwd: str | None = None) -> int:
        """Start a program that goes on; both its streams are appended to ``log``."""
        with open(log, "ab") as out:  # noqa: PTH123 - pathlib costs start-up time
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=cwd, env={**os.environ, **(env or {})}
            )
        self._children[child.pid] = child
        return child.pid

    def kill(self, pid: int, number: int) -> None:
        """Send a signal to a program of ours."""
        self._children[pid].send_signal(number)

    def wait(self, pid: int, timeout: float | None = None) -> int | None:
        """Return the exit status of a program of ours, None while it runs."""
        try:
            return self._children[pid].wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    # Servers

    def listen(self, kind: str, addresses: list[str], ports: list[int], *, silent: bool = False) -> None:
        """Serve on every address and port."""
        for address in addresses:
            for port in ports:
                self._servers.listen(kind, address, port, silent=silent)

    def rename(self, pod: str) -> None:
        """Answer under another pod's name from now on."""
        self._servers.pod = pod

    def zone(self, names: dict[str, list[str]]) -> None:
        """Set the names that the DNS server knows."""
        self._servers.zone = {name.lower(): values for name, values in names.items()}

    def seen(self, port: int) -> list[tuple[str, int, str]]:
        """Return the datagrams that came to one port."""
        return self._servers.seen(port)

    # Traffic

    def bulk(self, **what: Any) -> dict[str, Any]:
        """Make ``n`` attempts and report them all."""
        run = Run(**what)
        Engine(run).drive()
        return run.report()

    def soak(self, *, stream: bool = False, **what: Any) -> int:
        """Start traffic that goes on until stopped; ``stream`` keeps one UDP socket for all of it."""
        run = Run(**what)
        target: Callable[[], None] = (lambda: udp_stream(run)) if stream else Engine(run).drive
        thread = threading.Thread(target=target, daemon=True)
        handle = next(self._handles)
        self._soaks[handle] = run, thread
        thread.start()
        return handle

    def soak_report(self, handle: int, skip_answers: int = 0, skip_failures: int = 0) -> dict[str, Any]:
        """Tell what a soak saw since the given positions."""
        return self._soaks[handle][0].report(skip_answers, skip_failures)

    def soak_stop(self, handle: int, skip_answers: int = 0, skip_failures: int = 0) -> dict[str, Any]:
        """End a soak, let what is under way finish, and report the rest."""
        run, thread = self._soaks.pop(handle)
        run.stop.set()
        thread.join()
        return run.report(skip_answers, skip_failures)

    def hold(
        self, ip: str, port: int, source_ip: str | None = None, source_port: int = 0, timeout: float = 5.0
    ) -> dict[str, Any]:
        """Open a TCP connection and keep it."""
        try:
            source = (source_ip or "", source_port) if source_ip or source_port else None
            sock = socket.create_connection((ip, port), timeout=timeout, source_address=source)
        except OSError as problem:
            return {"failure": kind_of_error(problem)}
        handle = next(self._handles)
        self._held[handle] = sock
        return {"handle": handle, "port": sock.getsockname()[1]}

    def held_ask(self, handle: int, path: str = "/", timeout: float = 5.0) -> dict[str, Any]:
        """Send a request over a kept connection."""
        sock = self._held[handle]
        sock.settimeout(timeout)
        try:
            sock.sendall(http_request(sock.getpeername()[0], path, last=False))
            buffer = bytearray()
            while (body := http_body(buffer)) is None:
                data = sock.recv(65536)
                if not data:
                    return {"failure": "closed"}
                buffer += data
        except OSError as problem:
            return {"failure": kind_of_error(problem)}
        return {"answer": json.loads(body)}

    def held_close(self, handle: int) -> None:
        """Close a kept connection."""
        self._held.pop(handle).close()

    def fetch(self, ip: str, port: int, path: str, timeout: float = 5.0) -> dict[str, Any]:
        """GET any page of any server."""
        try:
            with socket.create_connection((ip, port), timeout=timeout) as sock:
                sock.sendall(f"GET {path} HTTP/1.0\r\nHost: lab\r\n\r\n".encode())
                with sock.makefile("rb") as stream:
                    head, _, body = stream.read().partition(b"\r\n\r\n")
        except OSError as problem:
            return {"failure": kind_of_error(problem)}
        words = head.split(None, 2)
        if len(words) < 2 or not words[1].isdigit():
            return {"failure": "closed"}
        return {"status": int(words[1]), "body": body.decode(errors="replace")}

    def dns(
        self, ip: str, name: str, qtype: str = "A", *, port: int = 53, tcp: bool = False, timeout: float = 2.0
    ) -> dict[str, Any]:
        """Ask one DNS server one question."""
        query = dns.question(name, qtype, os.getpid() & 0xFFFF)
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as sock:
                sock.settimeout(timeout)
                sock.connect((ip, port))
                if tcp:
                    sock.sendall(struct.pack("!H", len(query)) + query)
                    with sock.makefile("rb") as stream:
                        reply = stream.read(struct.unpack("!H", stream.read(2))[0])
                else:
                    sock.send(query)
                    reply = sock.recv(4096)
        except struct.error:
            return {"failure": "closed"}
        except OSError as problem:
            return {"failure": kind_of_error(problem)}
        code, values = dns.read_answer(reply)
        return {"code": code, "values": values}

    def resolve(self, name: str) -> list[str]:
        """Resolve a name as any program does: the C library, /etc/resolv.conf and its search list."""
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except socket.gaierror:
            return []
        return sorted({str(entry[4][0]) for entry in found})

    def end(self) -> None:
        """Kill what this process started."""
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                child.kill()


def main() -> None:
    """Serve requests until the input ends."""
    inside = Inside(sys.argv[1])
    out = os.dup(1)
    os.dup2(2, 1)  # what a stray print or child writes must not mix with the answers
    lock = threading.Lock()

    def serve(request: dict[str, Any]) -> None:
        try:
            reply = {"id": request["id"], "result": getattr(inside, request["do"])(**request["with"])}
        except Exception as problem:  # noqa: BLE001 - every fault is the asker's to see
            reply = {"id": request["id"], "error": f"{type(problem).__name__}: {problem}"}
        data = json.dumps(reply).encode() + b"\n"
        with lock, contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(out, data) :]

    signal.signal(signal.SIGTERM, lambda *_: (inside.end(), os._exit(0)))
    for line in sys.stdin.buffer:
        threading.Thread(target=serve, args=(json.loads(line),), daemon=True).start()
    inside.end()
    os._exit(0)


main()
