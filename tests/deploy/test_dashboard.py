"""Every query of the dashboard returns data from a real Prometheus that scrapes a real daemon."""

import contextlib
import json
import math
import shutil
import subprocess
import time
import urllib.parse
from collections import Counter

import pytest

from tests.support.node import ROOT, cluster, endpoint_slice, eventually, node, pod

DASHBOARD = json.loads((ROOT / "deploy/monitoring/dashboard.json").read_text())
PANELS = DASHBOARD["panels"]
PROMETHEUS = shutil.which("prometheus")
CONFIG = """
global: {scrape_interval: 500ms, evaluation_interval: 1s}
rule_files: [RULES]
scrape_configs:
- job_name: kube-proxy
  static_configs: [{targets: ["127.0.0.1:10249"]}]
"""


def queries():
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*")


@contextlib.contextmanager
def prometheus(it):
    config = it.folder / "prometheus.yml"
    config.write_text(CONFIG.replace("RULES", str(ROOT / "deploy/monitoring/alerts.yaml")))
    argv = ["ip", "netns", "exec", it.name, PROMETHEUS, f"--config.file={config}"]
    argv += [f"--storage.tsdb.path={it.folder}/data", "--web.listen-address=127.0.0.1:9090"]
    with (it.folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.netns
@pytest.mark.slow
@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed (apt-get install prometheus)")
def test_every_query_returns_data_and_the_alerts_load():
    with node("nft") as it:
        it.api.bulk_put(cluster(20))
        it.start("--iptables-sync-period", "3s")
        it.wait_ready()

        def ask(path, **parameters):
            status, body = it.get(9090, f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
            return json.loads(body)["data"] if status == 200 else {}

        with prometheus(it):
            eventually(lambda: ask("query", query='up{job="kube-proxy"}').get("result"), "the first scrape")
            _change_endpoints(it, 3)
            # A series that appears with its first value shows no increase: the second change is what is seen.
            seen = "kubeproxy_network_programming_duration_seconds_count"
            eventually(lambda: ask("query", query=seen).get("result"), "the first change in Prometheus")
            _change_endpoints(it, 4)

            def empty():
                """Name the panels that show nothing, or nothing but NaN (a histogram without observations)."""
                return [title for title, query in queries() if not _numbers(ask("query", query=query))]

            with contextlib.suppress(AssertionError):
                eventually(lambda: not empty(), "data for all", interval=0.5)
            assert empty() == []
            rules = ask("rules")["groups"][0]["rules"]
            assert Counter(rule["health"] for rule in rules) == {"ok": len(rules)}
            assert {rule["name"]: rule["state"] for rule in rules if rule["state"] == "firing"} == {}


def _numbers(data):
    values = [float(series["value"][1]) for series in data.get("result", ())]
    return [value for value in values if math.isfinite(value)]


def _change_endpoints(it, count):
    """Change endpoints as the endpoint controller would, with the time of the change in an annotation."""
    for number in range(3):
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        changed = endpoint_slice(number, [pod(number, i) for i in range(count)])
        changed["metadata"]["annotations"] = {"endpoints.kubernetes.io/last-change-trigger-time": now}
        it.api.put(changed)
    measured = 'kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"}'
    eventually(lambda: it.metric(measured) > 0, "the change in the rules")


def test_it_has_the_panels_that_people_look_for():
    titles = " | ".join(panel["title"] for panel in PANELS)
    for wanted in (
        "Sync latency",
        "Programming latency",
        "Rules",
        "Restores",
        "Restore failures",
        "Watch age",
        "conntrack",
    ):
        assert wanted in titles


def test_panels_have_a_place_and_no_two_the_same():
    taken = Counter(
        (x, y)
        for panel in PANELS
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    )
    assert max(taken.values()) == 1
    assert max(x for x, _ in taken) < 24
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_it_names_no_data_source_of_ours():
    for panel in PANELS:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "instance"]
