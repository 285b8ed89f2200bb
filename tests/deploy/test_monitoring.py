"""Alerts by promtool, both forms of them equal, and the two ways to be scraped."""

import re
import shutil
import subprocess

import pytest
import yaml

from pykubeproxy.serving.metrics import Metrics
from tests.support.node import ROOT

FOLDER = ROOT / "deploy/monitoring"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (apt-get install prometheus)")


def read(name):
    return yaml.safe_load((FOLDER / name).read_text())


def promtool(*arguments):
    return subprocess.run([PROMTOOL, *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)


def alerts():
    (group,) = read("alerts.yaml")["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@needs_promtool
def test_the_rules_are_sound():
    done = promtool("check", "rules", "alerts.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_each_alert_fires_when_it_should_and_is_quiet_when_it_should_be():
    done = promtool("test", "rules", "alerts_test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_both_tests():
    firing, quiet = set(), set()
    for test in read("alerts_test.yaml")["tests"]:
        for case in test["alert_rule_test"]:
            (firing if case["exp_alerts"] else quiet).add(case["alertname"])
    assert firing == quiet == alerts().keys()


def test_the_operators_form_holds_the_same():
    rule = read("prometheusrule.yaml")
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert rule["spec"] == read("alerts.yaml")


def test_every_metric_that_an_alert_names_exists():
    known = {line.split()[2] for line in Metrics().exposition().decode().splitlines() if line.startswith("# TYPE")}
    made = Metrics()
    known |= {metric.name + ("_total" if metric.type == "counter" else "") for metric in made.registry.collect()}
    for name, rule in alerts().items():
        for metric in re.findall(r"\b(?:py)?kubeproxy_\w+", rule["expr"]):
            assert metric.removesuffix("_bucket") in known, name


def test_every_alert_says_where_what_and_how_bad():
    for name, rule in alerts().items():
        assert name.startswith("Pykubeproxy")
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"].endswith(".")
        assert "{{ $labels.instance }}" in rule["annotations"]["description"]


def test_the_troubleshooting_page_knows_every_alert():
    text = (ROOT / "docs/metrics.md").read_text()
    assert [name for name in alerts() if name not in text] == []


def test_the_pod_monitor_asks_the_port_that_the_pods_name():
    monitor = read("podmonitor.yaml")
    assert (monitor["apiVersion"], monitor["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor")
    daemonset = yaml.safe_load((ROOT / "deploy/base/daemonset.yaml").read_text())
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in [port["name"] for port in container["ports"]]
    labels = daemonset["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert {"targetLabel": "job", "replacement": "kube-proxy"} in endpoint["relabelings"]


META = "__meta_kubernetes_pod_"
OURS = {f"{META}label_app_kubernetes_io_name": "pykubeproxy", f"{META}host_ip": "10.0.0.11", f"{META}node_name": "n1"}

THEIRS = {f"{META}label_k8s_app": "kube-proxy", f"{META}host_ip": "10.0.0.12", f"{META}node_name": "n2"}


@pytest.mark.parametrize(
    ("labels", "address"),
    [
        ({**OURS, f"{META}container_port_name": "metrics"}, "10.0.0.11:10249"),
        ({**OURS, f"{META}container_port_name": "metrics", f"{META}host_ip": "fd00::11"}, "[fd00::11]:10249"),
        ({**OURS, f"{META}container_port_name": "healthz"}, None),
        ({**OURS, f"{META}container_init": "true"}, None),
        (THEIRS, "10.0.0.12:10249"),
        ({**THEIRS, f"{META}label_k8s_app": "kube-dns"}, None),
    ],
)
def test_the_plain_scrape_configuration_finds_each_daemon_once(labels, address):
    (job,) = read("scrape-config.yaml")["scrape_configs"]
    assert job["job_name"] == "kube-proxy"
    found = relabel(labels, job["relabel_configs"])
    assert (found or {}).get("__address__") == address
    if found:
        assert found["instance"] == labels[f"{META}node_name"]


def relabel(labels, rules):
    """Do what Prometheus does with relabel_configs (replace, keep, drop)."""
    labels = dict(labels)
    for rule in rules:
        value = rule.get("separator", ";").join(labels.get(name, "") for name in rule.get("source_labels", ()))
        match = re.fullmatch(str(rule.get("regex", "(.*)")), value)
        action = rule.get("action", "replace")
        if (action == "keep" and not match) or (action == "drop" and match):
            return None
        if action == "replace" and match:
            labels[rule["target_label"]] = match.expand(re.sub(r"\$(\d)", r"\\\1", rule.get("replacement", "$1")))
    return labels
