"""IPv6: the same, through ip6tables."""

from __future__ import annotations

from e2e.demo.stage import PODS, Stage, kube_chains

TITLE = "IPv6: ClusterIP and NodePort"
ADDRESS, NODE, PORT = "fd00:10:96::66", "fd00:77::1", 30066
BRIDGE6, INNER6 = "fd00:10:244:2::1", "fd00:78::1"
PODS6 = {"nginx-1": "fd00:10:244:2::13", "nginx-2": "fd00:10:244:2::14", "nginx-3": "fd00:10:244:9::9"}
MASQUERADED = {"nginx-1": BRIDGE6, "nginx-2": BRIDGE6, "nginx-3": INNER6}


def run(stage: Stage) -> None:
    """Ask the cluster address and the node port, from a pod and from outside."""
    addresses = [f"[{ip}]:80" for ip in PODS6.values()]
    stage.apply_and_await("11-ipv6", "default/nginx-six", addresses, family=6)
    stage.await_rule(f"--dport {PORT} -j KUBE-EXT-", family=6)
    curl, client = stage.curl, stage.lab.client
    inside, way = stage.watch(lambda: curl.http(ADDRESS, 80, n=60, concurrency=4), family=6)
    stage.show.say(f"[{ADDRESS}]:80 from pod curl:")
    stage.show.way(way, "PREROUTING")
    outside = client.http(ADDRESS, 80, n=60, concurrency=4)
    port, port_way = stage.watch(lambda: client.http(NODE, PORT, n=60, concurrency=4), family=6)
    itself = stage.nginx[0].http(ADDRESS, 80, n=30)
    rows = []
    for who, what, traffic in (
        ("pod curl", "ClusterIP", inside),
        ("outside client", "ClusterIP", outside),
        ("outside client", "NodePort", port),
    ):
        rows += [(who, what, pod, source) for pod, source in sorted({(a.pod, a.source) for a in traffic.answers})]
    stage.show.table(["who asked", "what", "who answered", "saw"], rows)
    stage.check(
        kube_chains(way.chains("PREROUTING")) == ["PREROUTING", "KUBE-SERVICES", "KUBE-SVC", "KUBE-SEP"]
        and sum(way.destinations().values()) == len(inside.answers) == 60,
        "ClusterIP: PREROUTING → KUBE-SERVICES → KUBE-SVC → KUBE-SEP → one of three pods",
    )
    stage.check(
        {a.pod: a.source for a in inside.answers} == dict.fromkeys(PODS, curl.ip6), f"from a pod: all saw {curl.ip6}"
    )
    stage.check({a.pod: a.source for a in outside.answers} == MASQUERADED, "from outside: masqueraded")
    stage.check(
        {a.pod: a.source for a in port.answers} == MASQUERADED and "KUBE-NODEPORTS" in port_way.chains("PREROUTING"),
        f"NodePort [{NODE}]:{PORT} from outside: all three answer, masqueraded",
    )
    own = {a.source for a in itself.answers if a.pod == "nginx-1"}
    stage.check(own == {BRIDGE6} and not itself.failures, "a pod reaches itself through its own service")
    stage.withdraw("nginx-six.yaml")
    stage.await_kernel(lambda: not stage.lab.save(6).find('"default/nginx-six'), "nginx-six is gone")
