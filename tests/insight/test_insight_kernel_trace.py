"""``trace --live`` says what the kernel's own TRACE says: the same tables, chains and rules in the same order.

Where rules choose at random, the kernel's way must be one of those foretold. Native nft tables are traced as well.
"""

import contextlib
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from insight_demo import ALL, ask, gather, load_rules

from e2e.netlab import Lab, LabError, wait_for

pytestmark = [pytest.mark.netns, pytest.mark.slow]

HERE = Path(__file__).parent
LINE = re.compile(r"(\d+) (\w+):([\w-]+):(rule|return|policy):(\d+)")
FAMILIES = {"1": "inet", "2": "ip", "10": "ip6"}
IPTABLES = ("raw", "mangle", "nat", "filter")
SILENT = """
apiVersion: v1
kind: Service
metadata: {name: silent, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.101.0.11
  clusterIPs: [10.101.0.11]
  ipFamilies: [IPv4]
  externalTrafficPolicy: Local
  internalTrafficPolicy: Local
  ports: [{protocol: TCP, port: 80, nodePort: 30111}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: silent-1, namespace: default, labels: {kubernetes.io/service-name: silent}}
addressType: IPv4
ports: [{name: "", protocol: TCP, port: 80}]
endpoints: [{addresses: ["10.244.9.9"], conditions: {ready: true}, nodeName: node-b}]
"""
"""Endpoints, but none on this node."""

NATIVE = """
table inet admin {
    set watched { type inet_service; flags interval; elements = { 8090-8099 } }
    chain early {
        type filter hook input priority filter - 5; policy accept;
        iifname "lo" accept
        tcp dport @watched jump look
    }
    chain look {
        ct state established,related accept
        tcp dport vmap { 8090 : accept, 8091 : goto away }
    }
    chain away {
        counter
        reject with tcp reset
    }
}
"""

CASES = {
    # name: (who sends, --from, to, port, protocol, how it must end)
    "outside to a node port": ("client", "192.168.77.2", "192.168.77.1", 30080, "tcp", "DNAT"),
    "pod to a cluster IP, perhaps to itself": ("nginx-1", "10.244.2.13", "10.101.0.7", 80, "tcp", "DNAT"),
    "pod to a cluster IP with affinity": ("nginx-2", "10.244.2.14", "10.101.245.66", 80, "tcp", "DNAT"),
    "the same pod again": ("nginx-2", "10.244.2.14", "10.101.245.66", 80, "tcp", "DNAT"),
    "outside to a cluster IP": ("client", "192.168.77.2", "10.101.245.66", 80, "tcp", "DNAT"),
    "node to a cluster IP": ("node", "node", "10.101.245.66", 80, "tcp", "DNAT"),
    "node to 127.0.0.1": ("node", "node", "127.0.0.1", 30080, "tcp", "DNAT"),
    "pod to UDP": ("nginx-1", "10.244.2.13", "10.96.0.10", 53, "udp", "DNAT"),
    "outside to IPv6": ("client", "fd00:77::2", "fd00:77::1", 30066, "tcp", "DNAT"),
    "pod to nobody": ("nginx-1", "10.244.2.13", "10.101.0.9", 80, "tcp", "REJECT"),
    "outside to nobody": ("client", "192.168.77.2", "192.168.77.1", 30090, "tcp", "REJECT"),
    "node to nobody by UDP": ("node", "node", "192.168.77.1", 30090, "udp", "REJECT"),
    "pod to nobody here": ("nginx-1", "10.244.2.13", "10.101.0.11", 80, "tcp", "DROP"),
    "outside to nobody here": ("client", "192.168.77.2", "192.168.77.1", 30111, "tcp", "DROP"),
    "outside straight to a pod": ("client", "192.168.77.2", "10.244.2.13", 80, "tcp", "ACCEPT"),
    "outside to a process of the node": ("client", "192.168.77.2", "192.168.77.1", 8080, "tcp", "ACCEPT"),
    "what a native table counts": ("client", "192.168.77.2", "192.168.77.1", 8090, "tcp", "ACCEPT"),
    "what a native table forbids": ("client", "192.168.77.2", "192.168.77.1", 8091, "tcp", "REJECT"),
    "what a native rule among those of iptables forbids": (
        "client",
        "192.168.77.2",
        "10.244.2.13",
        8086,
        "tcp",
        "DROP",
    ),
    "what another program forbids": ("client", "192.168.77.2", "10.244.2.14", 8081, "tcp", "DROP"),
}


@pytest.fixture(scope="module", params=["nft", "legacy"])
def traced(request, tmp_path_factory):
    """A laboratory with rules of ours and of others, in which new connections are traced into a file."""
    manifests = gather(tmp_path_factory.mktemp("manifests"), *ALL, "04-affinity")
    (manifests / "silent.yaml").write_text(SILENT)
    with Lab(backend=request.param) as lab:
        lab.add_pod("nginx-1", "10.244.2.13")
        lab.add_pod("nginx-2", "10.244.2.14")
        lab.add_pod("kube-dns", "10.244.2.2", http=[], udp=[53])
        lab.remote.listen("http", ["10.244.9.9", "fd00:10:244:9::9"], [80])
        lab.node.listen("http", ["192.168.77.1"], [8080])
        lab.sysctl(lab.node, {"net/ipv4/conf/all/route_localnet": "1"})
        load_rules(lab, manifests)
        lab.iptables("-N", "FLANNEL-FWD")
        lab.iptables("-A", "FORWARD", "-m", "comment", "--comment", "flanneld forward", "-j", "FLANNEL-FWD")
        lab.iptables("-A", "FLANNEL-FWD", "-p", "tcp", "-m", "multiport", "--dports", "8081,8082", "-j", "DROP")
        lab.iptables("-A", "FLANNEL-FWD", "-s", "10.244.0.0/16", "-j", "ACCEPT")
        lab.node.run(["nft", "-f", "-"], stdin=NATIVE)
        if lab.backend == "nft":
            lab.node.run(["nft", "insert", "rule", "ip", "filter", "FORWARD", "tcp dport { 8086, 8087 } drop"])
        trace_new_connections(lab)
        log = lab.claim.folder / "trace.log"
        listener = lab.node.spawn([sys.executable, str(HERE / "listen_trace.py"), lab.backend], log=log)
        wait_for(lambda: "listening" in log.read_text(), "the listener")
        yield lab, manifests, log
        listener.signal()
        listener.wait()


def trace_new_connections(lab):
    ports = sorted({str(port) for _, _, _, port, _, _ in CASES.values()})
    for family in (4, 6):
        for hook in ("PREROUTING", "OUTPUT"):
            there = ("-t", "raw", "-A", hook)
            many = ("-m", "multiport", "--dports", ",".join(ports[:15]), "-j", "TRACE")
            lab.iptables(*there, "-p", "tcp", "--syn", *many, family=family)
            lab.iptables(*there, "-p", "udp", *many, family=family)


def foretold(lab, manifests, case):
    _, sender, to, port, protocol, _ = case
    address = f"[{to}]" if ":" in to else to
    target = f"{address}:{port}" + ("/udp" if protocol == "udp" else "")
    answer = json.loads(
        ask(lab, "trace", "--live", "--from", sender, "--to", target, "-o", "json", manifests=manifests).stdout
    )
    assert answer["cannotJudge"] == []
    ways = [
        [(hit["table"], hit["chain"], hit["rule"]) for hit in outcome["path"] if hit["rule"] and hit["table"] != "raw"]
        for outcome in answer["outcomes"]
    ]
    if lab.backend == "legacy":
        # Two tracers of one packet: legacy tables tell theirs, native tables theirs.
        ways = [[hit for hit in way if hit[0] in IPTABLES] for way in ways]
    assert sum(outcome["probability"] for outcome in answer["outcomes"]) == pytest.approx(1)
    return ways, {outcome["verdict"] for outcome in answer["outcomes"]}


def places(lab):
    """Return the number of each nft rule in its chain: (family, table, chain, handle) -> from 1 on."""
    counts, found = Counter(), {}
    for entry in json.loads(lab.node.run(["nft", "-j", "list", "ruleset"]).stdout)["nftables"]:
        if rule := entry.get("rule"):
            chain = (rule["family"], rule["table"], rule["chain"])
            counts[chain] += 1
            found[*chain, rule["handle"]] = counts[chain]
    return found


def logged(text, numbers):
    """Return the way of the first packet in a log, as ``foretold`` does; ``numbers`` are places, None on legacy."""
    found, first = [], None
    for family, table, chain, kind, number in LINE.findall(text):
        if table == "raw":
            if chain == first and found:
                break  # the sender tries again
            first = first or chain
        elif kind == "rule" and number != "0":  # the end of a chain, in new kernels
            name = FAMILIES[family]
            shown = table if table in IPTABLES else f"{name} {table}"
            found.append((shown, chain, numbers[name, table, chain, int(number)] if numbers else int(number)))
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace(" ", "-"))
def test_the_kernel_takes_a_foretold_way(traced, case):
    lab, manifests, log = traced
    if "native rule among" in case and lab.backend != "nft":
        pytest.skip("legacy tables hold no native rules")
    who, _, to, port, protocol, verdict = CASES[case]
    ways, verdicts = foretold(lab, manifests, CASES[case])
    assert verdicts == {verdict}
    before = len(log.read_text())
    place = {"client": lab.client, "node": lab.node}.get(who) or lab.pods[who]
    send = place.http if protocol == "tcp" else place.udp
    send(to, port, timeout=0.5)
    numbers = places(lab) if lab.backend == "nft" else None
    with contextlib.suppress(LabError):
        wait_for(lambda: logged(log.read_text()[before:], numbers) in ways, "a way that was foretold", timeout=10)
    text = log.read_text()[before:]
    assert logged(text, numbers) in ways, text
