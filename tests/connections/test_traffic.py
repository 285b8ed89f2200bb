"""Real traffic: the metric of each endpoint is the number of connections that the test made to it."""

import contextlib
import re
import signal
import threading
from collections import Counter

import pytest

from e2e.netlab import Lab, Proxy, wait_for

pytestmark = [pytest.mark.netns, pytest.mark.slow]

WEB, DNS = "10.96.0.50", "10.96.0.53"
PODS = {"p1": "10.244.2.13", "p2": "10.244.2.14", "p3": "10.244.2.15"}
NODES = """\
apiVersion: v1
kind: Node
metadata: {name: node-a}
spec: {podCIDR: 10.244.2.0/24}
status: {addresses: [{type: InternalIP, address: 192.168.77.1}]}
"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: default}}
spec:
  type: NodePort
  clusterIP: {ip}
  clusterIPs: [{ip}]
  ports: [{{name: main, protocol: {protocol}, port: 80, targetPort: {target}, nodePort: {node_port}}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {name}-1
  namespace: default
  labels: {{kubernetes.io/service-name: {name}}}
addressType: IPv4
ports: [{{name: main, protocol: {protocol}, port: {target}}}]
endpoints: [{endpoints}]
"""
_SAMPLE = re.compile(r"^pykubeproxy_(service|endpoint)_connections_total\{(.*)\} (\d+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


SPECS = {
    "web": {"ip": WEB, "protocol": "TCP", "target": 80, "node_port": 30080},
    "dns": {"ip": DNS, "protocol": "UDP", "target": 5353, "node_port": 30053},
    "extra": {"ip": "10.96.0.60", "protocol": "TCP", "target": 80, "node_port": 30060},
}


def put(lab, name, addresses):
    endpoints = ", ".join(f"{{addresses: [{address}]}}" for address in addresses)
    staged = lab.claim.folder / "manifests" / f".{name}"
    staged.write_text(SERVICE.format(name=name, endpoints=endpoints, **SPECS[name]))
    staged.replace(staged.with_name(f"{name}.yaml"))


@pytest.fixture(params=["nft", "legacy"])
def lab(request):
    with Lab(backend=request.param) as lab:
        for name, ip in PODS.items():
            lab.add_pod(name, ip, udp=[5353])
        lab.add_pod("curl", "10.244.2.50", http=[])
        folder = lab.claim.folder / "manifests"
        folder.mkdir()
        (folder / "nodes.yaml").write_text(NODES)
        put(lab, "web", PODS.values())
        put(lab, "dns", PODS.values())
        yield lab


def proxy_of(lab, *extra):
    return Proxy(
        lab,
        lab.claim.folder / "manifests",
        extra=["--connection-metrics", "--connection-metrics-period=200ms", "--iptables-min-sync-period=10ms", *extra],
    )


def samples(lab):
    """Return {service: count} and {(service, endpoint): count} of the default namespace, IPv4."""
    body = lab.node.fetch("127.0.0.1", 10249, "/metrics", timeout=20).body
    services, endpoints = {}, {}
    for kind, labels, count in _SAMPLE.findall(body):
        found = dict(_LABEL.findall(labels))
        if found["ip_family"] == "IPv4":
            assert (found["namespace"], found["port"]) == ("default", "main")
            assert found["protocol"] == {"web": "TCP", "dns": "UDP"}.get(found["service"], "TCP")
            if kind == "service":
                services[found["service"]] = int(count)
            else:
                endpoints[found["service"], found["endpoint"]] = int(count)
    return services, endpoints


def await_samples(lab, services, endpoints):
    """Wait for a reading that shows these."""
    last = []

    def are_there():
        last[:] = [samples(lab)]
        found = last[0]
        return all(found[0].get(k) == v for k, v in services.items()) and all(
            found[1].get(k) == v for k, v in endpoints.items()
        )

    with contextlib.suppress(Exception):
        wait_for(are_there, "the metric", timeout=30, interval=0.1)
    assert last[0][0] | services == last[0][0]
    assert last[0][1] | endpoints == last[0][1]


def endpoints_of(service, port, pods):
    return {(service, f"{PODS[pod]}:{port}"): count for pod, count in pods.items()}


def test_each_endpoint_has_as_many_as_were_made(lab):
    proxy = proxy_of(lab)
    proxy.start()
    proxy.wait_synced()
    curl, client = lab.pods["curl"], lab.client
    inside = curl.http(WEB, 80, n=90, concurrency=4)
    outside = client.http("192.168.77.1", 30080, n=60, concurrency=4)
    # Each from a port of its own: the kernel may give a port again, which would be the same flow to conntrack.
    asked = [curl.udp(DNS, 80, source_port=port) for port in range(20000, 20050)]
    assert not inside.failures + outside.failures + [failure for one in asked for failure in one.failures]
    web = inside.pods + outside.pods
    dns = sum((one.pods for one in asked), Counter())
    await_samples(lab, {"web": 150, "dns": 50}, endpoints_of("web", 80, web) | endpoints_of("dns", 5353, dns))


def test_a_restart_repeats_nothing(lab):
    proxy = proxy_of(lab)
    proxy.start()
    proxy.wait_synced()
    first = lab.pods["curl"].http(WEB, 80, n=30, concurrency=4)
    await_samples(lab, {"web": 30}, endpoints_of("web", 80, first.pods))
    proxy.stop(signal.SIGKILL)
    proxy.start()
    proxy.wait_synced()
    wait_for(lambda: samples(lab)[0].get("web") == 0, "what the rules have counted so far to be known")
    again = lab.pods["curl"].http(WEB, 80, n=20, concurrency=4)
    await_samples(lab, {"web": 20}, endpoints_of("web", 80, again.pods))


def test_right_while_a_restore_runs_all_the_time(lab):
    """Every 100 ms somebody restores into the same table; every few, a service of ours changes."""
    proxy = proxy_of(lab)
    proxy.start()
    proxy.wait_synced()
    before = samples(lab)
    assert before[0]["web"] == 0
    ended = threading.Event()
    trouble = []

    def restores():
        turn = 0
        try:
            while not ended.wait(0.1):
                turn += 1
                chain, network = f"OTHER-{turn % 3}", f"10.9.{turn % 250}.0/24"
                lab.restore(f"*nat\n:{chain} - [0:0]\n-A {chain} -s {network} -j RETURN\nCOMMIT\n")
                if turn % 5 == 0:
                    put(lab, "extra", [f"10.244.2.{100 + turn % 50}"])
        except Exception as problem:  # noqa: BLE001 - told below
            trouble.append(problem)

    writer = threading.Thread(target=restores)
    writer.start()
    seen = []
    try:
        soak = lab.pods["curl"].soak_http(WEB, 80, interval=0.01, timeout=5)
        while soak.so_far().started < 600 or len(set(seen)) < 20:
            seen.append(samples(lab)[0]["web"])
        web = soak.stop()
    finally:
        ended.set()
        writer.join()
    assert not trouble
    assert not web.failures
    assert seen == sorted(seen)
    await_samples(lab, {"web": len(web.answers)}, endpoints_of("web", 80, web.pods))


def test_a_table_that_iptables_cannot_print_is_read_chain_by_chain():
    with Lab(backend="nft") as lab:
        lab.add_pod("p1", PODS["p1"])
        lab.add_pod("curl", "10.244.2.50", http=[])
        (lab.claim.folder / "manifests").mkdir()
        put(lab, "web", [PODS["p1"]])
        proxy = proxy_of(lab)
        proxy.start()
        proxy.wait_synced()
        lab.node.run(["nft", "add rule ip nat PREROUTING ip daddr { 198.51.100.7, 198.51.100.8 } ct mark set 7"])
        assert "nat" in lab.save().unreadable
        web = lab.pods["curl"].http(WEB, 80, n=12)
        await_samples(lab, {"web": 12}, endpoints_of("web", 80, web.pods))


def test_off_unless_asked_for():
    with Lab(backend="nft") as lab:
        (lab.claim.folder / "manifests").mkdir()
        put(lab, "web", PODS.values())
        proxy = Proxy(lab, lab.claim.folder / "manifests")
        proxy.start()
        proxy.wait_synced()
        body = lab.node.fetch("127.0.0.1", 10249, "/metrics").body
        assert "kubeproxy_sync_proxy_rules_duration_seconds" in body
        assert "connections" not in body
