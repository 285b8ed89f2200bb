"""What a rule's matches say of a packet: yes, no, with some chance, or "cannot judge".

Pure functions over a View. Every match that this program, kube-proxy, kubelet and the usual network plugins write is
understood; of any other one the answer is a Doubt that names it, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from socket import AF_INET, AF_INET6, inet_pton
from typing import NamedTuple

from pykubeproxy.insight.packet import Packet


class Doubt(NamedTuple):
    """A match that cannot be judged, in iptables' words."""

    what: str


Answer = bool | Fraction | Doubt


@dataclass(slots=True)
class View:
    """The packet as a rule sees it, at one place of its way."""

    packet: Packet
    hook: str
    destination: str
    port: int
    mark: int
    in_interface: str | None
    """None: there is none at this hook. "": there is one, but which is not known."""
    out_interface: str | None
    is_translated: bool
    """Whether the destination was translated."""
    remembered: tuple[tuple[str, str], ...] = ()
    """(list, address) that ``-m recent`` has noted on this way."""
    noting: list[tuple[str, str]] = field(default_factory=list)
    """What the rule at hand notes if it matches."""


Match = Callable[[View], Answer]

PROTOCOLS = {
    "icmp": "1",
    "tcp": "6",
    "udp": "17",
    "gre": "47",
    "esp": "50",
    "ah": "51",
    "ipv6-icmp": "58",
    "icmpv6": "58",
    "sctp": "132",
}
_BITS = {AF_INET: 32, AF_INET6: 128}
_STATES = frozenset(("NEW", "INVALID", "ESTABLISHED", "RELATED", "UNTRACKED"))


def number(address: str) -> int:
    """Return an address as a number."""
    return int.from_bytes(inet_pton(AF_INET6 if ":" in address else AF_INET, address), "big")


def in_network(address: str, network: str) -> bool:
    """Tell whether an address lies in ``a.b.c.d``, ``a.b.c.d/24`` or ``a.b.c.d/255.0.255.0``."""
    base, _, length = network.partition("/")
    kind = AF_INET6 if ":" in base else AF_INET
    if (":" in address) != (kind == AF_INET6):
        return False
    if length and not length.isdigit():
        mask = number(length)
    else:
        bits = _BITS[kind]
        prefix = int(length) if length else bits
        mask = ((1 << prefix) - 1) << (bits - prefix)
    return number(address) & mask == number(base) & mask


def protocol_number(name: str) -> str:
    """Return a protocol's number as text, for comparing names with numbers."""
    return PROTOCOLS.get(name.lower(), name)


def negated(match: Match) -> Match:
    """Return the opposite of a match; a doubt stays one."""

    def judge(view: View) -> Answer:
        answer = match(view)
        if isinstance(answer, Doubt):
            return answer
        return 1 - answer if isinstance(answer, Fraction) else not answer

    return judge


def source_in(network: str) -> Match:
    """``-s``. Compiled once: rules outnumber packets."""
    return lambda view: in_network(view.packet.source, network)


def destination_in(network: str) -> Match:
    """``-d``; a single host is compared as text, which is most rules."""
    host, _, length = network.partition("/")
    if length in ("", "128" if ":" in host else "32"):
        return lambda view: view.destination == host
    return lambda view: in_network(view.destination, network)


def protocol_is(name: str) -> Match:
    """``-p``."""
    wanted = protocol_number(name)
    if name in ("all", "0"):
        return lambda _: True
    return lambda view: protocol_number(view.packet.protocol) == wanted


def interface_is(name: str, *, out: bool) -> Match:
    """``-i`` and ``-o``; a trailing plus sign matches every name that begins so."""
    word = f"-{'o' if out else 'i'} {name}"

    def judge(view: View) -> Answer:
        found = view.out_interface if out else view.in_interface
        if found == "":
            return Doubt(f"{word}: the interface is not known")
        if name == "+":
            return True
        if name.endswith("+"):
            return (found or "").startswith(name[:-1])
        return found == name

    return judge


def port_in(text: str, *, source: bool = False) -> Match:
    """``--dport``, ``--sport`` and the lists of multiport: ``80``, ``80:90``, ``80,443,1000:2000``."""
    ranges = []
    for part in text.split(","):
        low, colon, high = part.partition(":")
        ranges.append((int(low or 0), int(high or 65535) if colon else int(low)))

    def judge(view: View) -> Answer:
        found = view.packet.source_port if source else view.port
        if source and not found:
            if ranges == [(0, 65535)]:
                return True
            return Doubt(f"--sport {text}: the source port is not known")
        return any(low <= found <= high for low, high in ranges)

    return judge


def any_port_in(text: str) -> Match:
    """``-m multiport --ports``: either end."""
    to, by = port_in(text), port_in(text, source=True)

    def judge(view: View) -> Answer:
        return to(view) or by(view)

    return judge


def address_type(kind: str, *, source: bool) -> Match:
    """``-m addrtype --src-type`` and ``--dst-type``. What a broadcast is, only the routing table knows."""
    kinds = frozenset(kind.split(","))

    def judge(view: View) -> Answer:
        address = view.packet.source if source else view.destination
        if kinds == {"LOCAL"}:
            return view.packet.is_local(address)
        own = "LOCAL" if view.packet.is_local(address) else "MULTICAST" if _is_multicast(address) else "UNICAST"
        if own in kinds:
            return True
        if kinds <= {"LOCAL", "MULTICAST"} or (own != "UNICAST" and kinds <= {"LOCAL", "MULTICAST", "UNICAST"}):
            return False
        if kinds == {"UNICAST"}:
            return False
        if kinds <= {"BROADCAST", "LOCAL", "MULTICAST"} and ":" in address:
            return False
        return Doubt(f"addrtype {kind}: the routing table would have to be asked")

    return judge


def _is_multicast(address: str) -> bool:
    return in_network(address, "ff00::/8" if ":" in address else "224.0.0.0/4")


def state_in(words: str) -> Match:
    """``--ctstate`` and ``--state``."""
    wanted = frozenset(words.split(","))
    unknown = wanted - _STATES - {"DNAT", "SNAT"}

    def judge(view: View) -> Answer:
        if unknown:
            return Doubt(f"--ctstate {words}")
        return view.packet.state in wanted or (view.is_translated and "DNAT" in wanted)

    return judge


def original_destination(network: str) -> Match:
    """``--ctorigdst``: where the packet went before it was translated."""
    return lambda view: in_network(view.packet.destination, network)


def original_port(text: str) -> Match:
    """``--ctorigdstport``."""
    low, _, high = text.partition(":")
    return lambda view: int(low) <= view.packet.port <= int(high or low)


def mark_is(text: str) -> Match:
    """``-m mark --mark VALUE[/MASK]``."""
    value, _, mask = text.partition("/")
    wanted, bits = int(value, 0), int(mask, 0) if mask else 0xFFFFFFFF
    return lambda view: view.mark & bits == wanted


def chance(text: str) -> Fraction:
    """Return the probability that the kernel makes of a text: a multiple of 2**-31 (xt_statistic.c)."""
    return Fraction(round(2**31 * float(text)), 2**31)


@dataclass(frozen=True, slots=True)
class Statistic:
    """``-m statistic``: at random, or every n-th packet, which over many connections is a chance as well."""

    share: Fraction

    def __call__(self, view: View) -> Answer:
        """Answer with the share, whatever the packet."""
        del view
        return self.share if 0 < self.share < 1 else self.share >= 1


def statistic(options: dict[str, str], *, is_negated: bool = False) -> Statistic:
    """Read the options of ``-m statistic``."""
    if options.get("--mode") == "random":
        share = chance(options["--probability"])
    else:
        share = Fraction(1, int(options["--every"]))
    return Statistic(1 - share if is_negated else share)


@dataclass(frozen=True, slots=True)
class Recent:
    """``-m recent``, as xt_recent.c does it with the age of the last sight of each address."""

    name: str
    action: str
    """set, rcheck, update or remove."""
    seconds: int = 0
    hits: int = 0
    mask: str = ""
    by_destination: bool = False

    def __call__(self, view: View) -> Answer:
        """Judge a packet, and note its address where the rule would."""
        address = view.destination if self.by_destination else view.packet.source
        mask = number(self.mask) if self.mask else -1
        key = number(address) & mask
        known = [age for seen, age in view.packet.recent.get(self.name, {}).items() if number(seen) & mask == key] + [
            0.0 for name, seen in view.remembered if name == self.name and number(seen) & mask == key
        ]
        if self.action == "set":
            view.noting.append((self.name, address))
            return True
        if not known:
            return False
        if self.action == "remove":
            return True
        if self.hits > 1:
            return Doubt(f"-m recent --hitcount {self.hits}: only the last sight of an address is known")
        found = not self.seconds or min(known) <= self.seconds
        if found and self.action == "update":
            view.noting.append((self.name, address))
        return found


def address_range(text: str, *, source: bool) -> Match:
    """``-m iprange``."""
    low, _, high = text.partition("-")

    def judge(view: View) -> Answer:
        address = view.packet.source if source else view.destination
        return (":" in address) == (":" in low) and number(low) <= number(address) <= number(high or low)

    return judge


def always(_: View) -> Answer:
    """Match: comments, counters and the like say nothing of a packet."""
    return True


def doubt(what: str) -> Match:
    """Never judge: ``what`` is not understood."""
    answer = Doubt(what)
    return lambda _: answer


def together(matches: Iterable[Match], view: View) -> Answer:
    """Ask all matches in order. One clear no is a no whatever else there is; chances multiply."""
    answer: Fraction = Fraction(1)
    doubts: list[str] = []
    view.noting = []
    for match in matches:
        one = match(view)
        if isinstance(one, Doubt):
            doubts.append(one.what)
        elif isinstance(one, Fraction):
            answer *= one
        elif not one:
            return False
    if doubts:
        return Doubt(", ".join(doubts))
    return True if answer == 1 else answer
