"""Read what stands in the kernel for one service, with counters, at a price that a page may cost.

On nft chains are listed one by one (some milliseconds each, however large the table); legacy can only be read a table
at a time, so such a reading is kept for a moment. Reads only.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable

from pykubeproxy.errors import UnreadableTable
from pykubeproxy.insight.live import recent_memory
from pykubeproxy.insight.standing import Counted, Standing
from pykubeproxy.model.service import ServicePort
from pykubeproxy.netfilter import counters, native
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.process import Runner
from pykubeproxy.netfilter.read import UNKNOWN, SavedTable, standing
from pykubeproxy.node.nfacct import recent_lists
from pykubeproxy.rules.names import (
    BUILTIN,
    DISPATCH_PREFIXES,
    EXTERNAL_SERVICES,
    FILTER,
    FIREWALL,
    NAT,
    NODEPORTS,
    PROXY_FIREWALL,
    SERVICES,
    PortChains,
)
from pykubeproxy.rules.ruleset import Ruleset
from pykubeproxy.rules.service import PortRules

_LINE = re.compile(rb"^-[ANP] (\S+).*$", re.MULTILINE)

Place = tuple[str, str]
"""(table, chain)"""

SINGLE, MOST = 60, 400
"""Up to this many chains of a table are listed one by one; beyond, the whole table is, unless it cannot be printed."""
KEPT = 2.0
"""Seconds for which a reading of a whole table is used again."""

_SHARED: tuple[Place, ...] = (
    (FILTER, SERVICES),
    (FILTER, EXTERNAL_SERVICES),
    (FILTER, PROXY_FIREWALL),
    (FILTER, NODEPORTS),
)


def way_to(wanted: Ruleset, rules: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the chains of nat that lead to these rules of KUBE-SERVICES and KUBE-NODEPORTS, or of the trees below.

    Each comes with the lines that must be in it.
    """
    dispatch = {
        chain: text
        for chain, text in wanted.chains[NAT].items()
        if chain in (SERVICES, NODEPORTS) or chain.startswith(DISPATCH_PREFIXES)
    }
    found: dict[str, dict[str, None]] = {}
    waiting = list(rules)
    while waiting:
        rule = waiting.pop()
        for chain, text in dispatch.items():
            line = f"-A {chain} {rule}"
            if f"{line}\n" in text and line not in found.setdefault(chain, {}):
                found[chain][line] = None
                if chain.startswith(DISPATCH_PREFIXES):
                    waiting += [
                        other.split(" ", 2)[2]
                        for above in dispatch.values()
                        if f" -j {chain}\n" in above
                        for other in above.splitlines()
                        if other.endswith(f" -j {chain}")
                    ]
    return {chain: tuple(lines) for chain, lines in found.items() if lines}


def places(wanted: Ruleset, ports: Iterable[tuple[ServicePort, PortRules]]) -> set[Place]:
    """Return the chains in which rules for these ports stand, should stand, or may be left."""
    found: set[Place] = {*_SHARED, (NAT, NODEPORTS), (NAT, SERVICES)}
    found.update((rule.table, rule.chain) for rule in wanted.ensured)
    for port, rules in ports:
        names = PortChains(port.id)
        found.update((NAT, chain) for chain in (names.cluster, names.local, names.external, names.firewall))
        found.update((NAT, chain) for chain in rules.chains)
        portals = (*rules.portals, *rules.nodeports)
        found.update((NAT, chain) for chain in way_to(wanted, (portal.rule for portal in portals)))
    return found


class PartialReader:
    """Reads one family's rules in part. Threads: any; one reads at a time."""

    def __init__(self, backend: Backend, runner: Runner, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._backend = backend
        self._runner = runner
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, bytes]] = {}

    def read(self, wanted: Iterable[Place], *, with_memory: bool = False) -> Standing:
        """Read these chains (more where a whole table was read); ``with_memory``: and what affinity remembers.

        Raises:
            LockBusyError, EnvironmentProblem, NetfilterError: as netfilter.read.

        """
        by_table: dict[str, list[str]] = {}
        for table, chain in sorted(wanted):
            by_table.setdefault(table, []).append(chain)
        saved: dict[str, SavedTable] = {}
        counted: dict[Place, list[Counted]] = {}
        unreadable: dict[str, str] = {}
        with self._lock:
            for table, chains in by_table.items():
                into = saved[table] = SavedTable()
                try:
                    if self._backend.kind == "legacy" or len(chains) > SINGLE:
                        _take(table, _only(self._whole(table), chains), into, counted)
                        continue
                    is_whole = self._one_by_one(table, chains, into, counted)
                except UnreadableTable:
                    is_whole = self._one_by_one(table, chains, into, counted)
                if not is_whole:
                    unreadable[table] = "native rules stand in it"
        endpoints = [chain for _, chain in counted if chain.startswith("KUBE-SEP-")] if with_memory else []
        memory = recent_memory(endpoints)[0] if endpoints else {}
        limit = recent_lists(endpoints[0]).limit if endpoints else None
        return Standing(standing(saved), counted, unreadable, memory, limit)

    def _whole(self, table: str) -> bytes:
        known = self._kept.get(table)
        if known is None or self._clock() >= known[0] + KEPT:
            known = self._kept[table] = (self._clock(), counters.listing(self._backend, self._runner, table))
        return known[1]

    def _one_by_one(
        self, table: str, chains: list[str], saved: SavedTable, counted: dict[Place, list[Counted]]
    ) -> bool:
        """List single chains; tell whether all is known of those that exist."""
        family = self._backend.family
        # iptables-nft 1.8.9 calls a chain that does not exist incompatible.
        there = native.existing(family, table, chains[:MOST])
        is_whole = len(chains) <= MOST
        for chain in chains[:MOST]:
            if chain in there:
                try:
                    _take(table, counters.listing(self._backend, self._runner, table, chain), saved, counted)
                except UnreadableTable:
                    if chain in BUILTIN or chain == FIREWALL:
                        saved.chains[chain] = native.jumps(family, table, chain)
                    else:
                        saved.chains[chain] = UNKNOWN
                        is_whole = False
        return is_whole


def _only(text: bytes, chains: Iterable[str]) -> bytes:
    """Return the lines of a listing that are about some chains; the rest would take long to parse."""
    # Not one expression of all names: that is tried name by name at each line, minutes for thousands of both.
    names = frozenset(chain.encode() for chain in chains)
    return b"\n".join(line[0] for line in _LINE.finditer(text) if line[1] in names)


def _take(table: str, text: bytes, saved: SavedTable, counted: dict[Place, list[Counted]]) -> None:
    lines: dict[str, list[str]] = {chain: [] for chain in counters.chains(text)}
    for chain, rule, packets, octets in counters.rules(text):
        lines.setdefault(chain, []).append(f"-A {chain} {rule}\n")
        counted.setdefault((table, chain), []).append(Counted(rule, packets, octets))
    saved.chains.update({chain: "".join(found) for chain, found in lines.items()})
