"""IP addresses, CIDRs and host:port texts as kube-proxy reads them, and their split by IP family.

Texts that come out are canonical: an address as inet_ntop writes it, a CIDR without host bits. Every parser raises
ValueError whose text completes "the value …".
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Literal
from urllib.parse import urlsplit

from pykubeproxy.config.options import Options

Family = Literal[4, 6]
PRIMARY = "primary"
"""The word that stands for the node's own addresses in nodePortAddresses."""

_URL = "https://10.0.0.1:6443"
_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
_PREFIX_LENGTH = re.compile(r"[0-9]{1,3}", re.ASCII)


def parse_ip(text: str) -> str:
    """Return the canonical text of an address. Zeros in front of an IPv4 octet are dropped, as kube-proxy does."""
    try:
        return _canonical(_packed(text))
    except ValueError:
        raise ValueError("must be an IP address") from None


def parse_cidr(text: str) -> str:
    """Return the canonical text of a CIDR; host bits are cleared."""
    address, _, length = text.partition("/")
    try:
        packed = _packed(address)
    except ValueError:
        packed = b""
    width = len(packed) * 8
    if not width or not _PREFIX_LENGTH.fullmatch(length) or int(length) > width:
        raise ValueError('must be a CIDR, like "10.244.0.0/16" or "fd00:10:244::/56"')
    bits = int(length)
    mask = ((1 << bits) - 1) << (width - bits)
    network = (int.from_bytes(packed) & mask).to_bytes(len(packed))
    return f"{_canonical(network)}/{bits}"


def parse_host_port(text: str, default_port: int) -> str:
    """Return ``ip:port``; a bare address gets ``default_port``."""
    host, port = _split_host_port(text, default_port)
    try:
        host = parse_ip(host)
    except ValueError:
        raise ValueError('must be an IP address and a port, like "127.0.0.1:10249" or "[::1]:10249"') from None
    if not (port.isascii() and port.isdigit()) or not 1 <= int(port) <= 65535:
        raise ValueError("must end in a port from 1 to 65535")
    return f"[{host}]:{int(port)}" if ":" in host else f"{host}:{int(port)}"


def parse_cluster_cidrs(text: str) -> tuple[str, ...]:
    """Return the CIDRs of "v4", "v6" or "v4,v6" (in any order); "" has none."""
    if not text.strip():
        return ()
    cidrs = tuple(parse_cidr(part.strip()) for part in text.split(","))
    if len({family_of(cidr) for cidr in cidrs}) != len(cidrs):
        raise ValueError("must hold at most one CIDR of each IP family")
    return cidrs


def parse_nodeport_addresses(texts: Iterable[str]) -> tuple[str, ...]:
    """Return CIDRs in canonical text, or the word ``primary`` alone."""
    items = [text.strip() for text in texts]
    if PRIMARY in items:
        if len(items) != 1:
            raise ValueError('must not hold both "primary" and CIDRs')
        return (PRIMARY,)
    try:
        return tuple(dict.fromkeys(parse_cidr(item) for item in items))
    except ValueError:
        raise ValueError('must hold CIDRs, or the single word "primary"') from None


def url_fault(url: str) -> str:
    """Tell why this is no URL of an API server; "" if it is one. The scheme may be missing."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}", scheme="https")
        hostname = parts.hostname
    except ValueError:
        hostname = None
    if not hostname or any(letter.isspace() or not letter.isprintable() for letter in url):
        return f"must be a URL such as {_URL}"
    if parts.scheme not in ("http", "https"):
        return f"must begin with https:// or http://, as in {_URL}"
    try:
        is_port = parts.port != 0
    except ValueError:
        is_port = False
    return "" if is_port else f"must end in a port from 1 to 65535, as in {_URL}"


def family_of(text: str) -> Family:
    """Tell the family of an address or CIDR that one of the parsers here returned."""
    return 6 if ":" in text else 4


def cluster_cidr(options: Options, family: Family) -> str | None:
    """Return the cluster's pod CIDR of one family, None where there is none."""
    return next((cidr for cidr in options.cluster_cidrs if family_of(cidr) == family), None)


def uses_primary_nodeport_addresses(options: Options) -> bool:
    """Tell whether node ports answer on the node's own primary addresses only."""
    return options.nodeport_addresses == (PRIMARY,)


def nodeport_cidrs(options: Options, family: Family, node_ip: str | None = None) -> tuple[str, ...]:
    """Return the CIDRs of one family on which node ports answer; none means all local addresses.

    ``node_ip`` is the node's primary address of that family. As in kube-proxy, ``primary`` with an unknown or loopback
    address leaves the family unrestricted.
    """
    if not uses_primary_nodeport_addresses(options):
        return tuple(cidr for cidr in options.nodeport_addresses if family_of(cidr) == family)
    if node_ip is None or ipaddress.ip_address(node_ip).is_loopback:
        return ()
    return (f"{node_ip}/{32 if family == 4 else 128}",)


def _packed(text: str) -> bytes:
    if "%" in text:
        raise ValueError  # a zone: kube-proxy's parser knows none
    if ":" not in text:
        text = _LEADING_ZEROS.sub("", text)
    return ipaddress.ip_address(text).packed


def _canonical(packed: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def _split_host_port(text: str, default_port: int) -> tuple[str, str]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if bracket and rest.startswith(":"):
            return host, rest[1:]
        return text, str(default_port)  # "[::1]" without a port: refused as no address, as kube-proxy does
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, port
    return text, str(default_port)
