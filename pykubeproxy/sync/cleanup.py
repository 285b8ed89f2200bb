"""Remove every rule of ours or of kube-proxy: ``--cleanup``, and taking over from the other iptables backend.

Only chains by the names that kube-proxy owns (in its iptables and ipvs modes), and the jumps to them, by value.
KUBE-FIREWALL, kubelet's hint chains and all foreign rules stay. Idempotent: with nothing of ours there, nothing is run
but the reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import structlog

from pykubeproxy import progress
from pykubeproxy.errors import NetfilterError, RestoreError, UnreadableTable
from pykubeproxy.model.addresses import Family
from pykubeproxy.netfilter import native
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.process import Runner
from pykubeproxy.netfilter.read import Reader, SavedTable, parse
from pykubeproxy.netfilter.read import standing as standing_of
from pykubeproxy.netfilter.restore import restore
from pykubeproxy.rules.base import jump_pattern
from pykubeproxy.rules.names import BUILTIN, FILTER, NAT, TABLES, is_ours
from pykubeproxy.rules.ruleset import Ruleset
from pykubeproxy.sync.isolation import undeletable
from pykubeproxy.sync.plan import Difference, Plan, Section, Step, make_plan

log = structlog.get_logger()

BATCH = 2000
IPVS_CHAINS: dict[str, frozenset[str]] = {
    NAT: frozenset(("KUBE-NODE-PORT", "KUBE-LOAD-BALANCER")),
    FILTER: frozenset(("KUBE-NODE-PORT", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER")),
}
"""The chains that only kube-proxy's ipvs mode has (pkg/proxy/ipvs/proxier.go, iptablesChains)."""
Chain = tuple[str, str]
_TARGET = re.compile(r" -[jg] (\S+)")


@dataclass(frozen=True, slots=True)
class Removed:
    """What a clean-up took away."""

    chains: int = 0
    jumps: int = 0

    def __bool__(self) -> bool:
        return bool(self.chains or self.jumps)


def removal(standing: Ruleset, *, batch: int | None, keep: Mapping[Chain, str] = MappingProxyType({})) -> Plan:
    """Return the plan that takes away all of ours. Chains in ``keep`` are emptied and left. Pure."""
    targets = jump_pattern()
    jumps = tuple(rule for rule in standing.ensured if rule.rule.rpartition("-j ")[2] in targets.get(rule.table, ()))
    delete: dict[str, tuple[str, ...]] = {}
    empty: dict[str, dict[str, tuple[str | None, str]]] = {}
    for table in TABLES:
        chains = standing.chains[table]
        delete[table] = tuple(chain for chain in chains if (table, chain) not in keep)
        empty[table] = {chain: (text, "") for chain, text in chains.items() if (table, chain) in keep and text}
    return make_plan(Difference(empty, delete, remove=jumps), lambda _: None, batch=batch)


def referenced(tables: Mapping[str, SavedTable]) -> dict[Chain, str]:
    """Return our chains that a rule of a foreign chain leads to, with that rule: they cannot be deleted. Pure."""
    found: dict[Chain, str] = {}
    for table, saved in tables.items():
        for chain, text in saved.chains.items():
            if chain in BUILTIN or is_ours(table, chain):
                continue
            for line in text.splitlines():
                match = _TARGET.search(line)
                if match is not None and is_ours(table, match[1]):
                    found.setdefault((table, match[1]), line)
    return found


def ipvs_removal(tables: Mapping[str, SavedTable]) -> str:
    """Return the restore input that takes away the chains of ipvs mode and what leads to them; "" if none. Pure.

    It has no chain in common with iptables mode, but jumps to KUBE-MARK-MASQ and is jumped to from KUBE-SERVICES.
    """
    document = ""
    for table, names in IPVS_CHAINS.items():
        chains = tables[table].chains if table in tables else {}
        there = sorted(names & chains.keys())
        if not there:
            continue
        jumps = [
            f"-D{line[2:]}\n"
            for chain, text in chains.items()
            if chain not in names
            for line in text.splitlines()
            if line.rpartition("-j ")[2] in there
        ]
        flush = "".join(f":{chain} - [0:0]\n" for chain in there)
        delete = "".join(f"-X {chain}\n" for chain in there)
        document += f"*{table}\n{flush}{''.join(jumps)}{delete}COMMIT\n"
    return document


def clean_up(backend: Backend, runner: Runner, *, tables: tuple[str, ...] = TABLES) -> Removed:
    """Remove what is ours from one backend and family; return how much it was.

    Raises:
        LockBusyError, EnvironmentProblem, NetfilterError: as restore, or a chain had to stay because a foreign rule
            leads to it. What could be removed is removed all the same.

    """
    reader = Reader(backend, runner)
    saved, standing = _read(reader, tables)
    document = ipvs_removal(saved)
    if document:
        restore(backend, runner, document)
        log.info("IPVS chains removed", family=backend.family, backend=backend.kind)
        saved, standing = _read(reader, tables)
    keep = referenced(saved)
    plan = removal(standing, batch=BATCH if backend.kind == "nft" else None, keep=keep)
    trouble: list[str] = [
        f"{chain} of {table} stays, empty, because of the rule {keep[table, chain]!r}" for table, chain in keep
    ]
    title = f"removing the {backend.family} rules from {backend.kind}"
    for step in progress.over(plan.steps, title, weigh=Step.size):
        try:
            restore(backend, runner, step.text())
        except RestoreError as exc:
            log.info("cleanup step refused", family=backend.family, backend=backend.kind, error=str(exc))
            rest = removal(reader.read(tables).ruleset, batch=None, keep=keep)
            trouble += _piecemeal(backend, runner, rest)
            break
    removed = Removed(plan.deleted, sum(len(s.removed) for step in plan.steps for s in step.sections))
    if removed:
        log.info("cleaned up", family=backend.family, backend=backend.kind, chains=removed.chains, jumps=removed.jumps)
    if trouble:
        raise NetfilterError("; ".join(trouble))
    return removed


def _piecemeal(backend: Backend, runner: Runner, plan: Plan) -> Iterator[str]:
    """Remove piece by piece, as some of it is refused; yield what has to stay, in words."""
    for section in (section for step in plan.steps for section in step.sections):
        table = section.table
        for rule in section.removed:
            try:
                restore(backend, runner, Section(table, removed=(rule,)).text())
            except RestoreError as exc:
                if backend.kind == "legacy":
                    yield str(exc)
                    continue
                # iptables-nft looks for a rule by parsing those in front of it; there may be one that it cannot.
                native.remove_jumps(backend.family, table, rule.chain, {rule.rule.rpartition("-j ")[2]})
        restore(backend, runner, replace(section, removed=()).without_deletes().text())

        def delete(part: tuple[str, ...], table: str = table) -> None:
            restore(backend, runner, Section(table, delete=part).text())

        for chain, why in undeletable(section.delete, delete):
            yield f"{chain} of {table} stays, empty: {why}"


def _read(reader: Reader, tables: tuple[str, ...]) -> tuple[dict[str, SavedTable], Ruleset]:
    """Read the tables once: all chains of those that can be printed, and what is ours in all of them."""
    saved: dict[str, SavedTable] = {}
    unreadable = []
    for table in tables:
        try:
            saved |= parse(reader.save(table))
        except UnreadableTable:
            unreadable.append(table)
    return saved, reader.read(tables).ruleset if unreadable else standing_of(saved)


def tables_in_use(backend: Backend, proc: Path = Path("/proc/net")) -> tuple[str, ...]:
    """Return the tables that may be read without creating them: iptables-legacy makes a table by looking at it."""
    if backend.kind == "nft":
        return TABLES
    name = "ip6_tables_names" if backend.family == "IPv6" else "ip_tables_names"
    try:
        there = (proc / name).read_text(encoding="ascii").split()
    except OSError:
        return ()
    return tuple(table for table in TABLES if table in there)


def other_backend(backend: Backend, family: Family) -> Backend:
    """Return the backend that is not used."""
    return Backend("legacy" if backend.kind == "nft" else "nft", family)
