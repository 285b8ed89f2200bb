"""What one sync did, and how it is told: in the log, in metrics, and (what a person should see) as Events.

It exists apart from the engine so that there only deciding and applying are left. It must not decide anything: all
that it remembers is what it has told already, because what lasts is told once.

Threads: the engine's only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from pykubeproxy.model.addresses import Family
from pykubeproxy.model.service import Problem, ServiceKey
from pykubeproxy.rules.names import NAT, TABLES
from pykubeproxy.serving.metrics import Metrics
from pykubeproxy.sync.desired import Desired
from pykubeproxy.sync.drift import Place
from pykubeproxy.sync.isolation import MANY_CULPRITS
from pykubeproxy.sync.plan import Step

log = structlog.get_logger()


class Reporter(Protocol):
    """Tells a person (as Kubernetes Events) what the log says."""

    def service(self, key: ServiceKey, reason: str, message: str) -> None:
        """Report a Warning about a service."""


class _Silent:
    def service(self, key: ServiceKey, reason: str, message: str) -> None:
        """Report nothing."""


@dataclass(slots=True)
class Outcome:
    """What one sync did."""

    reason: str
    is_full: bool = False
    restores: int = 0
    bytes: int = 0
    written: dict[str, int] = field(default_factory=dict)
    deleted: int = 0
    drifted: dict[str, int] = field(default_factory=dict)
    """Places put back, by table."""
    verify_seconds: float = 0.0
    """What it took to find out whether others had changed anything."""
    verify_in: float | None = None
    """Seconds until a verification is due ahead of the sync period."""
    triggers: list[float] = field(default_factory=list)
    refused: dict[ServiceKey, str] = field(default_factory=dict)
    """Services found to be refused in this sync."""
    rendered: list[ServiceKey] = field(default_factory=list)
    """Services whose changes are in the rules since this sync, those that are gone among them."""
    unexplained: int = 0
    """Refusals in this sync for which no service could be blamed."""
    seconds: float = 0.0

    def count(self, step: Step, size: int) -> None:
        """Add one applied step."""
        self.restores += 1
        self.bytes += size
        for section in step.sections:
            self.written[section.table] = self.written.get(section.table, 0) + len(section.chains)
            self.deleted += len(section.delete)


class Telling:
    """Tells what the engine of one family does. See the module's docstring."""

    def __init__(
        self, family: Family, metrics: Metrics, reporter: Reporter | None, wall_clock: Callable[[], float]
    ) -> None:
        self._family = family
        self._metrics = metrics
        self._reporter: Reporter = reporter or _Silent()
        self._wall_clock = wall_clock
        self._told: frozenset[Problem] = frozenset()
        self._left_out: dict[ServiceKey, str] = {}
        """The services that were told to be left out, and why each."""

    def problems(self, wanted: Desired) -> None:
        """Tell what is wrong between objects, each once for as long as it lasts."""
        problems = wanted.problems()
        for problem in problems:
            if problem not in self._told:
                where = f"{problem.kind} {problem.namespace}/{problem.name}"
                log.warning("object problem", family=self._family, object=where, field=problem.field,
                            problem=problem.message)  # fmt: skip
                key = ServiceKey(problem.namespace, problem.name)
                self._reporter.service(key, problem.reason, f"{problem.field}: {problem.message}")
        self._told = frozenset(problems)
        self._metrics.source_ranges_open.labels(ip_family=self._family).set(wanted.open_ranges)

    def left_out(self, now: dict[ServiceKey, str]) -> None:
        """Tell which services are left out and why, each once for as long as it lasts for the same reason."""
        self._metrics.quarantined_services.labels(ip_family=self._family).set(len(now))
        news = [key for key, why in now.items() if self._left_out.get(key) != why]
        if len(news) > MANY_CULPRITS:
            log.error(
                "common cause", family=self._family, services_left_out=len(news), why=now[news[0]],
                services=[str(key) for key in news[:MANY_CULPRITS]],
            )  # fmt: skip
        for key in news[:MANY_CULPRITS]:
            log.error("service left out", family=self._family, service=str(key), why=now[key])
            self._reporter.service(key, "RulesRefused", f"left out in {self._family}: {now[key]}")
        for key in self._left_out:
            if key not in now:
                log.info("service taken in", family=self._family, service=str(key))
        self._left_out = now

    def drift(self, heal: list[Place], contested: list[Place]) -> None:
        """Log what has drifted, and what is fought over from now on: a line for each table."""
        for table in TABLES:
            if places := [place for place in heal if place.table == table]:
                log.warning("drift", family=self._family, table=table, **_named(places))
            if places := [place for place in contested if place.table == table]:
                self._metrics.drift_fights_total.labels(table=table, ip_family=self._family).inc(len(places))
                log.warning(
                    "drift fight",
                    family=self._family,
                    table=table,
                    **_named(places),
                    why="another program changes it again each time it is put back",
                    consequence="put back ever more rarely: what is lost every few seconds, the rest down to once in "
                    "a sync period",
                )

    def synced(self, wanted: Desired, outcome: Outcome) -> None:
        """Tell of a sync that reached what is wanted."""
        metrics, family = self._metrics, self._family
        metrics.sync_proxy_rules_duration_seconds.labels(ip_family=family).observe(outcome.seconds)
        kind = (
            metrics.sync_full_proxy_rules_duration_seconds
            if outcome.is_full
            else metrics.sync_partial_proxy_rules_duration_seconds
        )
        kind.labels(ip_family=family).observe(outcome.seconds)
        now = self._wall_clock()
        for trigger in outcome.triggers:
            if 0 <= now - trigger < 86400:
                metrics.network_programming_duration_seconds.labels(ip_family=family).observe(now - trigger)
        metrics.sync_proxy_rules_last_timestamp_seconds.labels(ip_family=family).set(now)
        metrics.service_dispatch_tree.labels(ip_family=family).set(int(wanted.uses_tree))
        for table, count in outcome.written.items():
            metrics.chains_written_total.labels(ip_family=family, table=table).inc(count)
        if outcome.deleted:
            metrics.chains_deleted_total.labels(ip_family=family, table=NAT).inc(outcome.deleted)
        for table, count in outcome.drifted.items():
            metrics.drift_healed_total.labels(table=table, ip_family=family).inc(count)
        services, endpoints = wanted.size
        say = log.info if outcome.restores or outcome.is_full else log.debug
        say(
            "synced",
            family=family,
            reason=outcome.reason,
            service_ports=services,
            endpoints=endpoints,
            restores=outcome.restores,
            chains_written=sum(outcome.written.values()),
            chains_deleted=outcome.deleted,
            bytes=outcome.bytes,
            seconds=round(outcome.seconds, 4),
        )


def _named(places: list[Place]) -> dict[str, Any]:
    """Name the first few of a table's places."""
    chains = sorted(place.chain for place in places if not place.rule)
    jumps = [f"{place.chain} {place.rule}" for place in places if place.rule]
    return {"chains": chains[:5], "chain_count": len(chains), "jumps_missing": jumps[:5]}
