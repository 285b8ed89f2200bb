"""The desired ruleset of one IP family, kept up to date service by service.

Model: chain texts by table, plus for every service port what it contributed: its own chains, its portals (lines of
KUBE-SERVICES and KUBE-NODEPORTS in nat) and its lines in the other shared chains. An update renders the named services
only and exchanges their contributions; a shared chain is joined anew only when a contribution to it changed.

The ruleset depends on the objects and settings alone, not on what they were before. There is one exception: with
dispatch ``auto`` and a number of portals at which both forms are allowed, the form stays as it was, or as it stands
in the kernel when the process starts.

Pure: it reads a ClusterState and writes texts, never the kernel. The engine owns one of these for as long as its
settings stand; when settings change (mark bit, cluster CIDR, zone) all is rendered into a new one, and the difference
is found chain by chain. Not thread-safe.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping

import msgspec

from pykubeproxy.model.endpoint import Endpoint
from pykubeproxy.model.service import Problem, ServiceKey, ServicePort, ServicePortName
from pykubeproxy.model.state import ClusterState
from pykubeproxy.model.topology import categorize, is_local
from pykubeproxy.rules.base import ensured_rules, nodeport_jumps, static_chains
from pykubeproxy.rules.dispatch import AddressSpace, Dispatch, FlatDispatch, PortSpace, Rank, TreeDispatch
from pykubeproxy.rules.names import (
    EXTERNAL_SERVICES,
    FILTER,
    FIREWALL,
    NAT,
    NODEPORTS,
    PROXY_FIREWALL,
    SERVICES,
    TABLES,
)
from pykubeproxy.rules.ruleset import Ruleset, chain_text
from pykubeproxy.rules.service import Portal, PortRules, render
from pykubeproxy.rules.settings import LARGE_CLUSTER_ENDPOINTS, RuleSettings
from pykubeproxy.sync.findings import Findings
from pykubeproxy.sync.keeping import Kept

TREE_PORTALS = 250
"""Portals from which ``auto`` makes trees of KUBE-SERVICES and KUBE-NODEPORTS; below half of it, flat again.

There a new service takes half the time with the tree on nft (9 ms for 17 ms) and a new connection to the last service
3 µs less; below, the difference is not worth another layout than kube-proxy's (docs/benchmarks.md)."""

Chain = tuple[str, str]
"""(table, chain name)"""

_SHARED: tuple[Chain, ...] = (
    (FILTER, SERVICES),
    (FILTER, EXTERNAL_SERVICES),
    (FILTER, PROXY_FIREWALL),
    (FILTER, NODEPORTS),
)


_MATCH = re.compile(r" -m (\w+) ")
_QUOTED = re.compile(r'"[^"]*"')


class _Contribution(msgspec.Struct, gc=False):
    """What one rendered service port contributed."""

    rank: Rank
    chains: tuple[str, ...]
    portals: tuple[Portal, ...]
    nodeports: tuple[Portal, ...]
    endpoints: int
    lacks_internal: bool
    lacks_external: bool


class Desired:
    """The wanted rules. See the module's docstring."""

    def __init__(self, settings: RuleSettings, *, dispatch: str = "auto", stands_as_tree: bool = False) -> None:
        """Make the rules of no services. ``stands_as_tree``: the form in the kernel, where auto lets both be."""
        self.settings = settings
        self.ruleset = Ruleset(ensured=ensured_rules(settings), shared_chains=((FILTER, FIREWALL),))
        self.owner: dict[str, ServicePortName] = {}
        """Which service port a chain in nat belongs to."""
        self.is_large = False
        """More than 1,000 endpoints: per-endpoint rules carry no comments."""
        self._mode = dispatch
        self._services, self._nodeports = self._make_dispatch(
            as_trees=dispatch == "tree" or (dispatch == "auto" and stands_as_tree)
        )
        self._contributions: dict[ServicePortName, _Contribution] = {}
        self._ports_of: dict[ServiceKey, tuple[ServicePortName, ...]] = {}
        self.health_checks: dict[ServiceKey, tuple[int, int]] = {}
        """(health check node port, count of local addresses of ready endpoints) of the services that have one."""
        self.udp_changes = 0
        """Counts renderings of UDP service ports: a change means that conntrack is worth a look."""
        self._findings = Findings(settings)
        self._left_out: dict[ServiceKey, str] = {}
        self._endpoints = 0
        self._portals = 0
        self._lacks_internal = self._lacks_external = 0
        self._lines: tuple[dict[Rank, tuple[str, ...]], ...] = tuple({} for _ in _SHARED)
        self._stale: set[int] = set()
        self._changed: dict[Chain, None] = {}
        for table, chains in static_chains(settings).items():
            for chain, text in chains.items():
                self._put(table, chain, text)
        for table, chain in _SHARED:
            self._put(table, chain, "")
        self._put_changes()

    @property
    def uses_tree(self) -> bool:
        """Whether KUBE-SERVICES in nat is a tree now."""
        return isinstance(self._services, TreeDispatch)

    @property
    def size(self) -> tuple[int, int]:
        """How many service ports and endpoints (counted per service port) there are."""
        return len(self._contributions), self._endpoints

    def lacking(self) -> tuple[int, int]:
        """Return how many service ports have policy Local but no local endpoint: (internal, external)."""
        return self._lacks_internal, self._lacks_external

    @property
    def open_ranges(self) -> int:
        """How many service ports have an address that is open though its object has source ranges."""
        return self._findings.open_ranges

    def problems(self) -> tuple[Problem, ...]:
        """Return what is wrong between the objects."""
        return self._findings.problems()

    def update(
        self,
        state: ClusterState,
        keys: Iterable[ServiceKey],
        *,
        without: frozenset[ServiceKey] = frozenset(),
        kept: Kept | None = None,
    ) -> None:
        """Render these services from the state (the caller holds its lock); those in ``without`` become nothing.

        Of the services in ``kept`` that the state does not know (ClusterState.is_unknown) that stays which stands.
        """
        held = {key: rules for key, rules in (kept or {}).items() if state.is_unknown(key)}
        for key, stands in held.items():
            self._keep(key, stands)
        keys = [key for key in keys if key not in held]
        found = [(key, state.ports(key), state.endpoints(key)) for key in keys]
        count = self._endpoints
        for key, ports, endpoints in found:
            count += sum(len(endpoints.get(port.id, ())) for port in ports)
            count -= sum(self._contributions[name].endpoints for name in self._ports_of.get(key, ()))
        if (count > LARGE_CLUSTER_ENDPOINTS) != self.is_large:
            self.is_large = not self.is_large
            rest = set(state.keys()).difference(held, (key for key, _, _ in found))
            found += [(key, state.ports(key), state.endpoints(key)) for key in sorted(rest)]
        for key, ports, endpoints in found:
            self._put_service(key, () if key in without else ports, endpoints)
        self._settle()

    def take_form(self, *, stands_as_tree: bool) -> None:
        """Keep to the form that stands in the kernel, where auto lets both be."""
        is_free = self._mode == "auto" and TREE_PORTALS // 2 <= self._portals < TREE_PORTALS
        if is_free and stands_as_tree != self.uses_tree:
            self._turn()
            self._put_changes()

    def take_changed(self) -> list[Chain]:
        """Return the chains whose text is new or which are gone since the last call."""
        changed = list(self._changed)
        self._changed = {}
        return changed

    def chains_of(self, key: ServiceKey) -> list[str]:
        """Return the nat chains of a service."""
        return [chain for name in self._ports_of.get(key, ()) for chain in self._contributions[name].chains]

    def ports_of(self, key: ServiceKey) -> tuple[ServicePortName, ...]:
        """Return the rendered ports of a service."""
        return self._ports_of.get(key, ())

    def lines_of(self, key: ServiceKey) -> dict[str, list[str]]:
        """Return what a service contributed to shared chains, as rules behind ``-A CHAIN `` by table."""
        found: dict[str, list[str]] = {table: [] for table in TABLES}
        for name in self._ports_of.get(key, ()):
            contribution = self._contributions[name]
            found[NAT] += [portal.rule for portal in (*contribution.portals, *contribution.nodeports)]
            for (table, _), lines in zip(_SHARED, self._lines, strict=True):
                found[table] += lines.get(contribution.rank, ())
        return found

    def contributors(self, rules: Container[str]) -> list[ServiceKey]:
        """Return the services that contributed one of these rules (texts behind ``-A CHAIN ``) to a shared chain."""
        return [
            key
            for key in self._ports_of
            if any(rule in rules for lines in self.lines_of(key).values() for rule in lines)
        ]

    @property
    def left_out(self) -> dict[ServiceKey, str]:
        """The services that need a match which this kernel lacks, and which one: they contribute nothing."""
        return self._left_out

    # -- inside

    def _put_service(
        self, key: ServiceKey, ports: tuple[ServicePort, ...], endpoints: dict[ServicePortName, tuple[Endpoint, ...]]
    ) -> None:
        rendered = [(port, own := endpoints.get(port.id, ()), self._rules_of(port, own)) for port in ports]
        lacking = next((match for _, _, rules in rendered if (match := self._lacks(rules))), "")
        if lacking:
            self._left_out[key] = lacking
            ports, rendered = (), []
        else:
            self._left_out.pop(key, None)
        names = tuple(port.id for port in ports)
        for name in self._ports_of.get(key, ()):
            if name not in names:
                self._exchange(name, None, None)
                self.udp_changes += name.protocol == "UDP"
        for port, own, rules in rendered:
            contribution = _Contribution(
                Rank(port.created, port.id),
                tuple(rules.chains),
                rules.portals,
                rules.nodeports,
                len(own),
                rules.lacks_internal_endpoints,
                rules.lacks_external_endpoints,
            )
            self._exchange(port.id, contribution, rules)
            self._findings.put(contribution.rank, port)
            self.udp_changes += port.id.protocol == "UDP"
        checked = next((port for port in ports if port.health_check_node_port), None)
        if checked is not None:
            here = self.settings.here
            local = {e.address for own in endpoints.values() for e in own if e.is_ready and is_local(e, here)}
            self.health_checks[key] = (checked.health_check_node_port, len(local))
        else:
            self.health_checks.pop(key, None)
        if names:
            self._ports_of[key] = names
        else:
            self._ports_of.pop(key, None)

    def _keep(self, key: ServiceKey, ports: Mapping[ServicePortName, PortRules]) -> None:
        """Want of a service what stands."""
        if self._ports_of.get(key) == tuple(ports):
            return
        for name in self._ports_of.get(key, ()):
            if name not in ports:
                self._exchange(name, None, None)
        for name, rules in ports.items():
            count = sum(chain.startswith("KUBE-SEP-") for chain in rules.chains)
            contribution = _Contribution(
                Rank("", name), tuple(rules.chains), rules.portals, rules.nodeports, count, False, False
            )
            self._exchange(name, contribution, rules)
        self._ports_of[key] = tuple(ports)

    def _rules_of(self, port: ServicePort, own: tuple[Endpoint, ...]) -> PortRules:
        sorted_out = categorize(own, port, self.settings.here, node_hints=self.settings.uses_node_hints)
        return render(port, sorted_out, self.settings, endpoint_comments=not self.is_large)

    def _lacks(self, rules: PortRules) -> str:
        """Return the first match that these rules need and the kernel lacks, or ""."""
        if not self.settings.missing:
            return ""
        lines = [*rules.chains.values(), *(portal.rule for portal in (*rules.portals, *rules.nodeports))]
        lines += [*rules.filter_services, *rules.filter_external, *rules.filter_firewall, *rules.filter_nodeports]
        needed = {match for line in lines for match in _MATCH.findall(f" {_QUOTED.sub('', line)}")}
        return min(needed & self.settings.missing, default="")

    def _exchange(self, name: ServicePortName, new: _Contribution | None, rules: PortRules | None) -> None:
        old = self._contributions.pop(name, None)
        self._lacks_internal += (new is not None and new.lacks_internal) - (old is not None and old.lacks_internal)
        self._lacks_external += (new is not None and new.lacks_external) - (old is not None and old.lacks_external)
        chains = rules.chains if rules is not None else {}
        for chain in old.chains if old is not None else ():
            if chain not in chains:
                self._drop(NAT, chain)
                del self.owner[chain]
        for chain, text in chains.items():
            self._put(NAT, chain, text)
            self.owner[chain] = name
        if old is not None and (new is None or new.rank != old.rank):
            self._portals -= len(old.portals)
            self._endpoints -= old.endpoints
            self._services.update(old.rank, old.portals, ())
            self._nodeports.update(old.rank, old.nodeports, ())
            self._findings.put(old.rank, None)
            self._share(old.rank, None)
            old = None
        if new is None:
            return
        self._contributions[name] = new
        self._portals += len(new.portals) - (len(old.portals) if old is not None else 0)
        self._endpoints += new.endpoints - (old.endpoints if old is not None else 0)
        self._services.update(new.rank, old.portals if old is not None else (), new.portals)
        self._nodeports.update(new.rank, old.nodeports if old is not None else (), new.nodeports)
        self._share(new.rank, rules)

    def _share(self, rank: Rank, rules: PortRules | None) -> None:
        shared: tuple[tuple[str, ...], ...] = ((),) * len(_SHARED)
        if rules is not None:
            shared = (rules.filter_services, rules.filter_external, rules.filter_firewall, rules.filter_nodeports)
        for index, lines in enumerate(shared):
            known = self._lines[index]
            if known.get(rank, ()) == lines:
                continue
            if lines:
                known[rank] = lines
            else:
                del known[rank]
            self._stale.add(index)

    def _settle(self) -> None:
        for index in sorted(self._stale):
            table, chain = _SHARED[index]
            known = self._lines[index]
            self._put(table, chain, chain_text(chain, [line for rank in sorted(known) for line in known[rank]]))
        self._stale.clear()
        if self._mode == "auto" and (
            self._portals < TREE_PORTALS // 2 if self.uses_tree else self._portals >= TREE_PORTALS
        ):
            self._turn()
        self._put_changes()

    def _put_changes(self) -> None:
        for chain, text in (self._services.take_changes() | self._nodeports.take_changes()).items():
            if text is None:
                self._drop(NAT, chain)
            else:
                self._put(NAT, chain, text)

    def _make_dispatch(self, *, as_trees: bool) -> tuple[Dispatch, Dispatch]:
        """Return empty KUBE-SERVICES and KUBE-NODEPORTS."""
        services: Dispatch
        nodeports: Dispatch
        if as_trees:
            services, nodeports = TreeDispatch(AddressSpace(self.settings.family)), TreeDispatch(PortSpace())
        else:
            services, nodeports = FlatDispatch(SERVICES), FlatDispatch(NODEPORTS)
        services.set_tail(nodeport_jumps(self.settings))
        return services, nodeports

    def _turn(self) -> None:
        """Exchange the trees for the flat form or the other way round."""
        for dispatch in (self._services, self._nodeports):
            if isinstance(dispatch, TreeDispatch):
                for chain in dispatch.chains()[1:]:
                    self._drop(NAT, chain)
        self._services, self._nodeports = self._make_dispatch(as_trees=not self.uses_tree)
        for contribution in self._contributions.values():
            self._services.update(contribution.rank, (), contribution.portals)
            self._nodeports.update(contribution.rank, (), contribution.nodeports)

    def _put(self, table: str, chain: str, text: str) -> None:
        chains = self.ruleset.chains[table]
        if chains.get(chain) != text:
            chains[chain] = text
            self._changed[table, chain] = None

    def _drop(self, table: str, chain: str) -> None:
        if self.ruleset.chains[table].pop(chain, None) is not None:
            self._changed[table, chain] = None
