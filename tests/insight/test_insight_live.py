"""The commands on a node: counters equal the connections made, differences are found, native rules are seen."""

import json
import re
import shutil

import pytest
from insight_demo import ALL, ask, check, gather, load_rules

from e2e.netlab import Lab

pytestmark = [pytest.mark.netns, pytest.mark.slow]


@pytest.fixture(scope="module", params=["nft", "legacy"])
def node(request, tmp_path_factory):
    manifests = gather(tmp_path_factory.mktemp("manifests"), *ALL, "04-affinity")
    with Lab(backend=request.param) as lab:
        lab.add_pod("nginx-1", "10.244.2.13")
        lab.add_pod("nginx-2", "10.244.2.14")
        lab.add_pod("curl", "10.244.2.50", http=[])
        lab.remote.listen("http", ["10.244.9.9"], [80])
        load_rules(lab, manifests)
        yield lab, manifests


def explained(node, name):
    lab, manifests = node
    found = json.loads(ask(lab, "explain", name, "-o", "json", manifests=manifests).stdout)
    return found[0]


def test_nothing_differs_after_the_rules_are_loaded(node):
    lab, manifests = node
    done = ask(lab, "diff", manifests=manifests, check=False)
    assert (done.status, done.stdout) == (0, "")
    assert explained(node, "shop")["kernel"] == "agrees"
    assert "the kernel holds the rules that it should" in ask(lab, "explain", "shop", manifests=manifests).stdout


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("live-explain", ("explain", "nginx-svc")),
        ("live-trace-outside", ("trace", "--live", "--from", "192.168.77.2", "--to", "192.168.77.1:30080")),
        ("live-trace-node", ("trace", "--live", "--from", "node", "--to", "192.168.77.1:30090/udp")),
        ("live-trace-ipv6", ("trace", "--live", "--from", "fd00:77::2", "--to", "[fd00:77::1]:30066")),
    ],
)
def test_the_output_on_a_quiet_node_is_the_recorded_one(node, name, arguments):
    lab, manifests = node
    text = ask(lab, *arguments, manifests=manifests).stdout
    check(name, re.sub(r"iptables-\w+ [\d.]+", "iptables", text))


def test_counters_equal_the_connections_made(node):
    lab, _ = node

    def counts():
        (port,) = explained(node, "shop")["ports"]
        return (
            [one["connections"] for one in port["addresses"]],
            {one["target"]: one["connections"] for one in port["spreads"][0]["endpoints"]},
        )

    before, _ = counts()
    inside = lab.pods["curl"].http("10.101.0.7", 80, n=12)
    outside = lab.client.http("192.168.77.1", 30080, n=30)
    addresses, endpoints = counts()
    assert [now - then for now, then in zip(addresses, before, strict=True)] == [12, 30]
    pods = inside.pods + outside.pods
    assert endpoints["10.244.2.13:80"] == pods["nginx-1"]
    assert endpoints["10.244.2.14:80"] == pods["nginx-2"]
    assert sum(endpoints.values()) == 42


def test_affinity_is_seen_filling_up_and_foretold(node):
    lab, manifests = node
    (target,) = {answer.pod for answer in lab.pods["curl"].http("10.101.245.66", 80, n=3).answers}
    (port,) = explained(node, "nginx-svc")["ports"]
    endpoints = port["spreads"][0]["endpoints"]
    assert sorted(one["clients"] for one in endpoints) == [0, 0, 1]
    assert port["affinityLimit"] == 100
    remembered = next(one["target"] for one in endpoints if one["clients"])
    trace = json.loads(
        ask(
            lab,
            "trace",
            "--live",
            "--from",
            "10.244.2.50",
            "--to",
            "10.101.245.66:80",
            "-o",
            "json",
            manifests=manifests,
        ).stdout
    )
    assert [(one["target"], one["probability"]) for one in trace["outcomes"]] == [(remembered, 1.0)]
    assert trace["affinity"]["seconds"] == 10800
    assert [one["endpoint"] for one in trace["affinity"]["remembered"]] == [remembered]
    if target.startswith("nginx"):
        assert lab.pods[target].ip == remembered.partition(":")[0]


def test_an_edited_chain_is_found_and_named(node):
    lab, manifests = node
    (port,) = explained(node, "shop")["ports"]
    chain = port["spreads"][0]["chain"]
    lab.iptables("-t", "nat", "-D", chain, "4")
    lab.iptables("-t", "nat", "-D", "PREROUTING", "1")
    try:
        done = ask(lab, "diff", manifests=manifests, check=False)
        assert done.status == 1
        assert f"--- kernel IPv4: nat {chain} (default/shop)" in done.stdout
        assert '+-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES' in done.stdout
        assert done.stderr == "pykubeproxy: 2 chains differ: default/shop\n"
        found = explained(node, "shop")
        assert found["differences"] == ["nat PREROUTING lacks the jump to KUBE-SERVICES"]
        assert found["ports"][0]["differences"] == [f"nat {chain} holds other rules"]
        gone = [one["target"] for one in found["ports"][0]["spreads"][0]["endpoints"] if not one["inKernel"]]
        assert gone == ["10.244.9.9:80"]
    finally:
        load_rules(lab, manifests)
        lab.iptables("-t", "nat", "-D", "OUTPUT", "1")
        lab.iptables("-t", "nat", "-D", "POSTROUTING", "1")


def test_a_difference_that_may_come_of_a_file_that_cannot_be_read_is_noted(node, tmp_path):
    lab, manifests = node
    copy = shutil.copytree(manifests, tmp_path / "manifests")
    broken = min(path for path in copy.iterdir() if "kind: EndpointSlice" in path.read_text())
    broken.write_text("{")
    done = ask(lab, "diff", manifests=copy, check=False)
    assert done.status == 1
    assert f"pykubeproxy: {broken}:" in done.stderr
    assert "a running daemon keeps what it has read of it before, or what stands: chains may differ" in done.stderr


def test_rules_in_the_other_backend_are_walked_too(node):
    lab, _ = node
    other = {"nft": "legacy", "legacy": "nft"}[lab.backend]
    lab.iptables("-A", "FORWARD", "-p", "tcp", "-m", "tcp", "--dport", "8099", "-j", "DROP", backend=other)
    (dropped,) = traced(node, "10.244.2.13:8099")
    assert (dropped["verdict"], dropped["path"][-1]["table"]) == ("DROP", f"{other} filter")


def native(lab, *rule):
    if lab.backend != "nft":
        pytest.skip("legacy tables hold no native rules")
    lab.node.run(["nft", "insert", "rule", "ip", *rule])


def traced(node, to):
    lab, manifests = node
    done = ask(lab, "trace", "--live", "--from", "192.168.77.2", "--to", to, "-o", "json", manifests=manifests)
    return json.loads(done.stdout)["outcomes"]


def drops_only_8082(node):
    assert {one["verdict"] for one in traced(node, "192.168.77.1:30080")} == {"DNAT"}
    (dropped,) = traced(node, "10.244.2.13:8082")
    last = dropped["path"][-1]
    assert (dropped["verdict"], last["text"], last["program"]) == ("DROP", "tcp dport @watched drop", "another program")
    assert {one["verdict"] for one in traced(node, "10.244.2.13:8084")} == {"ACCEPT"}


def test_a_native_rule_that_iptables_prints_wrongly_is_told_by_nft(node):
    lab, _ = node
    if lab.backend == "nft":
        lab.node.run(
            ["nft", "add", "set", "ip", "filter", "watched", "{ type inet_service; elements = { 8082, 8083 }; }"]
        )
    native(lab, "filter", "FORWARD", "tcp dport @watched drop")
    assert "-A FORWARD -p tcp -j DROP" in lab.node.run(["iptables-nft-save", "-t", "filter"]).stdout
    drops_only_8082(node)


def test_a_table_that_iptables_cannot_print_is_walked_all_the_same(node):
    lab, _ = node
    native(lab, "filter", "FORWARD", "ct state invalid log")
    native(lab, "nat", "PREROUTING", "fib daddr type multicast accept")
    for table in ("filter", "nat"):
        assert "incompatible" in lab.node.run(["iptables-nft-save", "-t", table]).stdout
    drops_only_8082(node)


def test_a_base_chain_that_somebody_added_to_a_table_of_iptables_is_walked(node):
    lab, _ = node
    if lab.backend != "nft":
        pytest.skip("legacy tables hold no native rules")
    lab.node.run(["nft", "add", "chain", "ip", "filter", "foreign", "{ type filter hook forward priority 10; }"])
    try:
        lab.node.run(["nft", "add", "rule", "ip", "filter", "foreign", "tcp dport 8086 counter drop"])
        assert "foreign" not in lab.node.run(["iptables-nft-save", "-t", "filter"]).stdout
        (dropped,) = traced(node, "10.244.2.13:8086")
        last = dropped["path"][-1]
        assert (dropped["verdict"], last["table"], last["chain"]) == ("DROP", "filter", "foreign")
        assert {one["verdict"] for one in traced(node, "10.244.2.13:8084")} == {"ACCEPT"}
    finally:
        lab.node.run(["nft", "delete", "chain", "ip", "filter", "foreign"])
