"""What explain, trace and diff print for the demo's cluster, word for word, off a terminal and 80 columns wide.

PYKUBEPROXY_UPDATE_GOLDEN=1 writes the files anew; read the change before you commit it.
"""

import pytest
from insight_demo import ALL, FLAGS, check, gather, run, run_as_given

EXPLAIN = ("explain", "--no-live")

CASES = {
    # name of the file: (folders of the demo, arguments, exit status)
    "explain-one-pod": (("00-cluster",), (*EXPLAIN, "nginx-svc"), 0),
    "explain-three-pods": (("00-cluster", "03-three-pods"), (*EXPLAIN, "nginx-svc"), 0),
    "explain-dns": (("00-cluster",), (*EXPLAIN, "kube-system/kube-dns"), 0),
    "explain-one-port": (("00-cluster",), (*EXPLAIN, "kube-system/kube-dns:dns"), 0),
    "explain-affinity": (("00-cluster", "03-three-pods", "04-affinity"), (*EXPLAIN, "nginx-svc"), 0),
    "explain-node-port": (ALL, (*EXPLAIN, "shop"), 0),
    "explain-node-port-local": ((*ALL, "07-node-port-local"), (*EXPLAIN, "shop"), 0),
    "explain-no-endpoints": (ALL, (*EXPLAIN, "orphan"), 0),
    "explain-first-endpoint": ((*ALL, "09-first-endpoint"), (*EXPLAIN, "orphan"), 0),
    "explain-ipv6": (ALL, (*EXPLAIN, "nginx-six"), 0),
    "explain-yaml": (ALL, (*EXPLAIN, "shop", "-o", "yaml"), 0),
    "explain-json": (("00-cluster",), (*EXPLAIN, "nginx-svc", "-o", "json"), 0),
    "explain-mermaid": ((*ALL, "07-node-port-local"), (*EXPLAIN, "shop", "--graph", "mermaid"), 0),
    "explain-dot": ((*ALL, "07-node-port-local"), (*EXPLAIN, "shop", "--graph", "dot"), 0),
    "explain-no-endpoints-mermaid": (ALL, (*EXPLAIN, "orphan:web", "--graph", "mermaid"), 0),
    "trace-outside-to-cluster-ip": (("00-cluster",), ("trace", "--to", "10.101.245.66:80"), 0),
    "trace-outside-to-node-port": (ALL, ("trace", "--from", "192.168.77.2", "--to", "192.168.77.1:30080"), 0),
    "trace-pod-to-itself-perhaps": (ALL, ("trace", "--from", "10.244.2.13", "--to", "shop:80"), 0),
    "trace-pod-with-affinity": (
        ("00-cluster", "03-three-pods", "04-affinity"),
        ("trace", "--from", "10.244.2.50", "--to", "nginx-svc:80"),
        0,
    ),
    "trace-node-to-cluster-ip": (ALL, ("trace", "--from", "node", "--to", "10.101.0.7:80"), 0),
    "trace-node-to-nobody": (ALL, ("trace", "--from", "node", "--to", "192.168.77.1:30090/udp"), 0),
    "trace-outside-local-policy": (
        (*ALL, "07-node-port-local"),
        ("trace", "--from", "192.168.77.2", "--to", "192.168.77.1:30080"),
        0,
    ),
    "trace-ipv6": (ALL, ("trace", "--from", "outside", "--to", "[fd00:77::1]:30066"), 0),
    "trace-no-service": (ALL, ("trace", "--from", "10.244.2.13", "--to", "8.8.8.8:53/udp"), 0),
    "trace-json": (("00-cluster",), ("trace", "--to", "10.101.245.66:80", "-o", "json"), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_the_output_is_the_recorded_one(name, tmp_path):
    folders, arguments, status = CASES[name]
    done = run(*arguments, manifests=gather(tmp_path / "manifests", *folders))
    assert (done.returncode, done.stderr) == (status, "")
    check(name, done.stdout)


DIFFS = {
    "diff-three-pods": (("00-cluster",), ("00-cluster", "03-three-pods")),
    "diff-affinity": (("00-cluster", "03-three-pods"), ("00-cluster", "03-three-pods", "04-affinity")),
    "diff-local-policy": (
        ("00-cluster", "03-three-pods", "07-node-port"),
        ("00-cluster", "07-node-port", "07-node-port-local"),
    ),
    "diff-first-endpoint": (ALL, (*ALL, "09-first-endpoint")),
}


@pytest.mark.parametrize("name", DIFFS)
def test_the_difference_of_two_manifests_is_the_recorded_one(name, tmp_path, monkeypatch):
    old, new = DIFFS[name]
    gather(tmp_path / "old", *old)
    gather(tmp_path / "new", *new)
    done = run_as_given("diff", str(tmp_path / "old"), str(tmp_path / "new"), *FLAGS)
    assert done.returncode == 1
    check(name, done.stdout.replace(str(tmp_path) + "/", "") + done.stderr)


@pytest.mark.parametrize("name", DIFFS)
def test_a_folder_equals_its_own_dry_run(name, tmp_path):
    _, folders = DIFFS[name]
    manifests = gather(tmp_path / "new", *folders)
    printed = run("--dry-run", manifests=manifests)
    (tmp_path / "rules.txt").write_text(printed.stdout)
    done = run_as_given("diff", str(manifests), str(tmp_path / "rules.txt"), *FLAGS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
