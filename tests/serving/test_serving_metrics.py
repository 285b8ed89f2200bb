from __future__ import annotations

import re
import subprocess

from prometheus_client import CollectorRegistry, Counter, Gauge, Info
from serving_recordings import FOLDER, series_of

from pykubeproxy.serving.metrics import BuildInfo, Metrics, exposition


def recorded() -> dict[str, set[str]]:
    return series_of((FOLDER / "10249-metrics.txt").read_text())


def after_first_sync(metrics: Metrics) -> Metrics:
    """Report what both engines report by the end of their first sync."""
    for family in ("IPv4", "IPv6"):
        metrics.sync_proxy_rules_last_timestamp_seconds.labels(ip_family=family).set(1796043178.5)
        metrics.sync_proxy_rules_last_queued_timestamp_seconds.labels(ip_family=family).set(1796043177.25)
    metrics.proxy_livez_total.labels(code="200").inc()
    return metrics


def test_after_the_first_sync_every_recorded_series_is_there_with_the_same_type_and_labels():
    ours = series_of(after_first_sync(Metrics(CollectorRegistry())).exposition().decode())
    missing = {
        family: series - ours.get(family, set())
        for family, series in recorded().items()
        if family.startswith(("kubeproxy_", "process_"))
    }
    assert {family: series for family, series in missing.items() if series} == {}
    assert set(missing) <= set(ours)


def test_every_series_named_in_the_reference_exists_with_its_type():
    metrics = Metrics(CollectorRegistry())
    for per_family in (
        metrics.sync_partial_proxy_rules_duration_seconds,
        metrics.conntrack_reconciler_sync_duration_seconds,
        metrics.conntrack_reconciler_deleted_entries_total,
        metrics.network_programming_duration_seconds,
    ):
        per_family.labels(ip_family="IPv4")
    metrics.proxy_healthz_total.labels(code="503").inc()
    metrics.rest_client_requests_total.labels(code="200", method="GET", host="127.0.0.1:6443").inc()
    ours = series_of(metrics.exposition().decode())
    assert ours["rest_client_requests_total counter"] == {
        'rest_client_requests_total{code="200",host="127.0.0.1:6443",method="GET"}'
    }
    for name in (
        "kubeproxy_sync_partial_proxy_rules_duration_seconds histogram",
        "kubeproxy_conntrack_reconciler_sync_duration_seconds histogram",
        "kubeproxy_conntrack_reconciler_deleted_entries_total counter",
        "kubeproxy_network_programming_duration_seconds histogram",
        "kubeproxy_sync_proxy_rules_iptables_restore_failures_total counter",
        "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total counter",
        "kubeproxy_proxy_healthz_total counter",
        "kubernetes_build_info gauge",
    ):
        assert name in ours, name


def test_network_programming_buckets_are_those_of_the_sli():
    metrics = Metrics(CollectorRegistry())
    metrics.network_programming_duration_seconds.labels(ip_family="IPv4").observe(0.3)
    bounds = re.findall(r'network_programming_duration_seconds_bucket\{ip_family="IPv4",le="([^"]+)"', text(metrics))
    assert bounds == [
        "0.25",
        "0.5",
        *(str(s) for s in range(1, 60)),
        *(str(s) for s in range(60, 116, 5)),
        *(str(s) for s in range(120, 301, 30)),
        "+Inf",
    ]


def test_a_build_without_a_family_shows_only_the_other():
    metrics = Metrics(CollectorRegistry(), families=["IPv4"])
    assert 'ip_family="IPv4"' in text(metrics)
    assert "IPv6" not in text(metrics)


def test_timestamps_are_absent_until_they_are_known():
    assert "last_timestamp_seconds" not in text(Metrics(CollectorRegistry()))


def test_values_are_written_as_go_writes_them():
    registry = CollectorRegistry()
    gauge = Gauge("g", "help", ["v"], registry=registry)
    for value in (0, 1, -3, 0.5, 85024, 1796043176.45, 1e6, float("nan"), float("inf"), float("-inf"), 1e21):
        gauge.labels(v=str(value)).set(value)
    lines = [line.split(" ")[1] for line in exposition(registry).decode().splitlines() if line.startswith("g{")]
    assert lines == ["0", "1", "-3", "0.5", "85024", "1.79604317645e+09", "1e+06", "NaN", "+Inf", "-Inf", "1e+21"]


def test_label_values_and_help_are_escaped():
    registry = CollectorRegistry()
    Gauge("g", "a\\b\nc", ["v"], registry=registry).labels(v='q"\\\n').set(1)
    assert exposition(registry).decode() == '# HELP g a\\\\b\\nc\n# TYPE g gauge\ng{v="q\\"\\\\\\n"} 1\n'


def test_families_are_sorted_and_nothing_is_said_of_the_time_of_creation():
    registry = CollectorRegistry()
    Counter("z_total", "z", registry=registry)
    Counter("a_total", "a", registry=registry)
    Info("m", "m", registry=registry).info({"x": "y"})
    names = [line.split()[2] for line in exposition(registry).decode().splitlines() if line.startswith("# TYPE")]
    assert names == ["a_total", "m_info", "z_total"]
    assert "_created" not in exposition(registry).decode()


def test_packet_counters_are_copied_or_read_at_each_scrape():
    metrics = Metrics(CollectorRegistry())
    counter = metrics.iptables_ct_state_invalid_dropped_packets_total
    counter.set_total(7)
    assert "kubeproxy_iptables_ct_state_invalid_dropped_packets_total 7\n" in text(metrics)
    readings = iter([9.0, None])
    counter.set_function(lambda: next(readings))
    assert "dropped_packets_total 9\n" in text(metrics)
    assert "dropped_packets_total 9\n" in text(metrics)  # nothing could be read: the last total stands


def test_a_collector_that_fails_costs_only_its_own_series():
    metrics = Metrics(CollectorRegistry())

    def fail() -> float:
        raise OSError("no netlink")

    metrics.iptables_localhost_nodeports_accepted_packets_total.set_function(fail)
    metrics.watch_age_seconds.labels(resource="services").set_function(lambda: 1.5)
    assert "localhost_nodeports" not in text(metrics)
    assert 'pykubeproxy_watch_age_seconds{resource="services"} 1.5\n' in text(metrics)


def test_build_info_has_the_labels_that_the_version_skew_alert_reads():
    metrics = Metrics(CollectorRegistry(), build=BuildInfo(version="0.3.1", emulates="1.36.2"))
    line = next(line for line in text(metrics).splitlines() if line.startswith("kubernetes_build_info{"))
    names = re.findall(r'(\w+)="', line)
    (theirs,) = recorded()["kubernetes_build_info gauge"]
    assert names == re.findall(r'(\w+)="', theirs)
    assert 'git_version="v1.36.2+pykubeproxy.0.3.1",' in line
    assert 'major="1",minor="36"' in line


def test_counts_that_are_kept_elsewhere_are_read_at_each_scrape():
    metrics = Metrics(CollectorRegistry())
    counts = iter((3.0, 4.0))
    metrics.bad_objects_total.set_function("services", lambda: next(counts))
    assert 'pykubeproxy_bad_objects_total{resource="services"} 3\n' in text(metrics)
    assert 'pykubeproxy_bad_objects_total{resource="services"} 4\n' in text(metrics)


def test_two_registries_do_not_meet():
    Metrics(CollectorRegistry())
    Metrics(CollectorRegistry())


def test_promtool_reads_it_and_objects_only_to_names_that_kube_proxy_chose():
    metrics = after_first_sync(Metrics(CollectorRegistry()))
    metrics.network_programming_duration_seconds.labels(ip_family="IPv4").observe(3)
    metrics.relists_total.set_function("services", lambda: 1.0)
    result = subprocess.run(
        ["promtool", "check", "metrics"], input=metrics.exposition(), capture_output=True, check=False
    )
    complaints = [line for line in result.stderr.decode().splitlines() if not line.startswith("kubeproxy_")]
    assert complaints == []
    assert {line.split()[0] for line in result.stderr.decode().splitlines()} == {
        "kubeproxy_sync_proxy_rules_iptables_total",
        "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
    }


def text(metrics: Metrics) -> str:
    return metrics.exposition().decode()
