"""Service health checks: the answers on spec.healthCheckNodePort.

It exists for load balancers in front of services with externalTrafficPolicy Local: they ask each node whether it has an
endpoint of the service. There may be hundreds of such ports, so they are listeners of the one HTTP server and no
threads of their own. It must not decide which endpoints count; the number comes in with the port.

One instance serves one IP family, on 0.0.0.0 as tcp4 or on :: as tcp6 only: a node with both families has two, each
counts its own endpoints, and neither takes the other's port.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Literal

import structlog

from pykubeproxy.serving.connection import Group
from pykubeproxy.serving.http import HttpServer, Listener
from pykubeproxy.serving.message import JSON, NOSNIFF, Response, Routes
from pykubeproxy.serving.sockets import format_address, open_socket

log = structlog.get_logger(__name__)

Desired = Mapping[int, tuple[str, str, int]]
"""Port → namespace, name, and how many ready endpoints (distinct addresses) of it are on this node."""

_WILDCARDS = {"IPv4": "0.0.0.0", "IPv6": "::"}  # noqa: S104 - every address of the node is meant


@dataclass(slots=True)
class _Check:
    """One port. ``service`` is replaced as a whole, so that the loop never reads half of a change."""

    service: tuple[str, str, int]
    listeners: dict[str, Listener] = field(default_factory=dict)
    """Address → what listens on it."""
    problem: tuple[str, str, str] | None = None
    """Namespace, name and message of the failure that has been reported."""


class ServiceHealthChecks:
    """Keep the listening ports equal to what is desired.

    200 if there is at least one local endpoint and the proxier is healthy, else 503, whatever the path and the method.
    The node's eligibility is not asked: that is what the health port is for.

    Threads: sync and close may be called from any thread but the server's own.
    """

    def __init__(
        self,
        server: HttpServer,
        family: Literal["IPv4", "IPv6"],
        *,
        is_healthy: Callable[[], bool],
        on_failure: Callable[[str, str, str], None] = lambda _namespace, _name, _message: None,
    ) -> None:
        """Take the server, and whom to tell (namespace, name, message) when a port cannot be opened."""
        self._server = server
        self._family = family
        self._is_healthy = is_healthy
        self._on_failure = on_failure
        self._group = Group(server.limits.max_connections)
        self._lock = threading.Lock()
        self._checks: dict[int, _Check] = {}

    def sync(self, desired: Desired, addresses: Sequence[str] = ()) -> None:
        """Open what is missing, close what is not desired any more, take over the counts.

        ``addresses``: IP addresses to listen on, those of the other family are ignored; none at all means every address
        of the node. A port that cannot be opened is reported once and tried again at each later sync.
        """
        wanted = self._wanted(addresses)
        with self._lock:
            for port in [port for port in self._checks if port not in desired]:
                self._close(self._checks.pop(port))
            for check in self._checks.values():
                for address in [address for address in check.listeners if address not in wanted]:
                    check.listeners.pop(address).close()
            for port, service in desired.items():
                check = self._checks.setdefault(port, _Check(service))
                check.service = service
                self._open(port, check, wanted)

    def close(self) -> None:
        """Close every port."""
        with self._lock:
            for check in self._checks.values():
                self._close(check)
            self._checks.clear()

    def open_ports(self) -> dict[int, list[str]]:
        """Return the ports that are open, and on which addresses."""
        with self._lock:
            return {port: sorted(check.listeners) for port, check in self._checks.items() if check.listeners}

    def _wanted(self, addresses: Sequence[str]) -> list[str]:
        if not addresses:
            return [_WILDCARDS[self._family]]
        return [address for address in addresses if (":" in address) == (self._family == "IPv6")]

    def _open(self, port: int, check: _Check, wanted: Sequence[str]) -> None:
        problems = []
        for address in wanted:
            if address in check.listeners:
                continue
            try:
                sock = open_socket(address, port, is_v6_only=True)
            except (OSError, OverflowError) as problem:
                reason = getattr(problem, "strerror", None) or str(problem)
                problems.append(f"cannot listen on {format_address(address, port)}: {reason}")
                continue
            check.listeners[address] = self._server.listen(sock, self._routes(check), self._group)
        namespace, name, _ = check.service
        if not problems:
            check.problem = None
            return
        problem_now = (namespace, name, "; ".join(problems))
        if check.problem != problem_now:
            check.problem = problem_now
            log.warning("health check port", namespace=namespace, service=name, port=port, error=problem_now[2])
            self._on_failure(namespace, name, f"health check port {port}: {problem_now[2]}")

    def _close(self, check: _Check) -> None:
        for listener in check.listeners.values():
            listener.close()
        check.listeners.clear()

    def _routes(self, check: _Check) -> Routes:
        routes = Routes()
        routes.add("/", lambda _: self._answer(check), is_quick=True, methods=None)
        return routes

    def _answer(self, check: _Check) -> Response:
        return service_health(*check.service, is_proxy_healthy=self._is_healthy())


def service_health(namespace: str, name: str, local_endpoints: int, *, is_proxy_healthy: bool) -> Response:
    """Return the answer of a health check port (the layout is kube-proxy's, tabs included: some probers match text)."""
    is_ok = local_endpoints > 0 and is_proxy_healthy
    body = (
        "{\n"
        '\t"service": {\n'
        f'\t\t"namespace": {json.dumps(namespace)},\n'
        f'\t\t"name": {json.dumps(name)}\n'
        "\t},\n"
        f'\t"localEndpoints": {local_endpoints},\n'
        f'\t"serviceProxyHealthy": {json.dumps(is_proxy_healthy)}\n'
        "}"
    )
    headers = (NOSNIFF, ("X-Load-Balancing-Endpoint-Weight", str(local_endpoints)))
    return Response(HTTPStatus.OK if is_ok else HTTPStatus.SERVICE_UNAVAILABLE, body.encode(), JSON, headers)
