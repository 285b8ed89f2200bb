"""What is wrong between objects that are each right: two services that claim one address, ranges that protect nothing.

Kept up to date service port by service port, as the rules are. Pure: it names what it finds as Problems, for the engine
to tell once; it changes no rule.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykubeproxy.model.addresses import with_port
from pykubeproxy.model.service import Problem, ServicePort, ServicePortName
from pykubeproxy.rules.dispatch import Rank
from pykubeproxy.rules.settings import RuleSettings

Claim = tuple[str, str, int]
"""(address or "" for the node ports, protocol, port)"""

CONFLICT = "AddressConflict"
OPEN = "SourceRangesOpen"
"""Reasons of the Events."""


class Findings:
    """Claims of all service ports of one family, and what is wrong with them."""

    def __init__(self, settings: RuleSettings) -> None:
        self._settings = settings
        self._ports: dict[Rank, ServicePort] = {}
        self._holders: dict[Claim, Rank | tuple[Rank, ...]] = {}
        """A tuple where there is more than one: at most a few, so that the rest costs little."""
        self._contested: dict[Claim, None] = {}
        self._open: dict[Rank, None] = {}

    @property
    def open_ranges(self) -> int:
        """How many service ports have an address that is open though its object has source ranges (S11)."""
        return len(self._open)

    def put(self, rank: Rank, port: ServicePort | None) -> None:
        """Take one service port, or with None forget it."""
        old = self._ports.pop(rank, None)
        if old is not None:
            for claim in self._claims(old):
                self._release(claim, rank)
            self._open.pop(rank, None)
        if port is None:
            return
        self._ports[rank] = port
        for claim in self._claims(port):
            self._take(claim, rank)
        if port.source_ranges_lost and port.load_balancer_ips and not self._settings.strict_source_ranges:
            self._open[rank] = None

    def problems(self) -> tuple[Problem, ...]:
        """Return everything found, each once, in a stable order."""
        found = [self._open_problem(rank.id, self._ports[rank]) for rank in sorted(self._open)]
        for claim in sorted(self._contested):
            found += self._conflicts(claim)
        return tuple(dict.fromkeys(found))

    # -- inside

    def _claims(self, port: ServicePort) -> Iterable[Claim]:
        external = port.external_ips if self._settings.uses_external_ips else ()
        protocol = port.id.protocol
        for address in dict.fromkeys((port.cluster_ip, *external, *port.load_balancer_ips)):
            yield address, protocol, port.port
        if port.node_port:
            yield "", protocol, port.node_port

    def _take(self, claim: Claim, rank: Rank) -> None:
        known = self._holders.get(claim)
        if known is None:
            self._holders[claim] = rank
            return
        self._holders[claim] = tuple(sorted((*(known if _is_several(known) else (known,)), rank)))
        self._contested[claim] = None

    def _release(self, claim: Claim, rank: Rank) -> None:
        known = self._holders.pop(claim)
        if not _is_several(known):
            return
        left = tuple(one for one in known if one != rank)
        self._holders[claim] = left[0] if len(left) == 1 else left  # type: ignore[assignment]
        if len(left) == 1:
            del self._contested[claim]

    def _conflicts(self, claim: Claim) -> Iterable[Problem]:
        address, protocol, number = claim
        first, *others = self._holders[claim]
        assert isinstance(first, Rank)
        what = f"{with_port(address, number)}/{protocol}" if address else f"node port {number}/{protocol}"
        for rank in others:
            assert isinstance(rank, Rank)
            if rank.id.key == first.id.key:
                continue
            why = "is older and " if first.created != rank.created else ""
            message = f"{what} is claimed by Service {first.id.key} as well, which {why}comes first"
            yield Problem("Service", *rank.id.key, _field(self._ports[rank], claim), message, CONFLICT, first.id.key)

    def _open_problem(self, name: ServicePortName, port: ServicePort) -> Problem:
        addresses = ", ".join(dict.fromkeys(port.load_balancer_ips))
        return Problem(
            "Service",
            *name.key,
            "spec.loadBalancerSourceRanges",
            f"holds no {self._settings.family} range, so {addresses} is open to everyone; "
            "--strict-source-ranges closes it",
            OPEN,
        )


def _is_several(holders: Rank | tuple[Rank, ...]) -> bool:
    return not isinstance(holders, Rank)


def _field(port: ServicePort, claim: Claim) -> str:
    address = claim[0]
    if not address:
        return "spec.ports"
    if address == port.cluster_ip:
        return "spec.clusterIPs"
    return "spec.externalIPs" if address in port.external_ips else "status.loadBalancer.ingress"
