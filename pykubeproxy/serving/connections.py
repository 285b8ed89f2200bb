"""Connection metrics: the series, as one collector that asks for the sums at each scrape.

It exists apart from metrics.py because it is off by default and has as many series as the cluster has endpoints. It
must not know how connections are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

OTHER = "(other)"
"""Label value of the sum of those without a series of their own. No object can be called so."""

_PORT = ("namespace", "service", "port", "protocol", "ip_family")


@dataclass(frozen=True, slots=True)
class Counted:
    """The sums of one family."""

    family: str
    services: Sequence[tuple[str, str, str, str, int]] = ()
    """(namespace, service, port's name, protocol, connections)"""
    endpoints: Sequence[tuple[str, str, str, str, str, int]] = ()
    """The same with ``ip:port`` before the number."""
    other_services: int | None = None
    """Connections of services beyond the cap; None: there are none."""
    other_endpoints: int | None = None
    seconds: float = 0.0
    """What the last reading took."""
    age: float | None = None
    """Seconds since the last reading; None before the first."""


class ConnectionCollector(Collector):
    """Asks each family for its sums."""

    def __init__(self, sources: Sequence[Callable[[], Counted]]) -> None:
        self._sources = sources

    def describe(self) -> Iterable[Metric]:
        """Name the families without reading anything."""
        return _families()

    def collect(self) -> Iterable[Metric]:
        """Yield all series; a family that has not been read yet has none."""
        services, endpoints, seconds, age = found = _families()
        for source in self._sources:
            counted = source()
            if counted.age is None:
                continue
            family = counted.family
            seconds.add_metric([family], counted.seconds)
            age.add_metric([family], counted.age)
            for namespace, name, port, protocol, count in counted.services:
                services.add_metric([namespace, name, port, protocol, family], count)
            for namespace, name, port, protocol, target, count in counted.endpoints:
                endpoints.add_metric([namespace, name, port, protocol, family, target], count)
            if counted.other_services is not None:
                services.add_metric(["", OTHER, "", "", family], counted.other_services)
            if counted.other_endpoints is not None:
                endpoints.add_metric(["", OTHER, "", "", family, OTHER], counted.other_endpoints)
        return found


def _families() -> tuple[CounterMetricFamily, CounterMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
    return (
        CounterMetricFamily(
            "pykubeproxy_service_connections", "New connections led to an endpoint, by service port.", labels=_PORT
        ),
        CounterMetricFamily(
            "pykubeproxy_endpoint_connections",
            "New connections led to an endpoint, by endpoint.",
            labels=(*_PORT, "endpoint"),
        ),
        GaugeMetricFamily(
            "pykubeproxy_connection_counters_read_seconds",
            "What the last reading of the rules' counters took.",
            labels=("ip_family",),
        ),
        GaugeMetricFamily(
            "pykubeproxy_connection_counters_age_seconds",
            "Time since the rules' counters were last read.",
            labels=("ip_family",),
        ),
    )
