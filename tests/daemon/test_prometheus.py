"""A real Prometheus scrapes the daemon and answers a query of the sync latency."""

import json
import shutil
import subprocess
import urllib.parse

import pytest

from tests.support.node import cluster, eventually, node

pytestmark = pytest.mark.netns

CONFIG = """
global:
  scrape_interval: 1s
scrape_configs:
  - job_name: kube-proxy
    static_configs:
      - targets: ["127.0.0.1:10249"]
"""


def test_sync_latency_can_be_queried():
    program = shutil.which("prometheus")
    assert program, "Debian's package prometheus is installed by make packages"
    with node("nft") as it:
        it.api.bulk_put(cluster(20))
        it.start()
        it.wait_ready()
        config = it.folder / "prometheus.yml"
        config.write_text(CONFIG)
        argv = ["ip", "netns", "exec", it.name, program, f"--config.file={config}"]
        argv += [f"--storage.tsdb.path={it.folder}/data", "--web.listen-address=127.0.0.1:9090"]
        with (it.folder / "prometheus.log").open("wb") as log:
            prometheus = subprocess.Popen(argv, stdout=log, stderr=log)

        def ask(query):
            status, body = it.get(9090, "/api/v1/query?query=" + urllib.parse.quote(query))
            return json.loads(body)["data"]["result"] if status == 200 else []

        try:
            latency = (
                "histogram_quantile(0.99, sum by (le, ip_family) (kubeproxy_sync_proxy_rules_duration_seconds_bucket))"
            )
            found = eventually(lambda: len(answer := ask(latency)) == 2 and answer, "both families' sync latency")
            assert {row["metric"]["ip_family"] for row in found} == {"IPv4", "IPv6"}
            assert all(0 < float(row["value"][1]) < 60 for row in found)
            assert ask('up{job="kube-proxy"}')[0]["value"][1] == "1"
        finally:
            prometheus.terminate()
            prometheus.wait(30)
