"""One packet of a question: who sends what to whom, and what the node around it knows. A plain value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pykubeproxy.model.addresses import Family, family_of

Origin = Literal["outside", "node", "pod"]
"""Where a packet comes from: another machine, a process of this node, or a pod on this node.

For the kernel "outside" and "pod" are one thing: the packet comes in by an interface. What tells them apart is the
source address or the interface, for rules as for ``meaning``.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """The first packet of a connection, as canonical address texts of one family."""

    source: str
    destination: str
    port: int = 0
    protocol: str = "tcp"
    """tcp, udp, sctp, or any other name that iptables prints."""
    origin: Origin = "outside"
    source_port: int = 0
    """0: not known."""
    in_interface: str = ""
    """The interface it comes in by; "" for not known, and for packets of the node itself, which have none."""
    local_addresses: frozenset[str] = frozenset()
    """The node's own addresses. The loopback networks are local without being named."""
    interface_to: Callable[[str], str] | None = field(default=None, compare=False)
    """Tells the interface towards an address ("" where that is not known)."""
    state: str = "NEW"
    """conntrack's word for it: NEW, INVALID, ESTABLISHED, RELATED, UNTRACKED. Only NEW packets walk the nat table."""
    mark: int = 0
    recent: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What ``-m recent`` remembers: list name -> source address -> seconds since it was last seen."""

    @property
    def family(self) -> Family:
        """The IP family."""
        return family_of(self.destination)

    def is_local(self, address: str) -> bool:
        """Tell whether an address is the node's own."""
        return is_loopback(address) or address in self.local_addresses


def is_loopback(address: str) -> bool:
    """Tell whether an address is ::1 or in 127.0.0.0/8."""
    return address == "::1" or address.startswith("127.")
