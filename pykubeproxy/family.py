"""One IP family of the daemon: its state, engine, loop, conntrack keeper and health check ports, wired together.

The feeds hand what the sources bring to all families alike.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from pykubeproxy.config.options import Options
from pykubeproxy.errors import NetfilterError, PykubeproxyError
from pykubeproxy.model.addresses import Family
from pykubeproxy.model.service import Problem, ServiceKey
from pykubeproxy.model.state import ClusterState
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.process import Runner
from pykubeproxy.netfilter.watch import Watch
from pykubeproxy.node import memory
from pykubeproxy.node.addresses import interface_addresses, local_addresses
from pykubeproxy.node.leftovers import remove_nftables_mode
from pykubeproxy.rules.names import FILTER, NAT
from pykubeproxy.rules.ruleset import Ruleset
from pykubeproxy.rules.settings import RuleSettings
from pykubeproxy.serving.health import ProxierHealth
from pykubeproxy.serving.healthcheck import ServiceHealthChecks
from pykubeproxy.serving.http import HttpServer
from pykubeproxy.serving.metrics import Metrics
from pykubeproxy.sync.cleanup import clean_up, other_backend, tables_in_use
from pykubeproxy.sync.connections import ConnectionCounts
from pykubeproxy.sync.drift import Damper
from pykubeproxy.sync.engine import Engine
from pykubeproxy.sync.flows import FlowKeeper
from pykubeproxy.sync.history import SyncHistory
from pykubeproxy.sync.runner import SyncLoop
from pykubeproxy.sync.telling import Outcome, Reporter
from pykubeproxy.watch.objects import EndpointSlice, Service

log = structlog.get_logger()

LARGE_INPUT = 1 << 20
"""Bytes written in one sync from which on free memory is given back to the kernel."""


class FamilyProxy:
    """Everything that exists once for each IP family. Threads: see daemon."""

    def __init__(
        self,
        family: Family,
        backend: Backend,
        runner: Runner,
        settings: RuleSettings,
        options: Options,
        *,
        watch: Watch,
        metrics: Metrics,
        health: ProxierHealth,
        http: HttpServer,
        reporter: Reporter,
        on_problem: Callable[[Problem], None],
        on_crash: Callable[[BaseException], None],
        refresh: Callable[[], None],
        on_refused: Callable[[], None] = lambda: None,
        on_loaded: Callable[[], None] = lambda: None,
    ) -> None:
        """Wire it. ``on_loaded`` is called after a sync that rendered everything."""
        self.family = family
        self._backend = backend
        self._runner = runner
        self._metrics = metrics
        self._health = health
        self._on_object_problem = on_problem
        self._on_loaded = on_loaded
        self._refresh = refresh
        self._released = threading.Event()
        self._ready_since: float | None = None
        self._took_over = False
        self._udp_seen = -1
        self._sync_period = options.iptables.sync_period
        self._flows_at = 0.0
        """When the stale flows were last looked for (monotonic)."""
        self.state = ClusterState(
            family, on_change=self._on_change, on_problem=self._on_problem, started_at=time.time()
        )
        self.engine = Engine(
            self.state,
            backend,
            runner,
            settings,
            metrics=metrics,
            dispatch=options.service_dispatch,
            reporter=reporter,
            look=lambda: watch.look(family),
            damper=Damper(options.iptables.sync_period),
            on_adopt=self._adopt,
            on_refused=on_refused,
        )
        self.connections = (
            ConnectionCounts(
                self.state, lambda: self.engine.wanted, backend, runner, spacing=options.connection_metrics_period
            )
            if options.connection_metrics
            else None
        )
        self.history = SyncHistory(lambda key: bool(self.state.ports(key))) if options.status_page else None
        self._loop = SyncLoop(
            self.engine,
            min_interval=options.iptables.min_sync_period,
            sync_period=options.iptables.sync_period,
            on_start=self._on_start,
            on_synced=self._on_synced,
            on_crash=on_crash,
        )
        self._flows = FlowKeeper(
            self.state, lambda: self.engine.settings, self._local_addresses, metrics=metrics, on_crash=on_crash
        )
        self._checks = ServiceHealthChecks(
            http, family, is_healthy=health.is_healthy, on_failure=self._on_check_failure
        )
        self._reporter = reporter

    def start(self) -> None:
        """Start the threads; nothing is written before the state has synced and ``release`` was called."""
        self._loop.start()
        self._flows.start()

    def stop(self) -> None:
        """End the threads without waiting; the rules stay."""
        self._loop.stop()
        self._flows.stop()

    def release(self) -> None:
        """Say that the own Node is known, or known to be missing: nothing more to wait for."""
        if not self._released.is_set():
            self._released.set()
            self._ask("start")

    def release_after(self, seconds: float) -> None:
        """Release if the rest has been there for ``seconds`` already."""
        if self._released.is_set() or not self.state.has_synced:
            return
        if self._ready_since is None:
            self._ready_since = time.monotonic()
        if time.monotonic() - self._ready_since >= seconds:
            log.warning("node late", family=self.family, consequence="going on without the own Node")
            self.release()

    def configure(self, settings: RuleSettings, options: Options, reason: str) -> None:
        """Take over settings and options that may have changed."""
        self._sync_period = self.engine.damper.ceiling = options.iptables.sync_period
        self._loop.set_periods(min_interval=options.iptables.min_sync_period, sync_period=options.iptables.sync_period)
        if self.engine.configure(settings, dispatch=options.service_dispatch):
            self._health.queued_update(self.family)
            self._ask(reason)

    def verify(self) -> None:
        """Compare the rules with the kernel's soon: somebody else may have written there. Any thread may call it."""
        self._ask("drift", verify=True)

    @property
    def failures(self) -> int:
        """How many syncs failed in a row."""
        return self._loop.failures

    @property
    def backend(self) -> Backend:
        """The iptables that is used."""
        return self._backend

    # -- inside

    def _adopt(self, standing: Ruleset) -> None:
        self._flows.adopt(standing)
        if self.connections is not None:
            self.connections.adopt(standing)

    def _ask(self, reason: str, *, verify: bool = False) -> None:
        if self._released.is_set() and self.state.has_synced:
            self._loop.request(reason, verify=verify)

    def _on_change(self, what: str) -> None:
        if what == "service":
            self._metrics.sync_proxy_rules_service_changes_total.inc()
        elif what == "endpoints":
            self._metrics.sync_proxy_rules_endpoint_changes_total.inc()
        if self.state.has_synced:
            services, endpoints = self.state.pending()
            self._metrics.sync_proxy_rules_service_changes_pending.set(services)
            self._metrics.sync_proxy_rules_endpoint_changes_pending.set(endpoints)
            self._metrics.sync_proxy_rules_last_queued_timestamp_seconds.labels(
                ip_family=self.family
            ).set_to_current_time()
            self._health.queued_update(self.family)
        self._ask(what)

    def _on_problem(self, problem: Problem) -> None:
        log.warning(
            "object problem",
            family=self.family,
            object=f"{problem.kind} {problem.namespace}/{problem.name}",
            field=problem.field,
            problem=problem.message,
        )
        self._on_object_problem(problem)

    def _on_start(self, verify: bool) -> None:  # noqa: FBT001 - a callback
        if verify:
            self._refresh()
        self._health.sync_started(self.family)

    def _on_synced(self, outcome: Outcome) -> None:
        self._health.updated(self.family)
        if self.history is not None:
            self.history.add(outcome)
        wanted = self.engine.wanted
        if wanted is None:
            return
        with self.state.lock:
            checks = {port: (key.namespace, key.name, count) for key, (port, count) in wanted.health_checks.items()}
            lacking = wanted.lacking()
            counts = {table: wanted.ruleset.rule_count(table) for table in (FILTER, NAT)} if outcome.is_full else {}
            udp = wanted.udp_changes
        for policy, count in zip(("internal", "external"), lacking, strict=True):
            self._metrics.sync_proxy_rules_no_local_endpoints_total.labels(
                traffic_policy=policy, ip_family=self.family
            ).set(count)
        for table, count in counts.items():
            self._metrics.sync_proxy_rules_iptables_total.labels(table=table, ip_family=self.family).set(count)
        self._metrics.sync_proxy_rules_service_changes_pending.set(0)
        self._metrics.sync_proxy_rules_endpoint_changes_pending.set(0)
        addresses = self.engine.settings.nodeport_addresses
        # No address at all is not "every address": then no port is opened.
        self._checks.sync({} if addresses == () else checks, list(addresses or ()))
        # Not while services are kept of which nothing is known: their flows would look stale.
        is_due = udp != self._udp_seen or time.monotonic() >= self._flows_at + 0.9 * self._sync_period
        if is_due and not self.state.is_partial:
            self._udp_seen, self._flows_at = udp, time.monotonic()
            self._flows.request()
        if not self._took_over and not self.state.is_partial:
            self._took_over = True
            self._take_over_other_backend()
            remove_nftables_mode(self.family)
        if outcome.is_full:
            self._on_loaded()
        elif outcome.bytes > LARGE_INPUT:
            memory.give_back()

    def _take_over_other_backend(self) -> None:
        """Remove what we or kube-proxy left in the other iptables backend, now that the rules stand in this one."""
        other = other_backend(self._backend, self.family)
        tables = tables_in_use(other)
        if not tables:
            return
        try:
            removed = clean_up(other, self._runner, tables=tables)
        except (PykubeproxyError, NetfilterError) as exc:
            log.warning("other backend not cleaned", family=self.family, backend=other.kind, error=str(exc))
            return
        if removed:
            log.warning("other backend taken over", family=self.family, backend=other.kind, chains=removed.chains)

    def _on_check_failure(self, namespace: str, name: str, message: str) -> None:
        self._reporter.service(ServiceKey(namespace, name), "FailedToStartServiceHealthcheck", message)

    def _local_addresses(self) -> frozenset[str]:
        found: Any = interface_addresses()
        return local_addresses(found, self.family)


class ServiceFeed:
    """Hands Services to every family."""

    def __init__(self, families: Mapping[Family, FamilyProxy]) -> None:
        self._families = families

    def replace(self, objects: Any) -> None:
        """See Handler."""
        for proxy in self._families.values():
            proxy.state.replace_services(objects)

    def upsert(self, obj: Service) -> None:
        """See Handler."""
        for proxy in self._families.values():
            proxy.state.set_service(obj)

    def delete(self, namespace: str, name: str) -> None:
        """See Handler."""
        for proxy in self._families.values():
            proxy.state.delete_service(namespace, name)


class SliceFeed:
    """Hands EndpointSlices to every family."""

    def __init__(self, families: Mapping[Family, FamilyProxy]) -> None:
        self._families = families

    def replace(self, objects: Any) -> None:
        """See Handler."""
        for proxy in self._families.values():
            proxy.state.replace_slices(objects)

    def upsert(self, obj: EndpointSlice) -> None:
        """See Handler."""
        for proxy in self._families.values():
            proxy.state.set_slice(obj)

    def delete(self, namespace: str, name: str) -> None:
        """See Handler."""
        for proxy in self._families.values():
            proxy.state.delete_slice(namespace, name)
