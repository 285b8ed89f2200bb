"""What a Service is on this node, as one value: addresses, chains, endpoints with shares, and why others are not used.

Put together from the objects' meaning and, where it was read, from what stands in the kernel: then shares and counters
are the kernel's, and every difference to what should stand is named. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fractions import Fraction
from typing import Literal

import msgspec

from pykubeproxy.insight.cluster import Picture
from pykubeproxy.insight.lookup import places
from pykubeproxy.insight.parse import Rule, parse_rule
from pykubeproxy.insight.standing import Standing
from pykubeproxy.insight.tracer import bounded
from pykubeproxy.model.endpoint import Endpoint
from pykubeproxy.model.service import Problem, ServiceKey, ServicePort, ServicePortName
from pykubeproxy.model.topology import Categories, is_local
from pykubeproxy.netfilter.read import UNKNOWN
from pykubeproxy.rules.names import (
    DISPATCH_PREFIX,
    EXTERNAL_SERVICES,
    FILTER,
    NAT,
    NODEPORTS,
    PORT_DISPATCH_PREFIX,
    PROXY_FIREWALL,
    SERVICES,
    PortChains,
)
from pykubeproxy.rules.naming import service_of
from pykubeproxy.rules.ruleset import Ruleset, same_chain
from pykubeproxy.rules.service import PortRules

_TREES = {SERVICES: DISPATCH_PREFIX, NODEPORTS: PORT_DISPATCH_PREFIX}
"""The chains of nat that may be trees, and how the chains below them begin."""

RECENT_LIMIT = 100
"""How many clients a list of ``-m recent`` remembers, unless xt_recent was loaded with another ip_list_tot."""


class _Value(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base of what an explanation is made of; camelCase in JSON and YAML, as in Kubernetes."""


class Address(_Value, frozen=True):
    """One address and port that the service answers on."""

    kind: str
    """cluster IP, external IP, load balancer IP, node port"""
    address: str
    """"" for a node port: every local address, or those of ``local_addresses``."""
    port: int
    policy: str
    chains: tuple[str, ...]
    """The chains that its packets go through before an endpoint is chosen; none where nothing is translated."""
    verdict: str
    """served, REJECT or DROP, for senders outside the cluster"""
    why: str = ""
    masquerades: str = ""
    """Whose address is hidden, in words."""
    source_ranges: tuple[str, ...] = ()
    connections: int | None = None
    """New connections that the address has seen, as the kernel's rule has counted them; None where it was not read."""


class Share(_Value, frozen=True):
    """One endpoint that gets traffic."""

    target: str
    chain: str
    share: float
    node: str
    is_on_this_node: bool
    state: str
    """ready or terminating"""
    connections: int | None = None
    """New connections that it has got, as the kernel has counted them; None where that was not read."""
    clients: int | None = None
    """How many clients affinity remembers for it; None where the kernel was not read."""
    in_kernel: bool | None = None
    """Whether the kernel's rules lead to it; None where they were not read, or cannot be."""


class Spread(_Value, frozen=True):
    """A chain that chooses an endpoint."""

    chain: str
    policy: str
    endpoints: tuple[Share, ...]


class Unused(_Value, frozen=True):
    """An endpoint that gets no traffic from this node."""

    target: str
    node: str
    why: str


class Port(_Value, frozen=True):
    """One service port."""

    name: str
    protocol: str
    port: int
    internal_policy: str
    external_policy: str
    """"" where nothing outside the cluster reaches the service."""
    affinity_seconds: int
    affinity_limit: int | None
    """How many clients each endpoint's list remembers; None without affinity."""
    health_check_node_port: int
    addresses: tuple[Address, ...]
    spreads: tuple[Spread, ...]
    unused: tuple[Unused, ...]
    endpoint_count: int
    kernel: str
    """agrees, differs, or "" where the kernel was not read"""
    differences: tuple[str, ...] = ()
    hints: str = ""
    """zone or node: topology hints chose the endpoints."""


Condition = Literal["in sync", "not in sync", "silent", "absent"]


class Daemon(_Value, frozen=True):
    """What the daemon on this node says of itself."""

    condition: Condition
    """silent: there is one, and it cannot be asked; absent: there is none, or another program in its place."""
    why: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What it says that is no reason against being in sync: manifests that it cannot read."""
    node: str = ""
    """The node that it calls its own; "" where it was not asked."""


class Explanation(_Value, frozen=True):
    """One service in one IP family on one node."""

    service: str
    family: str
    node: str
    ports: tuple[Port, ...]
    kernel: str
    """agrees, differs, or "" where the kernel was not read"""
    differences: tuple[str, ...] = ()
    """What differs beyond single ports: jumps that are missing, tables that cannot be read."""
    problems: tuple[str, ...] = ()
    """What is odd in the objects."""
    left_out: str = ""
    """Why the daemon leaves the service out; "" if it does not, or was not asked."""
    daemon: Daemon | None = None
    """None: it was not asked."""


def explain(
    picture: Picture,
    key: ServiceKey,
    *,
    only: Collection[ServicePortName] | None = None,
    standing: Standing | None = None,
    problems: Iterable[Problem] = (),
    faults: Iterable[str] = (),
    left_out: str = "",
    daemon: Daemon | None = None,
) -> Explanation | None:
    """Explain a service; None where it has no ports in this family, or none of those in ``only``.

    ``problems``: what is odd in its objects (Picture.problems). ``faults``: a line for each part of them that could
    not be read. ``left_out``, ``daemon``: what the daemon says.
    """
    ports = [one for one in picture.state.ports(key) if only is None or one.id in only]
    if not ports:
        return None
    explainer = _Explainer(picture, standing)
    shown = tuple(explainer.port(one) for one in ports)
    general = explainer.general_differences()
    agrees = not general and all(one.kernel == "agrees" for one in shown)
    return Explanation(
        service=str(key),
        family=picture.family,
        node=picture.node_name,
        ports=shown,
        kernel="" if standing is None else "agrees" if agrees else "differs",
        differences=tuple(general),
        problems=(*faults, *map(str, problems)),
        left_out=left_out,
        daemon=daemon,
    )


class _Explainer:
    """One picture and what stands beside it."""

    def __init__(self, picture: Picture, standing: Standing | None) -> None:
        self._picture = picture
        self._standing = standing
        self._counted = standing.counted if standing is not None else {}

    def port(self, port: ServicePort) -> Port:
        """Explain one service port."""
        picture = self._picture
        categories, rules = picture.categories(port), picture.rules(port)
        differences = self._differences(port, rules)
        external = "Local" if port.external_policy_is_local else "Cluster"
        limit = (self._standing.recent_limit if self._standing is not None else None) or RECENT_LIMIT
        return Port(
            name=str(port.id),
            protocol=port.id.protocol,
            port=port.port,
            internal_policy="Local" if port.internal_policy_is_local else "Cluster",
            external_policy=external if port.is_externally_accessible else "",
            affinity_seconds=port.affinity_seconds,
            affinity_limit=limit if port.affinity_seconds else None,
            health_check_node_port=port.health_check_node_port,
            addresses=tuple(self._addresses(port, categories, rules)),
            spreads=tuple(self._spreads(port, rules)),
            unused=tuple(unused(picture, port, categories)),
            endpoint_count=len(picture.endpoints(port.id)),
            kernel="" if self._standing is None else "differs" if differences else "agrees",
            differences=tuple(differences),
            hints=categories.hints,
        )

    # -- addresses

    def _addresses(self, port: ServicePort, categories: Categories, rules: PortRules) -> Iterable[Address]:
        names = PortChains(port.id)
        heads: dict[str, tuple[str, ...]] = {"cluster IP": ()}
        if names.firewall in rules.chains:
            heads["load balancer IP"] = (names.firewall, names.external)
        for kind, address, number in places(port, with_external_ips=self._picture.settings.uses_external_ips):
            head = heads.get(kind, (names.external,))
            local = port.internal_policy_is_local if kind == "cluster IP" else port.external_policy_is_local
            verdict, why = _verdict(categories, local=local)
            chains = () if not categories.exist_anywhere else head
            if verdict == "served":
                chains = (*chains, names.local if local else names.cluster)
            yield Address(
                kind=kind,
                address=address,
                port=number,
                policy="Local" if local else "Cluster",
                chains=chains,
                verdict=verdict,
                why=why,
                masquerades=self._masquerades(kind, local=local) if chains else "",
                source_ranges=tuple(map(str, port.source_ranges)) if kind == "load balancer IP" else (),
                connections=self._connections(kind, address, chains, rules),
            )

    def _masquerades(self, kind: str, *, local: bool) -> str:
        settings = self._picture.settings
        detector = settings.local_detector
        if kind == "cluster IP":
            if settings.masquerade_all:
                return "every sender"
            if detector is None or detector.network.endswith("/0"):
                return "only a pod that reaches itself"
            if detector.network:
                return f"senders outside {detector.network}"
            return f"senders that do not come in by {detector.interface}"
        return "only this node itself" if local else "every sender"

    def _connections(self, kind: str, address: str, chains: tuple[str, ...], rules: PortRules) -> int | None:
        """Return what the kernel has counted for an address."""
        if kind == "node port":
            # A rule that only counts packets to 127.0.0.1 stands before the one that takes the rest.
            counts = [self._count(NODEPORTS, portal.rule) for portal in rules.nodeports]
            known = [count for count in counts if count is not None]
            return sum(known) if known else None
        for portal in rules.portals:
            if portal.key == address and portal.rule.rpartition("-j ")[2] == chains[0]:
                return self._count(SERVICES, portal.rule)
        return None

    def _count(self, root: str, rule: str) -> int | None:
        """Return what a rule of a chain of nat, or of the tree below it, has counted."""
        if self._standing is None:
            return None
        for table, chain in self._counted:
            if table == NAT and (chain == root or chain.startswith(_TREES[root])):
                count = self._standing.packets(NAT, chain, rule)
                if count is not None:
                    return count
        return None

    # -- endpoints

    def _spreads(self, port: ServicePort, rules: PortRules) -> Iterable[Spread]:
        names = PortChains(port.id)
        known = {names.endpoint(one.target): one for one in self._picture.endpoints(port.id)}
        for chain, policy in ((names.cluster, "Cluster"), (names.local, "Local")):
            wanted = rules.chains.get(chain)
            if wanted is None:
                continue
            stands = self._stands(chain)
            found = shares(wanted if stands is None else stands)
            ordered = [*found, *(one for one in shares(wanted) if one not in found)]
            yield Spread(
                chain=chain,
                policy=policy,
                endpoints=tuple(
                    self._share(one, found.get(one), known.get(one), is_read=stands is not None) for one in ordered
                ),
            )

    def _stands(self, chain: str) -> str | None:
        """Return what a chain of nat holds in the kernel, "" where it is not there, None where that is not known."""
        if self._standing is None:
            return None
        text = self._standing.ruleset.chains[NAT].get(chain, UNKNOWN if NAT in self._standing.unreadable else "")
        return None if text == UNKNOWN else text

    def _share(self, chain: str, share: Fraction | None, endpoint: Endpoint | None, *, is_read: bool) -> Share:
        standing = self._standing
        text = standing.ruleset.chains[NAT].get(chain, "") if standing is not None else ""
        return Share(
            target=endpoint.target if endpoint is not None else _target_in(text) or chain,
            chain=chain,
            share=float(share or 0),
            node=endpoint.node if endpoint is not None else "",
            is_on_this_node=endpoint is not None and is_local(endpoint, self._picture.settings.here),
            state="gone" if endpoint is None else "terminating" if endpoint.is_terminating else "ready",
            connections=next(
                (one.packets for one in self._counted.get((NAT, chain), ()) if "-j DNAT " in one.rule), None
            ),
            clients=len(standing.memory.get(chain, ())) if standing is not None else None,
            in_kernel=share is not None if is_read else None,
        )

    # -- the kernel

    def general_differences(self) -> list[str]:
        """Return what is wrong with the rules that serve all services."""
        standing = self._standing
        if standing is None:
            return []
        found = [f"table {table} cannot be read whole: {why}" for table, why in standing.unreadable.items()]
        have = {(one.table, one.chain, one.rule) for one in standing.ruleset.ensured}
        for rule in self._picture.wanted.ruleset.ensured:
            if (rule.table, rule.chain, rule.rule) not in have:
                target = rule.rule.rpartition("-j ")[2]
                what = "the jump to" if rule.at_top else "the rule that ends in"
                found.append(f"{rule.table} {rule.chain} lacks {what} {target}")
        return found

    def _differences(self, port: ServicePort, rules: PortRules) -> list[str]:
        """Return how the kernel's rules of one service port differ from those that should stand."""
        if self._standing is None:
            return []
        ruleset = self._standing.ruleset
        names = PortChains(port.id)
        found = []
        for chain, text in rules.chains.items():
            stands = ruleset.chains[NAT].get(chain)
            if stands is None:
                found.append(f"nat lacks chain {chain}")
            elif stands == UNKNOWN:
                found.append(f"nat {chain} cannot be read among native rules")
            elif not same_chain(chain, stands, text):
                found.append(f"nat {chain} holds other rules")
        own = (names.cluster, names.local, names.external, names.firewall)
        found += [
            f"nat has chain {chain}, which should be gone"
            for chain in own
            if chain in ruleset.chains[NAT] and chain not in rules.chains
        ]
        shared = (
            (NAT, SERVICES, tuple(portal.rule for portal in rules.portals)),
            (NAT, NODEPORTS, tuple(portal.rule for portal in rules.nodeports)),
            (FILTER, SERVICES, rules.filter_services),
            (FILTER, EXTERNAL_SERVICES, rules.filter_external),
            (FILTER, PROXY_FIREWALL, rules.filter_firewall),
            (FILTER, NODEPORTS, rules.filter_nodeports),
        )
        for table, chain, wanted in shared:
            lines = _lines_of(ruleset, table, chain)
            found += [f"{table} {chain} lacks: {rule}" for rule in wanted if rule not in lines]
            found += [
                f"{table} {chain} has too many: {rule}"
                for rule in lines
                if rule not in wanted
                and service_of(rule) == str(port.id)
                and _protocol(rule) == port.id.protocol.lower()
            ]
        return found


def _lines_of(ruleset: Ruleset, table: str, chain: str) -> list[str]:
    """Return the rules of a chain, in nat with those of the tree below it."""
    names = [chain]
    if table == NAT:
        names += [name for name in ruleset.chains[NAT] if name.startswith(_TREES[chain])]
    return [
        line.split(" ", 2)[2]
        for name in names
        for line in ruleset.chains[table].get(name, "").splitlines()
        if line.count(" ") > 1
    ]


def _protocol(rule: str) -> str:
    return rule.partition("-p ")[2].split(" ")[0]


def _verdict(categories: Categories, *, local: bool) -> tuple[str, str]:
    if not categories.exist_anywhere:
        return "REJECT", "no endpoints"
    if local and not categories.local:
        return "DROP", "no endpoints on this node"
    return "served", ""


def _target_in(text: str) -> str:
    return text.rpartition("--to-destination ")[2].split(" ")[0].strip() if "--to-destination " in text else ""


def shares(text: str) -> dict[str, Fraction]:
    """Return the chance that a spreading chain gives each endpoint chain, read off its rules; affinity left aside."""
    found: dict[str, Fraction] = {}
    left = Fraction(1)
    for number, line in enumerate(text.splitlines(), 1):
        rule = _parsed(number, line)
        if rule is None or rule.action.kind != "jump" or not rule.action.chain.startswith("KUBE-SEP-"):
            continue
        if " -m recent --rcheck " in line:
            continue
        taken = bounded(left * rule.chance)
        found[rule.action.chain] = found.get(rule.action.chain, Fraction(0)) + taken
        left -= taken
    return found


def _parsed(number: int, line: str) -> Rule | None:
    try:
        return parse_rule(NAT, number, line)
    except ValueError:
        return None


def unused(picture: Picture, port: ServicePort, categories: Categories) -> Iterable[Unused]:
    """Yield the endpoints that no rule of this node leads to, and why."""
    reachable = {one.target for one in categories.reachable}
    for endpoint in picture.endpoints(port.id):
        if endpoint.target not in reachable:
            why = _why_not(picture, port, endpoint, categories)
            yield Unused(target=endpoint.target, node=endpoint.node, why=why)


def _why_not(picture: Picture, port: ServicePort, endpoint: Endpoint, categories: Categories) -> str:
    here = picture.settings.here
    if not endpoint.is_ready:
        if endpoint.is_terminating:
            if not endpoint.is_serving:
                return "terminating and no longer serving"
            if not port.uses_cluster_endpoints and not is_local(endpoint, here):
                return "terminating, on another node"
            return "terminating, while others are ready"
        return "not ready"
    if not port.uses_cluster_endpoints:
        return "not on this node (policy Local)" if endpoint.node else "its node is not known (policy Local)"
    if categories.hints == "node":
        return f"meant for other nodes ({', '.join(endpoint.node_hints)})"
    if categories.hints == "zone":
        return f"meant for other zones ({', '.join(endpoint.zone_hints)}; this node is in {here.zone or 'none'})"
    return "not on this node"
