"""Remove every rule of ours or of kube-proxy: ``--cleanup``, and taking over from the other iptables backend.

Only chains by the names that kube-proxy owns, and the jumps to them, by value. KUBE-FIREWALL, kubelet's hint chains
and all foreign rules stay. Idempotent: with nothing of ours there, nothing is run but the reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import structlog

from pykubeproxy.errors import NetfilterError, RestoreError
from pykubeproxy.model.addresses import Family
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.process import Runner
from pykubeproxy.netfilter.read import Reader
from pykubeproxy.netfilter.restore import restore
from pykubeproxy.rules.base import jump_pattern
from pykubeproxy.rules.names import TABLES
from pykubeproxy.rules.ruleset import Ruleset
from pykubeproxy.sync.plan import Difference, Plan, make_plan

log = structlog.get_logger()

BATCH = 2000


@dataclass(frozen=True, slots=True)
class Removed:
    """What a clean-up took away."""

    chains: int = 0
    jumps: int = 0

    def __bool__(self) -> bool:
        return bool(self.chains or self.jumps)


def removal(standing: Ruleset, *, batch: int | None) -> Plan:
    """Return the plan that takes away all of ours. Pure."""
    targets = jump_pattern()
    jumps = tuple(rule for rule in standing.ensured if rule.rule.rpartition("-j ")[2] in targets.get(rule.table, ()))
    delete = {table: tuple(standing.chains[table]) for table in TABLES if standing.chains[table]}
    return make_plan(Difference({}, delete, remove=jumps), lambda _: None, batch=batch)


def clean_up(backend: Backend, runner: Runner, *, tables: tuple[str, ...] = TABLES) -> Removed:
    """Remove what is ours from one backend and family; return how much it was.

    Raises:
        LockBusyError, EnvironmentProblem, NetfilterError: as restore. What could be removed is removed all the same.

    """
    standing = Reader(backend, runner).read(tables).ruleset
    plan = removal(standing, batch=BATCH if backend.kind == "nft" else None)
    trouble: NetfilterError | None = None
    for step in plan.steps:
        try:
            restore(backend, runner, step.text())
        except RestoreError as exc:
            trouble = exc
            log.error("cleanup_step_failed", family=backend.family, backend=backend.kind, error=str(exc))
            if step.deletes:
                restore(backend, runner, step.without_deletes().text())
    if trouble is not None:
        raise trouble
    removed = Removed(plan.deleted, sum(len(s.removed) for step in plan.steps for s in step.sections))
    if removed:
        log.info("cleaned_up", family=backend.family, backend=backend.kind, chains=removed.chains, jumps=removed.jumps)
    return removed


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
