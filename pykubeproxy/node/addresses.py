"""The node's addresses: which are local, which one is "the node's", and whether a family works at all.

``node_ips`` is pure and follows kube-proxy (GetNodeHostIPs in pkg/util/node, detectNodeIPs in cmd/kube-proxy/app): on
Linux the node's address only decides whether a load balancer source range lets the node itself in, and which family
comes first. Local addresses come from the kernel by netlink, in the network namespace of the calling thread.

What this module must not do: wait for a Node object or keep an answer; the caller asks again when something changed.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Literal

from pykubeproxy.errors import EnvironmentProblem
from pykubeproxy.node.netlink import HEADER, NETLINK_ROUTE, NetlinkSocket, attributes

Family = Literal["IPv4", "IPv6"]
IPAddress = IPv4Address | IPv6Address

LOOPBACK: Mapping[Family, str] = {"IPv4": "127.0.0.1", "IPv6": "::1"}

_RTM_NEWADDR = 20
_RTM_GETADDR = 22
_IFADDRMSG = struct.Struct("=BBBBI")
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_IFA_F_TENTATIVE = 0x40
_RT_SCOPE_LINK = 253


def family_of(address: str) -> Family | None:
    """Return the family of an address in text form, None where it is none."""
    parsed = _parse(address)
    return None if parsed is None else _family(parsed)


def _family(address: IPAddress) -> Family:
    return "IPv4" if address.version == 4 else "IPv6"


def _parse(text: str) -> IPAddress | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return None
        # Go's net.IP, which the reference compares with, does not tell ::ffff:10.0.0.1 from 10.0.0.1.
        return address.ipv4_mapped or address
    return address


@dataclass(frozen=True, slots=True)
class NodeIPs:
    """The node's address of each family; ``assumed`` families have none and were given the loopback address."""

    primary: Family
    addresses: Mapping[Family, str]
    assumed: frozenset[Family]


def node_ips(node_addresses: Iterable[tuple[str, str]], bind_address: str = "") -> NodeIPs:
    """Choose the node's address of each family.

    ``node_addresses`` are (type, address) pairs of Node.status.addresses in their order: the first InternalIP of a
    family wins, else its first ExternalIP; anything that does not parse is passed over. The family of the very first
    choice is the primary one. ``bind_address`` (may be "v4" or "v6", "" or unspecified: none) replaces the address of
    its family and makes that family primary.
    """
    pairs = [(kind, parsed) for kind, text in node_addresses if (parsed := _parse(text)) is not None]
    ordered = [address for wanted in ("InternalIP", "ExternalIP") for kind, address in pairs if kind == wanted]
    primary: Family = _family(ordered[0]) if ordered else "IPv4"
    chosen: dict[Family, str] = {}
    for address in ordered:
        chosen.setdefault(_family(address), str(address))
    override = _parse(bind_address)
    if override is not None and not override.is_unspecified:
        primary = _family(override)
        chosen[primary] = str(override)
    assumed = frozenset(family for family in LOOPBACK if family not in chosen)
    return NodeIPs(primary, {family: chosen.get(family, LOOPBACK[family]) for family in LOOPBACK}, assumed)


def in_any(address: str, cidrs: Iterable[str]) -> bool:
    """Tell whether an address lies in one of the ranges; ranges of the other family or without sense do not count."""
    parsed = _parse(address)
    if parsed is None:
        return False
    for cidr in cidrs:
        try:
            network = ip_network(cidr.strip(), strict=False)
        except ValueError:
            continue
        if network.version == parsed.version and parsed in network:
            return True
    return False


@dataclass(frozen=True, slots=True)
class LocalAddress:
    """One address of one interface."""

    family: Family
    address: str
    prefix_length: int
    interface_index: int
    is_link_local: bool


def _decode(buffer: bytearray, start: int, end: int) -> LocalAddress | None:
    family_number, prefix, flags, scope, index = _IFADDRMSG.unpack_from(buffer, start)
    if family_number not in (socket.AF_INET, socket.AF_INET6) or flags & _IFA_F_TENTATIVE:
        return None
    found: dict[int, bytes] = {
        kind: bytes(buffer[first:last]) for kind, first, last in attributes(buffer, start + _IFADDRMSG.size, end)
    }
    # On point-to-point links IFA_ADDRESS is the peer and IFA_LOCAL ours; IPv6 mostly has only IFA_ADDRESS.
    packed = found.get(_IFA_LOCAL, found.get(_IFA_ADDRESS))
    if packed is None or len(packed) not in (4, 16):
        return None
    family: Family = "IPv4" if family_number == socket.AF_INET else "IPv6"
    text = socket.inet_ntop(family_number, packed)
    link_local = scope == _RT_SCOPE_LINK and family == "IPv6"
    return LocalAddress(family, text, prefix, index, link_local)


def interface_addresses() -> list[LocalAddress]:
    """Read all addresses of all interfaces, loopback included, in the kernel's order.

    Addresses still in duplicate detection are left out. Raises EnvironmentProblem where netlink does not answer.
    """
    result: list[LocalAddress] = []
    try:
        with NetlinkSocket(NETLINK_ROUTE) as netlink:
            body = _IFADDRMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
            for buffer, filled in netlink.dump(_RTM_GETADDR, body):
                offset = 0
                while offset + HEADER.size <= filled:
                    length, kind, *_ = HEADER.unpack_from(buffer, offset)
                    if kind == _RTM_NEWADDR:
                        decoded = _decode(buffer, offset + HEADER.size, offset + length)
                        if decoded is not None:
                            result.append(decoded)
                    offset += (length + 3) & ~3
    except OSError as error:
        raise EnvironmentProblem(f"cannot read the addresses of this node: {error.strerror or error}") from error
    return result


def local_addresses(
    found: Iterable[LocalAddress], family: Family, cidrs: Iterable[str] = (), *, with_link_local: bool = False
) -> frozenset[str]:
    """Choose the local addresses of one family that lie in ``cidrs`` (none given: all).

    IPv6 link-local addresses do not count unless asked for: a text form without its interface says nothing.
    """
    ranges = tuple(cidrs)
    return frozenset(
        entry.address
        for entry in found
        if entry.family == family
        and (with_link_local or not entry.is_link_local)
        and (not ranges or in_any(entry.address, ranges))
    )


def ipv6_supported(proc: Path = Path("/proc")) -> bool:
    """Tell whether IPv6 exists and is not switched off in this network namespace."""
    if not (proc / "net/if_inet6").exists():
        return False
    try:
        disabled = (proc / "sys/net/ipv6/conf/all/disable_ipv6").read_text(encoding="ascii").strip()
    except OSError:
        # A file that cannot be read says nothing against IPv6; the trial of ip6tables decides.
        return True
    return disabled != "1"
