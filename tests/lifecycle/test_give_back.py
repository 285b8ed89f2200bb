"""Taken over from kube-proxy and given back under load, without the real one: a stand-in sends what it would restore.

What kube-proxy restores is known (tests/oracle): all of its chains flushed and written in one input, and every chain of
nat whose name begins like a service's and that it does not want any more deleted in the same input. The real one is
tried in tests/deploy/test_lab.
"""

import re
import sys

import pytest
import yaml

from e2e.netlab import Lab, Proxy, wait_for
from pykubeproxy.rules.dispatch import PORT_LEAF_SIZE
from pykubeproxy.rules.names import DISPATCH_PREFIXES
from tests.lifecycle.bare import BACKENDS
from tests.support.node import ROOT

pytestmark = pytest.mark.netns
WEB, PORT, POD = "10.96.0.80", 30080, "10.244.2.13"
STALE = re.compile(r"^KUBE-(SVC|SVL|EXT|FW|SEP)-")


def service(name, address, **port):
    base = {"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP", **port}
    udp = {"name": "udp", "port": 53, "targetPort": 5353, "protocol": "UDP"}
    spec = {"type": "NodePort" if port else "ClusterIP", "clusterIP": address, "clusterIPs": [address]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**spec, "ipFamilies": ["IPv4"], "ports": [base, udp]},
    }


def endpoints(name):
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{name}-1", "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [
            {"name": "http", "port": 8080, "protocol": "TCP"},
            {"name": "udp", "port": 5353, "protocol": "UDP"},
        ],
        "endpoints": [{"addresses": [POD], "nodeName": "node-a", "conditions": {"ready": True}}],
    }


def write(folder, names):
    """Put the web service and others into a folder, each file in one step."""
    objects = {"web": [service("web", WEB, nodePort=PORT), endpoints("web")]}
    objects |= {
        name: [service(name, f"10.96.1.{number + 1}", nodePort=PORT + number + 1), endpoints(name)]
        for number, name in enumerate(names)
    }
    for path in folder.glob("*.yaml"):
        if path.stem not in objects:
            path.unlink()
    for name, parts in objects.items():
        staged = folder / f".{name}"
        staged.write_text(yaml.safe_dump_all(parts))
        staged.replace(folder / f"{name}.yaml")


def kube_proxy_syncs(lab, folder):
    """Restore what kube-proxy would for these objects; raises where the kernel refuses."""
    flags = ["--dry-run", "--service-dispatch", "flat", "--manifests", str(folder), "--hostname-override", "node-a"]
    flags += ["--ip-family", "ipv4", "--cluster-cidr", "10.244.0.0/16", "--iptables-backend", lab.backend]
    done = lab.node.run([sys.executable, "-m", "pykubeproxy", *flags], env={"PYTHONPATH": str(ROOT)})
    # The jumps stand already: kube-proxy makes sure of them by other calls, before.
    lines = [line for line in done.stdout.splitlines() if not line.startswith(("-I ", "-A KUBE-FIREWALL", "#"))]
    wanted = {line.split()[0][1:] for line in lines if line.startswith(":")}
    stale = [chain for chain in lab.save().tables["nat"] if STALE.match(chain) and chain not in wanted]
    text = "\n".join(lines) + "\n"
    if stale:
        flush = "".join(f":{chain} - [0:0]\n" for chain in stale)
        delete = "".join(f"-X {chain}\n" for chain in stale)
        head, _, rest = text.rpartition("*nat\n")
        body, _, tail = rest.partition("COMMIT\n")
        text = f"{head}*nat\n{flush}{body}{delete}COMMIT\n{tail}"
    lab.restore(text)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_connection_notices_and_nothing_of_the_tree_stays(backend):
    with Lab(backend=backend) as lab:
        lab.add_pod("web", POD, http=[8080], udp=[5353])
        curl = lab.add_pod("curl", "10.244.2.50", http=[])
        folder = lab.claim.folder / "manifests"
        folder.mkdir()
        others = [f"other-{number}" for number in range(2 + PORT_LEAF_SIZE + 10)]
        write(folder, others)
        proxy = Proxy(lab, folder, extra=["--service-dispatch", "tree", "--iptables-min-sync-period", "10ms"])
        proxy.start()
        proxy.wait_synced()
        soaks = {
            "pod": curl.soak_http(WEB, 80, interval=0.01, timeout=5),
            "outside": lab.client.soak_http("192.168.77.1", PORT, interval=0.01, timeout=5),
            "udp": curl.soak_udp(WEB, 53, interval=0.01, timeout=2),
        }
        held = curl.connect(WEB, 80)

        def chains():
            return lab.save().tables["nat"].keys()

        def more():
            goals = {name: soak.so_far().started + 40 for name, soak in soaks.items()}
            wait_for(lambda: all(soak.so_far().started >= goals[name] for name, soak in soaks.items()), "traffic")

        for _ in range(2):
            for prefix in DISPATCH_PREFIXES:
                assert [chain for chain in chains() if chain.startswith(prefix)], "the tree is on"
            more()
            proxy.stop()
            kube_proxy_syncs(lab, folder)
            assert not [chain for chain in chains() if chain.startswith(DISPATCH_PREFIXES)]
            more()
            for names in (others[5:], [*others[5:], "new-1", "new-2"]):
                write(folder, names)
                kube_proxy_syncs(lab, folder)
                assert curl.http(f"10.96.1.{len(names)}", 80, n=5).verdict() == "answered"
            more()
            proxy.start()
            proxy.wait_synced()
            others = [*others[5:], "new-1", "new-2"]
        more()
        assert held.ask()["answer"]["pod"] == "web"
        for name, soak in soaks.items():
            traffic = soak.stop()
            assert (name, traffic.failures, traffic.delayed) == (name, [], [])
        proxy.stop()
