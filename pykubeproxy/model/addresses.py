"""IP addresses and networks as canonical text.

Netfilter tools print addresses as inet_ntop(3) does, which differs from Python's ipaddress for IPv4-mapped IPv6
(``::ffff:10.0.0.1``). Everything that ends in rule text goes through here. Parsing accepts leading zeros in IPv4 octets
as decimal, as kube-proxy does (k8s.io/utils/net ParseIPSloppy): such objects exist in old clusters.
"""

from __future__ import annotations

from functools import lru_cache
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Literal, NamedTuple

Family = Literal["IPv4", "IPv6"]
FAMILIES: tuple[Family, ...] = ("IPv4", "IPv6")

_AF = {"IPv4": AF_INET, "IPv6": AF_INET6}
_BITS = {"IPv4": 32, "IPv6": 128}


class Network(NamedTuple):
    """An IP network: canonical address text with host bits cleared, and its prefix length."""

    family: Family
    address: str
    prefix: int

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix}"

    @property
    def is_everything(self) -> bool:
        """Whether the network is a zero CIDR, which iptables refuses in a negated match."""
        return self.prefix == 0

    def contains(self, address: str) -> bool:
        """Tell whether an address of the same family lies in this network."""
        family, canonical = parse_ip(address)
        if family != self.family:
            return False
        return _mask(canonical, family, self.prefix) == self.address


def family_of(address: str) -> Family:
    """Tell the family of an address text that is known to be valid."""
    return "IPv6" if ":" in address else "IPv4"


def parse_ip(text: str) -> tuple[Family, str]:
    """Return (family, canonical text) of one address.

    Raises:
        ValueError: the text is no IP address, or an IPv4-mapped IPv6 address, which no packet carries.

    """
    if ":" in text:
        try:
            packed = inet_pton(AF_INET6, text)
        except (OSError, ValueError):
            raise ValueError(f"{text!r} is not an IP address") from None
        if packed.startswith(b"\0" * 10 + b"\xff\xff"):
            raise ValueError(f"{text!r} is an IPv4-mapped IPv6 address")
        return "IPv6", inet_ntop(AF_INET6, packed)
    try:
        return "IPv4", inet_ntop(AF_INET, inet_pton(AF_INET, text))
    except (OSError, ValueError):
        pass
    octets = text.split(".")
    if len(octets) != 4 or not all(o.isascii() and o.isdigit() and len(o) <= 16 and int(o) <= 255 for o in octets):
        raise ValueError(f"{text!r} is not an IP address")
    return "IPv4", ".".join(str(int(o)) for o in octets)


def has_leading_zeros(text: str) -> bool:
    """Tell whether an IPv4 text carries leading zeros, which some programs read as octal."""
    if ":" in text or (".0" not in text and not text.startswith("0")):
        return False
    return any(len(o) > 1 and o.startswith("0") for o in text.split("/", maxsplit=1)[0].split("."))


@lru_cache(maxsize=4096)
def parse_network(text: str) -> Network:
    """Return the network of a CIDR text, host bits cleared; blanks around it are ignored.

    Raises:
        ValueError: the text is no CIDR.

    """
    stripped = text.strip()
    address, slash, length = stripped.partition("/")
    if not slash or not (length.isascii() and length.isdigit() and len(length) <= 3):
        raise ValueError(f"{stripped!r} is not a CIDR such as 10.0.0.0/8")
    try:
        if ":" in address:
            family: Family = "IPv6"
            canonical = inet_ntop(AF_INET6, inet_pton(AF_INET6, address))
        else:
            family, canonical = parse_ip(address)
    except (OSError, ValueError):
        raise ValueError(f"{stripped!r} is not a CIDR such as 10.0.0.0/8") from None
    prefix = int(length)
    if prefix > _BITS[family]:
        raise ValueError(f"{stripped!r} has a prefix longer than {_BITS[family]}")
    return Network(family, _mask(canonical, family, prefix), prefix)


def host(address: str) -> str:
    """Return an address as the network of itself, as iptables prints it: ``10.0.0.1/32``."""
    return address + ("/128" if ":" in address else "/32")


def with_port(address: str, port: int) -> str:
    """Return ``10.0.0.1:80`` or ``[fd00::1]:80``."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def to_int(address: str) -> int:
    """Return an address as a number, for prefixes and sorting."""
    return int.from_bytes(inet_pton(_AF[family_of(address)], address), "big")


def prefix_of(address: str, prefix: int) -> str:
    """Return the network address text of the first ``prefix`` bits of an address."""
    return _mask(address, family_of(address), prefix)


def _mask(address: str, family: Family, prefix: int) -> str:
    bits = _BITS[family]
    if prefix == bits:
        return address
    number = int.from_bytes(inet_pton(_AF[family], address), "big") >> (bits - prefix) << (bits - prefix)
    return inet_ntop(_AF[family], number.to_bytes(bits // 8, "big"))
