"""Listening sockets and their addresses, bound as Go's net.Listen binds them."""

from __future__ import annotations

import errno
import socket

from pykubeproxy.errors import EnvironmentProblem


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
