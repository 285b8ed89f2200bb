"""Start-up checks that only warn: settings of the host that break services in ways nobody connects with a proxy.

``findings`` is pure; ``read_facts`` reads what it needs. Nothing here changes a setting or stops the daemon.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from pykubeproxy.node.netlink import HEADER, NetlinkSocket

log = structlog.get_logger()

DEFAULT_NODEPORT_RANGE = (30000, 32767)
_STRICT = 1
_VIRTUAL_PREFIXES = (
    "veth",
    "cali",
    "lxc",
    "docker",
    "cni",
    "flannel",
    "br-",
    "virbr",
    "dummy",
    "kube-",
    "tunl",
    "sit",
    "eni",
)

PortRange = tuple[int, int]
Listener = tuple[str, int]
"""Protocol ("TCP" or "UDP") and port."""

# include/uapi/linux/inet_diag.h. /proc/net/tcp would list every connection of the node; this lists listeners only.
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_DIAG_REQUEST = struct.Struct("=BBBBI48x")
_DIAG_ANSWER = struct.Struct("=4xH")
_LISTEN, _CLOSE = 10, 7


@dataclass(frozen=True, slots=True)
class Facts:
    """What the checks look at. ``rp_filter`` maps ``all`` and each interface to 0 (off), 1 (strict) or 2 (loose)."""

    rp_filter: Mapping[str, int] = field(default_factory=dict)
    local_ports: PortRange | None = None
    reserved_ports: tuple[PortRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One warning: ``check`` is a stable short name, ``message`` one sentence that says what to do."""

    check: str
    message: str


def findings(
    facts: Facts,
    *,
    nodeport_range: PortRange = DEFAULT_NODEPORT_RANGE,
    api_server: str = "",
    service_cidrs: Iterable[str] = (),
) -> list[Finding]:
    """Judge the facts. ``api_server`` is the URL the daemon talks to, ``service_cidrs`` the known service ranges."""
    checks = (
        _strict_rp_filter(facts.rp_filter),
        _port_overlap(facts, nodeport_range),
        _api_server_is_a_service(api_server, service_cidrs),
    )
    return [finding for finding in checks if finding is not None]


def _strict_rp_filter(rp_filter: Mapping[str, int]) -> Finding | None:
    # The kernel uses the larger of "all" and the interface's own value (Documentation/networking/ip-sysctl.rst), so
    # a loose interface stays loose under a strict "all".
    everywhere = rp_filter.get("all", 0)
    cards = [
        name for name in rp_filter if name not in ("all", "default", "lo") and not name.startswith(_VIRTUAL_PREFIXES)
    ]
    strict = sorted(name for name in cards if max(everywhere, rp_filter[name]) == _STRICT)
    if len(cards) < 2 or not strict:
        return None
    return Finding(
        "rp_filter",
        f"rp_filter is strict on {', '.join(strict)} and the node has {len(cards)} network cards: node port traffic"
        " that comes in on one and whose route back is another is dropped; set rp_filter to 2 (loose) there",
    )


def _port_overlap(facts: Facts, nodeport_range: PortRange) -> Finding | None:
    if facts.local_ports is None:
        return None
    first, last = max(facts.local_ports[0], nodeport_range[0]), min(facts.local_ports[1], nodeport_range[1])
    free = [port for port in range(first, last + 1) if not any(a <= port <= b for a, b in facts.reserved_ports)]
    if not free:
        return None
    return Finding(
        "local_port_range",
        f"ports {free[0]} to {free[-1]} are both node ports and ephemeral ports of this host"
        f" (net.ipv4.ip_local_port_range {facts.local_ports[0]} {facts.local_ports[1]}): outgoing connections from them"
        " can fail at random; move the range or list them in net.ipv4.ip_local_reserved_ports",
    )


def _api_server_is_a_service(api_server: str, service_cidrs: Iterable[str]) -> Finding | None:
    host = urlsplit(api_server if "//" in api_server else f"//{api_server}").hostname if api_server else None
    if not host:
        return None
    named = host in ("kubernetes", "kubernetes.default", "kubernetes.default.svc") or host.startswith(
        "kubernetes.default.svc."
    )
    if not named and not _in_ranges(host, service_cidrs):
        return None
    return Finding(
        "api_server",
        f"the API server is reached through its own Service ({host}): when its endpoints change while these rules are"
        " stale, the daemon cannot learn of it; name a node or load balancer address in the kubeconfig",
    )


def _in_ranges(host: str, cidrs: Iterable[str]) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    for cidr in cidrs:
        try:
            network = ip_network(cidr.strip(), strict=False)
        except ValueError:
            continue
        if address.version == network.version and address in network:
            return True
    return False


def port_ranges(text: str) -> tuple[PortRange, ...]:
    """Parse the comma-separated form of ip_local_reserved_ports; parts without sense are left out."""
    result: list[PortRange] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        try:
            result.append((int(first), int(last or first)))
        except ValueError:
            continue
    return tuple(result)


def read_facts(proc: Path = Path("/proc")) -> Facts:
    """Read the facts of this network namespace; what cannot be read is left empty."""
    rp_filter: dict[str, int] = {}
    for path in sorted((proc / "sys/net/ipv4/conf").glob("*/rp_filter")):
        text = _text(path)
        if text.isdigit():
            rp_filter[path.parent.name] = int(text)
    bounds = _text(proc / "sys/net/ipv4/ip_local_port_range").split()
    local_ports = (int(bounds[0]), int(bounds[1])) if len(bounds) == 2 and all(map(str.isdigit, bounds)) else None
    reserved = port_ranges(_text(proc / "sys/net/ipv4/ip_local_reserved_ports"))
    return Facts(rp_filter, local_ports, reserved)


def listening_ports() -> frozenset[Listener]:
    """List the ports on which programs of this network namespace wait; empty where the kernel does not tell."""
    found: set[Listener] = set()
    # A UDP socket without a peer is in state CLOSE.
    wanted = (("TCP", socket.IPPROTO_TCP, _LISTEN), ("UDP", socket.IPPROTO_UDP, _CLOSE))
    try:
        with NetlinkSocket(_NETLINK_SOCK_DIAG) as netlink:
            for family in (socket.AF_INET, socket.AF_INET6):
                for name, protocol, state in wanted:
                    body = _DIAG_REQUEST.pack(family, protocol, 0, 0, 1 << state)
                    for buffer, filled in netlink.dump(_SOCK_DIAG_BY_FAMILY, body):
                        found.update((name, port) for port in _ports(buffer, filled))
    except OSError as error:
        log.debug("listeners not read", reason=error.strerror or str(error))
    return frozenset(found)


def _ports(buffer: bytearray, filled: int) -> list[int]:
    ports: list[int] = []
    offset = 0
    while offset + HEADER.size <= filled:
        length, kind, *_ = HEADER.unpack_from(buffer, offset)
        if kind == _SOCK_DIAG_BY_FAMILY:
            (port,) = _DIAG_ANSWER.unpack_from(buffer, offset + HEADER.size)
            ports.append(socket.ntohs(port))
        offset += (length + 3) & ~3
    return ports


def shadowed(listening: Iterable[Listener], node_ports: Iterable[Listener]) -> list[Listener]:
    """List the node ports that a program of the host waits on too: once rules stand, new clients never reach it."""
    return sorted(set(listening) & set(node_ports))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def warn(found: Iterable[Finding]) -> None:
    """Log each finding once, as a warning."""
    for finding in found:
        log.warning("host setting", check=finding.check, message=finding.message)
