"""Who may ask what is only for this machine's eyes: the status page, and the daemon's word on itself.

Nobody is asked for a password, so both ends must be on this machine; and the name that the client asked under must be a
loopback one, else a foreign page in a browser here could have its own name resolved to 127.0.0.1 and read it.
"""

from __future__ import annotations

import ipaddress
from http import HTTPStatus

from pykubeproxy.errors import EnvironmentProblem
from pykubeproxy.serving.message import Handler, Request, Response, error
from pykubeproxy.serving.sockets import split_address

STATE = "/debug/state"
"""Where the daemon tells of itself (``pages.add_state``), and ``explain`` asks."""


def is_loopback(address: str) -> bool:
    """Tell whether a server on this address ("host:port") can be reached from its own machine only."""
    try:
        host, _ = split_address(address)
    except EnvironmentProblem:
        return False
    return _is_loopback_host(host)


def _is_loopback_host(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def under_a_loopback_name(handler: Handler) -> Handler:
    """Let the handler answer only requests under a loopback name (421 for the others)."""

    def handle(request: Request) -> Response:
        if not _is_loopback_host(_name(request)):
            text = f"this is served under a loopback name only, not as {request.headers.get('host', '')}"
            return error(HTTPStatus.MISDIRECTED_REQUEST, text)
        return handler(request)

    return handle


def from_this_machine(handler: Handler) -> Handler:
    """Let the handler answer only clients on this machine (403 for the others), under an address of it (421)."""

    def handle(request: Request) -> Response:
        if not (_is_loopback_host(request.client) or (request.client and request.client == request.server)):
            return error(HTTPStatus.FORBIDDEN, "this is for clients on this machine only")
        if _name(request) == request.server:
            return handler(request)
        return under_a_loopback_name(handler)(request)

    return handle


def _name(request: Request) -> str:
    """Return the name that the client asked under, without the port."""
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return name.removeprefix("[").removesuffix("]")
