"""Metrics: every series that this daemon exposes, defined in one place.

It exists so that names, types, labels and buckets are decided once. A dashboard or an alert written for kube-proxy must
work unchanged, hence ``kubeproxy_*`` is what kube-proxy 1.36 shows, to the letter; what only we have stands beside it
as ``pykubeproxy_*``. It must not know where the numbers come from: nothing here reads the kernel or a watch.

The text is written by :func:`exposition` and not by prometheus_client, for three reasons: that writes ``le="1.0"``
and ``0.0`` where Go writes ``le="1"`` and ``0``; it adds ``_created`` series; and at 10,000 series it takes twice the
time. One failing collector would also cost the whole scrape.
"""

from __future__ import annotations

import math
import platform
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

log = structlog.get_logger(__name__)

IP_FAMILIES = ("IPv4", "IPv6")
"""Label values of ``ip_family``, as kube-proxy spells them."""
TABLES = ("filter", "nat")
"""The tables that kube-proxy counts rules of."""
RESTORE_RESULTS = ("success", "failure")
"""Label values of ``result`` in ``pykubeproxy_restores_total``."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
"""What the real /metrics declares: the classic text format, never OpenMetrics, whatever is accepted."""

SYNC_BUCKETS = tuple(0.001 * 2**k for k in range(15))
"""1 ms to 16 s, doubling (pkg/proxy/metrics/metrics.go)."""
RESTORE_BUCKETS = tuple(0.001 * 2**k for k in range(18))
"""1 ms to 131 s: iptables-nft-restore has been seen to take a minute."""
NETWORK_PROGRAMMING_BUCKETS = (
    0.25,
    0.5,
    *(float(s) for s in range(1, 60)),
    *(float(s) for s in range(60, 120, 5)),
    *(float(s) for s in range(120, 301, 30)),
)
"""The buckets of the network programming latency SLI."""


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """What ``kubernetes_build_info`` says.

    ``emulates`` is the Kubernetes version whose behaviour this is: the version-skew alert of kubernetes-mixin compares
    the leading ``vMAJOR.MINOR`` of git_version over all components, so our own version stands behind a plus sign.
    """

    version: str = "0"
    emulates: str = "1.36.2"
    git_commit: str = ""
    build_date: str = "1970-01-01T00:00:00Z"

    def labels(self) -> dict[str, str]:
        """Return the label values, all of kube-proxy's names present."""
        major, minor = (*self.emulates.split("."), "", "")[:2]
        return {
            "build_date": self.build_date,
            "compiler": platform.python_implementation().lower(),
            "git_commit": self.git_commit,
            "git_tree_state": "",
            "git_version": f"v{self.emulates}+pykubeproxy.{self.version}",
            "go_version": f"python{platform.python_version()}",
            "major": major,
            "minor": minor,
            "platform": f"{platform.system().lower()}/{_go_architecture(platform.machine())}",
        }


def _go_architecture(machine: str) -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


class AbsoluteCounter(Collector):
    """A counter whose total is kept elsewhere (an nfacct object in the kernel) and is copied or read here.

    The total may come from a function that is called at each scrape; None from it leaves the last one standing.
    """

    def __init__(self, name: str, documentation: str, registry: CollectorRegistry) -> None:
        self._name = name
        self._documentation = documentation
        self._lock = threading.Lock()
        self._total = 0.0
        self._read: Callable[[], float | None] | None = None
        registry.register(self)

    def set_total(self, total: float) -> None:
        """Take over the total."""
        with self._lock:
            self._total = total

    def set_function(self, read: Callable[[], float | None]) -> None:
        """Read the total at each scrape."""
        with self._lock:
            self._read = read

    def describe(self) -> Iterable[Metric]:
        """Name the family without reading anything."""
        return [CounterMetricFamily(self._name, self._documentation)]

    def collect(self) -> Iterable[Metric]:
        """Yield the one sample."""
        with self._lock:
            read = self._read
        total = read() if read is not None else None
        with self._lock:
            if total is not None:
                self._total = total
            return [CounterMetricFamily(self._name, self._documentation, value=self._total)]


class ReadCounters(Collector):
    """A counter with one label whose totals are kept elsewhere, and read at each scrape."""

    def __init__(self, name: str, documentation: str, label: str, registry: CollectorRegistry) -> None:
        self._name = name
        self._documentation = documentation
        self._label = label
        self._reads: dict[str, Callable[[], float]] = {}
        registry.register(self)

    def set_function(self, value: str, read: Callable[[], float]) -> None:
        """Read the total of the series with this value of the label; to be said before anything is scraped."""
        self._reads[value] = read

    def describe(self) -> Iterable[Metric]:
        """Name the family without reading anything."""
        return [CounterMetricFamily(self._name, self._documentation, labels=[self._label])]

    def collect(self) -> Iterable[Metric]:
        """Yield a sample for each value of the label."""
        family = CounterMetricFamily(self._name, self._documentation, labels=[self._label])
        for value, read in self._reads.items():
            family.add_metric([value], read())
        return [family]


class _BuildInfoCollector(Collector):
    def __init__(self, info: BuildInfo) -> None:
        labels = info.labels()
        family = GaugeMetricFamily(
            "kubernetes_build_info", "Version, and the Kubernetes version that is followed.", labels=list(labels)
        )
        family.add_metric(list(labels.values()), 1)
        self._families = [family]

    def describe(self) -> Iterable[Metric]:
        return self._families

    def collect(self) -> Iterable[Metric]:
        return self._families


@dataclass(frozen=True, slots=True)
class _Make:
    """Shorthand that gives every metric its prefix and registry."""

    registry: CollectorRegistry
    prefix: str

    def counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(self.prefix + name, documentation, labels, registry=self.registry)

    def gauge(self, name: str, documentation: str, *labels: str) -> Gauge:
        return Gauge(self.prefix + name, documentation, labels, registry=self.registry)

    def histogram(
        self, name: str, documentation: str, *labels: str, buckets: Sequence[float] = SYNC_BUCKETS
    ) -> Histogram:
        return Histogram(self.prefix + name, documentation, labels, registry=self.registry, buckets=buckets)

    def read(self, name: str, documentation: str, label: str) -> ReadCounters:
        return ReadCounters(self.prefix + name, documentation, label, self.registry)

    def absolute(self, name: str, documentation: str) -> AbsoluteCounter:
        return AbsoluteCounter(self.prefix + name, documentation, self.registry)


class Metrics:
    """All metrics, one attribute each, named like the series without its prefix.

    Use labels by keyword: ``metrics.chains_written_total.labels(ip_family="IPv4", table="nat").inc(3)``. ``ip_family``
    is always "IPv4" or "IPv6". Series are made at 0 where the real kube-proxy shows them after its first sync, and for
    every failure counter, because an increase from "absent" to 1 is invisible to ``increase()``. Timestamps are not: a
    0 there would be an age of fifty years.

    Threads: every object here may be used from any thread.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        families: Sequence[str] = IP_FAMILIES,
        build: BuildInfo | None = None,
        with_process: bool = True,
    ) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        """Where further collectors (connection metrics) may be registered; they appear in the same exposition."""
        self.families = tuple(families)
        self._define_kube_proxy(_Make(self.registry, "kubeproxy_"))
        self._define_own(_Make(self.registry, "pykubeproxy_"))
        self.rest_client_requests_total = Counter(
            "rest_client_requests_total",
            "Requests to the API server, by answer.",
            ["code", "method", "host"],
            registry=self.registry,
        )
        """labels code ("<error>" when there was no answer), method, host ("10.0.0.1:6443")"""
        self.registry.register(_BuildInfoCollector(build or BuildInfo()))
        if with_process:
            ProcessCollector(registry=self.registry)
        self._make_series()

    def _define_kube_proxy(self, make: _Make) -> None:
        self.sync_proxy_rules_duration_seconds = make.histogram(
            "sync_proxy_rules_duration_seconds", "Time of one sync, full or partial.", "ip_family"
        )
        self.sync_full_proxy_rules_duration_seconds = make.histogram(
            "sync_full_proxy_rules_duration_seconds", "Time of one sync that verified every chain.", "ip_family"
        )
        self.sync_partial_proxy_rules_duration_seconds = make.histogram(
            "sync_partial_proxy_rules_duration_seconds", "Time of one sync of the changed services only.", "ip_family"
        )
        self.conntrack_reconciler_sync_duration_seconds = make.histogram(
            "conntrack_reconciler_sync_duration_seconds", "Time of one look through the conntrack table.", "ip_family"
        )
        self.conntrack_reconciler_deleted_entries_total = make.counter(
            "conntrack_reconciler_deleted_entries_total", "Stale conntrack entries deleted.", "ip_family"
        )
        self.network_programming_duration_seconds = make.histogram(
            "network_programming_duration_seconds",
            "Time from a change of endpoints (as stamped on the EndpointSlice) until the rules stood.",
            "ip_family",
            buckets=NETWORK_PROGRAMMING_BUCKETS,
        )
        self.sync_proxy_rules_last_timestamp_seconds = make.gauge(
            "sync_proxy_rules_last_timestamp_seconds", "When the rules were last synced.", "ip_family"
        )
        self.sync_proxy_rules_last_queued_timestamp_seconds = make.gauge(
            "sync_proxy_rules_last_queued_timestamp_seconds", "When a sync was last asked for.", "ip_family"
        )
        self.sync_proxy_rules_endpoint_changes_pending = make.gauge(
            "sync_proxy_rules_endpoint_changes_pending", "EndpointSlice changes not in the rules yet."
        )
        self.sync_proxy_rules_service_changes_pending = make.gauge(
            "sync_proxy_rules_service_changes_pending", "Service changes not in the rules yet."
        )
        self.sync_proxy_rules_endpoint_changes_total = make.counter(
            "sync_proxy_rules_endpoint_changes_total", "EndpointSlice changes seen."
        )
        self.sync_proxy_rules_service_changes_total = make.counter(
            "sync_proxy_rules_service_changes_total", "Service changes seen."
        )
        self.sync_proxy_rules_iptables_total = make.gauge(
            "sync_proxy_rules_iptables_total", "Rules that this daemon keeps.", "table", "ip_family"
        )
        self.sync_proxy_rules_iptables_last = make.gauge(
            "sync_proxy_rules_iptables_last", "Rules written by the last sync.", "table", "ip_family"
        )
        self.sync_proxy_rules_no_local_endpoints_total = make.gauge(
            "sync_proxy_rules_no_local_endpoints_total",
            "Service ports with traffic policy Local and no endpoint on this node.",
            "traffic_policy",
            "ip_family",
        )
        self.sync_proxy_rules_iptables_restore_failures_total = make.counter(
            "sync_proxy_rules_iptables_restore_failures_total", "Failed iptables-restore runs.", "ip_family"
        )
        self.sync_proxy_rules_iptables_partial_restore_failures_total = make.counter(
            "sync_proxy_rules_iptables_partial_restore_failures_total",
            "Failed iptables-restore runs of syncs of the changed services only.",
            "ip_family",
        )
        self.proxy_healthz_total = make.counter("proxy_healthz_total", "Answers of /healthz.", "code")
        self.proxy_livez_total = make.counter("proxy_livez_total", "Answers of /livez.", "code")
        self.iptables_ct_state_invalid_dropped_packets_total = make.absolute(
            "iptables_ct_state_invalid_dropped_packets_total", "Packets dropped because conntrack calls them invalid."
        )
        self.iptables_localhost_nodeports_accepted_packets_total = make.absolute(
            "iptables_localhost_nodeports_accepted_packets_total",
            "Packets accepted on a node port of a loopback address.",
        )

    def _define_own(self, make: _Make) -> None:
        self.restores_total = make.counter("restores_total", "iptables-restore runs.", "ip_family", "result")
        """result: one of RESTORE_RESULTS"""
        self.restore_duration_seconds = make.histogram(
            "restore_duration_seconds", "Time of one iptables-restore run.", "ip_family", buckets=RESTORE_BUCKETS
        )
        self.restore_bytes_total = make.counter(
            "restore_bytes_total", "Bytes of input given to iptables-restore.", "ip_family"
        )
        self.chains_written_total = make.counter("chains_written_total", "Chains written.", "ip_family", "table")
        self.chains_deleted_total = make.counter("chains_deleted_total", "Chains deleted.", "ip_family", "table")
        self.lock_waits_total = make.counter(
            "lock_waits_total", "Runs that found the xtables lock held by another program.", "ip_family"
        )
        self.drift_detected_total = make.counter(
            "drift_detected_total", "Chains found changed by somebody else.", "table", "ip_family"
        )
        self.drift_healed_total = make.counter(
            "drift_healed_total", "Chains put back after somebody else had changed them.", "table", "ip_family"
        )
        self.drift_fights_total = make.counter(
            "drift_fights_total",
            "Chains that another program changes again each time they are put back: healing them is spaced.",
            "table",
            "ip_family",
        )
        self.quarantined_services = make.gauge(
            "quarantined_services", "Services left out because the kernel refused their rules.", "ip_family"
        )
        self.unequal_rules_total = make.counter(
            "unequal_rules_total", "Rules that the kernel prints otherwise than they were written.", "ip_family"
        )
        self.watch_age_seconds = make.gauge(
            "watch_age_seconds", "Time since the API server was last known to serve this watch.", "resource"
        )
        self.last_event_age_seconds = make.gauge(
            "last_event_age_seconds", "Time since the last event (bookmarks included) of this watch.", "resource"
        )
        self.watch_failures = make.gauge("watch_failures", "Failures in a row of this watch.", "resource")
        self.relists_total = make.read("relists_total", "Complete lists asked for.", "resource")
        self.bad_objects_total = make.read(
            "bad_objects_total", "Objects left out, whole or in part, because they make no sense.", "resource"
        )
        self.oldest_unapplied_change_seconds = make.gauge(
            "oldest_unapplied_change_seconds",
            "Age of the oldest change that the rules do not show; 0: none.",
            "ip_family",
        )
        self.source_ranges_open = make.gauge(
            "source_ranges_open",
            "Service ports whose load balancer address is open because all source ranges are of the other family.",
            "ip_family",
        )
        self.config_reload_failures_total = make.counter(
            "config_reload_failures_total", "New configurations that were refused; the old one stays in force."
        )
        self.service_dispatch_tree = make.gauge(
            "service_dispatch_tree", "1 if KUBE-SERVICES and KUBE-NODEPORTS are trees, 0 if they are flat.", "ip_family"
        )
        self.xt_recent_list_size = make.gauge(
            "xt_recent_list_size",
            "Clients that the kernel remembers per session affinity list (ip_list_tot); 0: unknown.",
        )

    def _make_series(self) -> None:
        for family in self.families:
            for per_family in (
                self.sync_proxy_rules_duration_seconds,
                self.sync_full_proxy_rules_duration_seconds,
                self.sync_proxy_rules_iptables_restore_failures_total,
                self.sync_proxy_rules_iptables_partial_restore_failures_total,
                self.restore_duration_seconds,
                self.restore_bytes_total,
                self.lock_waits_total,
                self.quarantined_services,
                self.unequal_rules_total,
                self.oldest_unapplied_change_seconds,
                self.source_ranges_open,
                self.service_dispatch_tree,
            ):
                per_family.labels(ip_family=family)
            for result in RESTORE_RESULTS:
                self.restores_total.labels(ip_family=family, result=result)
            for policy in ("external", "internal"):
                self.sync_proxy_rules_no_local_endpoints_total.labels(ip_family=family, traffic_policy=policy)
            for table in TABLES:
                for per_table in (
                    self.sync_proxy_rules_iptables_total,
                    self.sync_proxy_rules_iptables_last,
                    self.chains_written_total,
                    self.chains_deleted_total,
                    self.drift_detected_total,
                    self.drift_healed_total,
                    self.drift_fights_total,
                ):
                    per_table.labels(ip_family=family, table=table)

    def exposition(self) -> bytes:
        """Return the text of /metrics."""
        return exposition(self.registry)


class _Collects(Protocol):
    def collect(self) -> Iterable[Metric]: ...


def exposition(registry: _Collects) -> bytes:
    """Write all series of a registry in the classic text format (version 0.0.4), families in order of name.

    A collector that fails costs its own series and no others, and is logged.
    """
    blocks: list[tuple[str, str]] = []
    for family in _families(registry):
        lines: list[str] = []
        kind = {"unknown": "untyped", "info": "gauge", "stateset": "gauge"}.get(family.type, family.type)
        name = family.name
        if family.type in ("counter", "info"):
            name += "_total" if family.type == "counter" else "_info"
        created = family.name + "_created"
        bucket = family.name + "_bucket"
        for sample in family.samples:
            if sample.name == created:
                continue
            if sample.labels:
                labels = ",".join(
                    [
                        f'{key}="{_le(value) if key == "le" and sample.name == bucket else _escape(value)}"'
                        for key, value in sorted(sample.labels.items())
                    ]
                )
                lines.append(f"{sample.name}{{{labels}}} {_number(sample.value)}\n")
            else:
                lines.append(f"{sample.name} {_number(sample.value)}\n")
        if lines:  # Go shows no head of a family without series either
            text = family.documentation.replace("\\", "\\\\").replace("\n", "\\n")
            blocks.append((name, f"# HELP {name} {text}\n# TYPE {name} {kind}\n" + "".join(lines)))
    blocks.sort(key=lambda block: block[0])
    return "".join([text for _, text in blocks]).encode()


def _families(registry: _Collects) -> Iterable[Metric]:
    # CollectorRegistry.collect() is one generator, dead after the first exception; its parts are private but stable.
    collectors = getattr(registry, "_collector_to_names", None)
    if collectors is None:
        yield from registry.collect()
        return
    for collector in list(collectors):
        try:
            families = list(collector.collect())
        except Exception:
            log.warning("metric collector failed", collector=type(collector).__name__, exc_info=True)
            continue
        yield from families


def _escape(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return value


def _le(bound: str) -> str:
    return bound.removesuffix(".0")


def _number(value: float) -> str:
    if -1e6 < value < 1e6 and value == math.floor(value):
        return str(int(value))
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]
