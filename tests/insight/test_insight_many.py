"""Services of many endpoints, read by a person: the first few in full, the others counted; all of them on request."""

import json

import pytest
from insight_demo import check, run

HEAD = """\
apiVersion: v1
kind: Node
metadata: {name: node-a}
status: {addresses: [{type: InternalIP, address: 192.168.77.1}]}
---
apiVersion: v1
kind: Service
metadata: {name: big}
spec:
  type: LoadBalancer
  clusterIP: 10.101.0.20
  externalTrafficPolicy: Cluster
  loadBalancerSourceRanges: [198.51.100.0/24, 203.0.113.0/24]
  ports: [{name: http, port: 80, nodePort: 30900}]
status: {loadBalancer: {ingress: [{ip: 192.0.2.10}]}}
"""
SLICE = """\
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: big-1, labels: {kubernetes.io/service-name: big}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
"""


def manifests(folder, count):
    """``count`` endpoints, every third on this node, every seventeenth not ready."""
    lines = [
        f"- {{addresses: [10.244.{i // 200}.{i % 200 + 1}], nodeName: node-{'a' if i % 3 == 0 else 'b'}, "
        f"conditions: {{ready: {'false' if i % 17 == 16 else 'true'}}}}}\n"
        for i in range(count)
    ]
    (folder / "big.yaml").write_text(HEAD + SLICE + "".join(lines))
    return folder


TRACE = ("trace", "--from", "10.244.0.50", "--to", "big:80")
EXPLAIN = ("explain", "--no-live", "big")


@pytest.mark.parametrize("count", [3, 100, 2000])
def test_a_trace_is_readable(count, tmp_path):
    """The sender is one of the endpoints: that one meets another fate, and is shown."""
    done = run(*TRACE, manifests=manifests(tmp_path, count))
    assert (done.returncode, done.stderr) == (0, "")
    check(f"trace-{count}-endpoints", done.stdout)


@pytest.mark.parametrize("count", [3, 100, 2000])
def test_an_explanation_is_readable(count, tmp_path):
    done = run(*EXPLAIN, manifests=manifests(tmp_path, count))
    assert (done.returncode, done.stderr) == (0, "")
    check(f"explain-{count}-endpoints", done.stdout)


def test_all_are_shown_on_request(tmp_path):
    folder = manifests(tmp_path, 100)
    for arguments in (TRACE, EXPLAIN, (*EXPLAIN, "--graph", "dot")):
        shown = run(*arguments, "--all", manifests=folder).stdout
        assert all(f"10.244.0.{i + 1}:8080" in shown for i in range(100) if i % 17 != 16)
        assert "… and" not in shown
        assert "--all" not in shown


def test_data_is_always_whole(tmp_path):
    folder = manifests(tmp_path, 100)
    (one,) = json.loads(run(*EXPLAIN, "-o", "json", manifests=folder).stdout)
    assert len(one["ports"][0]["spreads"][0]["endpoints"]) == 95
    assert len(json.loads(run(*TRACE, "-o", "json", manifests=folder).stdout)["outcomes"]) == 95


def test_a_drawing_has_as_many_endpoints_as_an_eye_takes(tmp_path):
    drawn = run(*EXPLAIN, "--graph", "mermaid", manifests=manifests(tmp_path, 2000)).stdout
    assert drawn.count("DNAT") == 12
    assert "1,871 more endpoints" in drawn
    assert '|"99.4 %"|' in drawn
