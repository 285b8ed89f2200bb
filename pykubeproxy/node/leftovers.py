"""What kube-proxy's other modes leave in the kernel beside iptables rules, found and removed by netlink alone.

nftables mode owns the tables ``ip kube-proxy`` and ``ip6 kube-proxy``; ipvs mode owns the interface kube-ipvs0 with all
service addresses on it, ipsets named KUBE-…, and virtual servers. Those carry no owner's name: the ones whose address
is on kube-ipvs0 are its own, and so are those on a node port of a local address. Without that interface ipvs mode never
ran here, and nothing of ipvs is touched.

What this module must not do: raise because something cannot be looked at or removed; it returns what is left.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import structlog

from pykubeproxy.errors import EnvironmentProblem
from pykubeproxy.node.addresses import Family, interface_addresses
from pykubeproxy.node.netlink import (
    HEADER,
    NETLINK_NETFILTER,
    NETLINK_ROUTE,
    NetlinkSocket,
    attribute,
    attributes,
    nfgen,
)

log = structlog.get_logger()

_INET = {"IPv4": socket.AF_INET, "IPv6": socket.AF_INET6}

NFT_TABLE = "kube-proxy"
_NFTABLES = 10
_NEWTABLE, _GETTABLE, _DELTABLE = 0, 1, 2
_TABLE_NAME = 1

IPVS_INTERFACE = "kube-ipvs0"
_RTM_DELLINK = 17
_IFINFOMSG = struct.Struct("=BxHiII")

SET_PREFIX = "KUBE-"
_IPSET = 6
_SET_DESTROY, _SET_LIST = 3, 7
_SET_PROTOCOL, _SET_NAME, _SET_FLAGS = 1, 2, 6
_SET_PROTOCOL_VERSION = 6
_LIST_SETNAME = struct.pack(">I", 1 << 1)

_NODE_PORTS = range(30000, 32768)
_PROTOCOLS = {"TCP": socket.IPPROTO_TCP, "UDP": socket.IPPROTO_UDP, "SCTP": socket.IPPROTO_SCTP}


def remove_nftables_mode(family: Family) -> bool:
    """Remove the table of kube-proxy's nftables mode; return whether there was one."""
    try:
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            if NFT_TABLE not in _nft_tables(netlink, family):
                return False
            body = nfgen(_INET[family]) + attribute(_TABLE_NAME, NFT_TABLE.encode() + b"\0")
            code = netlink.change(_NFTABLES, _DELTABLE, body)
    except OSError as error:
        log.debug("nftables not read", reason=error.strerror or str(error))
        return False
    if code:
        log.warning("nftables mode not removed", family=family, table=NFT_TABLE, errno=code)
        return False
    log.warning("nftables mode removed", family=family, table=NFT_TABLE)
    return True


def _nft_tables(netlink: NetlinkSocket, family: Family) -> set[str]:
    names = set()
    for buffer, start, end in _entries(netlink, _NFTABLES, _GETTABLE, _NEWTABLE, nfgen(_INET[family])):
        for kind, first, last in attributes(buffer, start, end):
            if kind == _TABLE_NAME:
                names.add(bytes(buffer[first:last]).rstrip(b"\0").decode("utf-8", "replace"))
    return names


def _entries(
    netlink: NetlinkSocket, subsystem: int, ask: int, answer: int, body: bytes
) -> Iterator[tuple[bytearray, int, int]]:
    """Yield (buffer, start, end) of the attributes of each message of a dump of one nfnetlink subsystem."""
    for buffer, filled in netlink.dump(subsystem << 8 | ask, body):
        offset = 0
        while offset + HEADER.size <= filled:
            length, kind, *_ = HEADER.unpack_from(buffer, offset)
            if kind == subsystem << 8 | answer:
                yield buffer, offset + HEADER.size + 4, offset + length
            offset += (length + 3) & ~3


@dataclass(frozen=True, slots=True)
class VirtualServer:
    """One entry of the kernel's table of virtual servers."""

    protocol: str
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Ipvs:
    """What ipvs mode left."""

    interface: bool = False
    sets: tuple[str, ...] = ()
    servers: tuple[VirtualServer, ...] = ()

    def __bool__(self) -> bool:
        return self.interface or bool(self.sets) or bool(self.servers)

    def __str__(self) -> str:
        parts = [f"interface {IPVS_INTERFACE}"] if self.interface else []
        parts += [f"{len(self.sets)} ipsets"] if self.sets else []
        parts += [f"{len(self.servers)} virtual servers"] if self.servers else []
        return ", ".join(parts) or "nothing"


def find_ipvs(proc: Path = Path("/proc/thread-self/net")) -> Ipvs:
    """Look for what ipvs mode left; nothing where its interface is missing."""
    if not _interface_index():
        return Ipvs()
    text = ""
    with contextlib.suppress(OSError):
        text = (proc / "ip_vs").read_text(encoding="ascii", errors="replace")
    try:
        addresses = interface_addresses()
    except EnvironmentProblem:
        addresses = []
    index = _interface_index()
    own = frozenset(entry.address for entry in addresses if entry.interface_index == index)
    local = frozenset(entry.address for entry in addresses)
    return Ipvs(interface=True, sets=_sets(), servers=belonging(parse_ip_vs(text), own, local))


def belonging(
    servers: Iterable[VirtualServer], service_addresses: frozenset[str], local: frozenset[str]
) -> tuple[VirtualServer, ...]:
    """Choose the virtual servers that ipvs mode has made; others (keepalived's) stay."""
    return tuple(
        server
        for server in servers
        if server.address in service_addresses or (server.address in local and server.port in _NODE_PORTS)
    )


def parse_ip_vs(text: str) -> tuple[VirtualServer, ...]:
    """Read /proc/net/ip_vs: the virtual servers with an address (those of a firewall mark are nobody's we know)."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if not words or words[0] not in _PROTOCOLS:
            continue
        address, _, port = words[1].rpartition(":")
        try:
            if address.startswith("["):
                found.append(VirtualServer(words[0], str(IPv6Address(address.strip("[]"))), int(port, 16)))
            else:
                found.append(VirtualServer(words[0], str(IPv4Address(int(address, 16))), int(port, 16)))
        except ValueError:
            continue
    return tuple(found)


def remove_ipvs(found: Ipvs) -> list[str]:
    """Remove what was found; return what could not be, one line each. Rules that refer to the sets must be gone."""
    left = [f"ipset {name}: errno {code}" for name in found.sets if (code := _destroy_set(name))]
    left += _remove_servers(found.servers)
    if found.interface and (code := _delete_interface()):
        left.append(f"interface {IPVS_INTERFACE}: errno {code}")
    return left


def _remove_servers(servers: Iterable[VirtualServer]) -> list[str]:
    """Delete virtual servers through pyroute2, which knows the generic netlink of ipvs; return what is left."""
    left: list[str] = []
    wanted = list(servers)
    if not wanted:
        return left
    from pyroute2.ipvs import IPVS, IPVSService  # noqa: PLC0415 - 0.1 s and 23 MB, for a rare case

    try:
        with IPVS() as ipvs:
            for server in wanted:
                service = IPVSService(addr=server.address, port=server.port, protocol=_PROTOCOLS[server.protocol])
                try:
                    ipvs.service("del", service=service)
                except Exception as error:  # noqa: BLE001 - the library's own kinds; the next one may work
                    left.append(f"virtual server {server.protocol} {server.address} {server.port}: {error}")
    except Exception as error:  # noqa: BLE001
        return [f"{len(wanted)} virtual servers: {error}"]
    return left


def _interface_index() -> int:
    try:
        return socket.if_nametoindex(IPVS_INTERFACE)
    except OSError:
        return 0


def _delete_interface() -> int:
    try:
        with NetlinkSocket(NETLINK_ROUTE) as netlink:
            (code,) = netlink.request(_RTM_DELLINK, 0, [_IFINFOMSG.pack(0, 0, _interface_index(), 0, 0)])
    except OSError as error:
        return error.errno or -1
    return code


def _sets() -> tuple[str, ...]:
    names = []
    body = nfgen(0) + attribute(_SET_PROTOCOL, bytes([_SET_PROTOCOL_VERSION])) + attribute(_SET_FLAGS, _LIST_SETNAME)
    try:
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            for buffer, start, end in _entries(netlink, _IPSET, _SET_LIST, _SET_LIST, body):
                for kind, first, last in attributes(buffer, start, end):
                    if kind == _SET_NAME:
                        names.append(bytes(buffer[first:last]).rstrip(b"\0").decode("utf-8", "replace"))
    except OSError as error:
        log.debug("ipsets not read", reason=error.strerror or str(error))
    return tuple(name for name in names if name.startswith(SET_PREFIX))


def _destroy_set(name: str) -> int:
    body = (
        nfgen(0)
        + attribute(_SET_PROTOCOL, bytes([_SET_PROTOCOL_VERSION]))
        + attribute(_SET_NAME, name.encode() + b"\0")
    )
    try:
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            (code,) = netlink.request(_IPSET << 8 | _SET_DESTROY, 0, [body])
    except OSError as error:
        return error.errno or -1
    return code
