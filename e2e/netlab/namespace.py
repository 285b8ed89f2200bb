"""What can be done in one namespace: run programs, serve, make traffic.

Everything goes through the process that lives there (``agent``); nothing here changes the network itself.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from e2e.netlab.agent import Agent
from e2e.netlab.errors import LabError
from e2e.netlab.ownership import Claim
from e2e.netlab.traffic import Traffic
from e2e.netlab.wiring import PodWiring

LOCK = "/run/xtables.lock"
_NUMBERS = itertools.count(1)


class Done(NamedTuple):
    """A program that has ended."""

    status: int
    stdout: str
    stderr: str


class Resolved(NamedTuple):
    """The answer to a DNS question: ``code`` 0 is good, 3 no such name; ``failure`` "" or as in Failure.kind."""

    code: int
    values: list[str]
    failure: str


class Page(NamedTuple):
    """What an HTTP server answered; ``failure`` "" or as in Failure.kind."""

    status: int
    body: str
    failure: str


class Process:
    """A program that goes on in a namespace; its output is appended to ``log``."""

    def __init__(self, agent: Agent, pid: int, log: Path) -> None:
        self._agent = agent
        self.pid = pid
        self.log = log

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send a signal."""
        self._agent.call("kill", pid=self.pid, number=int(number))

    def wait(self, timeout: float | None = 30.0) -> int | None:
        """Wait for the end; None when it has not come in time."""
        status: int | None = self._agent.call("wait", patience=(timeout or 1e6) + 30, pid=self.pid, timeout=timeout)
        return status

    def running(self) -> bool:
        """Tell whether it still runs."""
        return self.wait(0) is None

    def output(self) -> str:
        """Return what it has written by now."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class Soak:
    """Traffic that goes on while other things happen; ``so_far`` may be read at any time."""

    def __init__(self, agent: Agent, handle: int) -> None:
        self._agent = agent
        self._handle = handle
        self._traffic = Traffic()

    def so_far(self) -> Traffic:
        """Return what came of it by now."""
        return self._take("soak_report")

    def stop(self) -> Traffic:
        """End it, let what is under way finish, and return everything."""
        return self._take("soak_stop")

    def _take(self, do: str) -> Traffic:
        known = self._traffic
        report = self._agent.call(
            do, handle=self._handle, skip_answers=len(known.answers), skip_failures=len(known.failures)
        )
        known.take(report)
        return known


class Connection:
    """A TCP connection that is kept open. ``failure`` is "" when it came about."""

    def __init__(self, agent: Agent, opened: dict[str, Any]) -> None:
        self._agent = agent
        self._handle: int = opened.get("handle", 0)
        self.port: int = opened.get("port", 0)
        self.failure: str = opened.get("failure", "")

    def ask(self, path: str = "/", timeout: float = 5.0) -> dict[str, Any]:
        """Send a request over it: {"answer": {pod, source, port, to, path}} or {"failure": kind}."""
        answer: dict[str, Any] = self._agent.call("held_ask", handle=self._handle, path=path, timeout=timeout)
        return answer

    def close(self) -> None:
        """Close it."""
        self._agent.call("held_close", handle=self._handle)


class Namespace:
    """One namespace of the laboratory and the process in it."""

    def __init__(self, claim: Claim, name: str, *, resolver: str | None = None) -> None:
        self.name = name
        self.netns = claim.netns(name)
        self._folder = claim.folder
        binds = [(self._folder / "xtables.lock", LOCK)]
        if resolver:
            resolv = self._folder / f"{name}.resolv.conf"
            resolv.write_text(
                f"nameserver {resolver}\nsearch default.svc.cluster.local svc.cluster.local cluster.local\n"
                "options ndots:5 timeout:1 attempts:2\n"
            )
            binds.append((resolv, "/etc/resolv.conf"))
        self.agent = Agent(self.netns, name, self._folder / f"{name}.log", binds)

    # Programs

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: str | None = None,
        check: bool = True,
        env: dict[str, str] | None = None,
        timeout: float | None = 120.0,
    ) -> Done:
        """Run a program here to its end. Raises LabError when it fails and ``check`` is set."""
        done = Done(
            **self.agent.call(
                "exec", patience=(timeout or 1e6) + 30, argv=list(argv), stdin=stdin, env=env, timeout=timeout
            )
        )
        if check and done.status:
            raise LabError(f"{' '.join(argv)} in {self.name}: exit {done.status}: {done.stderr.strip()}")
        return done

    def spawn(
        self, argv: Sequence[str], *, log: Path | None = None, env: dict[str, str] | None = None, cwd: str | None = None
    ) -> Process:
        """Start a program here that goes on; it is killed with the laboratory at the latest."""
        log = log or self._folder / f"{self.name}-{next(_NUMBERS)}.out"
        return Process(self.agent, self.agent.call("spawn", argv=list(argv), log=str(log), env=env, cwd=cwd), log)

    def enter(self) -> str:
        """Return the command that leads a person in here, to the laboratory's own xtables lock as well."""
        return f"nsenter --target {self.agent.pid} --net --mount"

    # Servers

    def listen(
        self,
        kind: Literal["http", "echo", "dns"],
        addresses: Iterable[str],
        ports: Iterable[int],
        *,
        silent: bool = False,
    ) -> None:
        """Serve here: http, echo (UDP) or dns (UDP and TCP); a ``silent`` UDP server only listens."""
        self.agent.call("listen", kind=kind, addresses=list(addresses), ports=list(ports), silent=silent)

    def rename(self, pod: str) -> None:
        """Let the servers here answer under another name."""
        self.agent.call("rename", pod=pod)

    def zone(self, names: dict[str, list[str]]) -> None:
        """Set the names that the DNS server here knows; ``whoami`` (TXT) always tells pod and source."""
        self.agent.call("zone", names=names)

    def seen(self, port: int) -> list[tuple[str, int, str]]:
        """Return (source, source port, payload) of the datagrams that came to a UDP port here."""
        return [(source, sport, payload) for source, sport, payload in self.agent.call("seen", port=port)]

    # Traffic

    def http(
        self,
        ip: str,
        port: int,
        *,
        n: int = 1,
        path: str = "/",
        source_ip: str | None = None,
        source_port: int | None = None,
        timeout: float = 2.0,
        concurrency: int = 1,
        interval: float = 0.0,
    ) -> Traffic:
        """Open ``n`` new connections, one request each; at most ``concurrency`` at a time, ``interval`` s apart."""
        return self._bulk(
            proto="tcp", ip=ip, port=port, n=n, path=path, source_ip=source_ip, source_port=source_port,
            timeout=timeout, concurrency=concurrency, interval=interval,
        )  # fmt: skip

    def udp(
        self,
        ip: str,
        port: int,
        *,
        n: int = 1,
        payload: str = "x",
        source_ip: str | None = None,
        source_port: int | None = None,
        timeout: float = 2.0,
        concurrency: int = 1,
        interval: float = 0.0,
    ) -> Traffic:
        """Send ``n`` datagrams to an echo server, each from a new socket."""
        return self._bulk(
            proto="udp", ip=ip, port=port, n=n, payload=payload, source_ip=source_ip, source_port=source_port,
            timeout=timeout, concurrency=concurrency, interval=interval,
        )  # fmt: skip

    def soak_http(self, ip: str, port: int, *, interval: float = 0.005, timeout: float = 2.0, **more: Any) -> Soak:
        """Open a new connection every ``interval`` seconds until stopped, whatever became of the others."""
        what = {"proto": "tcp", "n": None, "concurrency": 512, **more}
        return Soak(self.agent, self.agent.call("soak", ip=ip, port=port, interval=interval, timeout=timeout, **what))

    def soak_udp(
        self, ip: str, port: int, *, interval: float = 0.02, timeout: float = 1.0, one_socket: bool = True, **more: Any
    ) -> Soak:
        """Send a datagram every ``interval`` seconds until stopped, from one socket (one flow) or a new one each."""
        what = {"proto": "udp", "n": None, "stream": one_socket, "concurrency": 512, **more}
        return Soak(self.agent, self.agent.call("soak", ip=ip, port=port, interval=interval, timeout=timeout, **what))

    def connect(self, ip: str, port: int, *, timeout: float = 5.0, source_port: int = 0) -> Connection:
        """Open a TCP connection and keep it."""
        return Connection(
            self.agent, self.agent.call("hold", ip=ip, port=port, timeout=timeout, source_port=source_port)
        )

    def fetch(self, ip: str, port: int, path: str = "/", *, timeout: float = 5.0) -> Page:
        """GET a page of any HTTP server."""
        told = self.agent.call("fetch", ip=ip, port=port, path=path, timeout=timeout)
        return Page(told.get("status", 0), told.get("body", ""), told.get("failure", ""))

    def dns(self, ip: str, name: str, qtype: Literal["A", "AAAA", "TXT"] = "A", *, tcp: bool = False) -> Resolved:
        """Ask a DNS server directly."""
        told = self.agent.call("dns", ip=ip, name=name, qtype=qtype, tcp=tcp)
        return Resolved(told.get("code", -1), told.get("values", []), told.get("failure", ""))

    def resolve(self, name: str) -> list[str]:
        """Resolve a name with the C library, as any program in the pod would."""
        found: list[str] = self.agent.call("resolve", name=name)
        return found

    def _bulk(self, **what: Any) -> Traffic:
        traffic = Traffic()
        patience = 60 + what["n"] * (what["timeout"] / what["concurrency"] + what["interval"])
        traffic.take(self.agent.call("bulk", patience=patience, **what))
        return traffic


class Pod(Namespace):
    """A pod on the node's bridge."""

    def __init__(self, claim: Claim, name: str, wires: PodWiring, *, resolver: str | None) -> None:
        super().__init__(claim, name, resolver=resolver)
        self.ip, self.ip6, self.port = wires.ip, wires.ip6, wires.port
