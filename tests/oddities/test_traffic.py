"""Odd configurations judged by real packets: session affinity (R049, R050, R052, R053, R055), node ports on every local
address (R070), ranges of the other family (S11).
"""

import json

import msgspec
import pytest

from e2e.netlab import Lab, Proxy, wait_for
from e2e.netlab.wiring import NODE_IP
from pykubeproxy.node.nfacct import recent_lists
from pykubeproxy.watch.objects import Service
from tests.support.builders import endpoint, endpoint_slice, port, service
from tests.support.node import inside

pytestmark = [pytest.mark.netns, pytest.mark.slow]

PODS = {"p1": "10.244.2.11", "p2": "10.244.2.12", "p3": "10.244.2.13"}
BOUND, BALANCER = "203.0.113.9", "203.0.113.20"
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-a"},
    "status": {"addresses": [{"type": "InternalIP", "address": NODE_IP}]},
}
PORT = [{"name": "", "port": 80, "protocol": "TCP"}]
AFFINE = {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}}}


class Stage:
    """A laboratory with three pods on the node, one elsewhere, and the daemon on a folder of manifests."""

    def __init__(self, lab):
        self.lab = lab
        self.folder = lab.claim.folder / "manifests"
        self.folder.mkdir()
        (self.folder / "node.json").write_text(json.dumps(NODE))
        for name, address in PODS.items():
            lab.add_pod(name, address)
        self.proxy = Proxy(lab, self.folder)

    def put(self, *objects):
        """Write objects, each in a file of its own, and wait until their rules stand."""
        for obj in objects:
            tree = msgspec.to_builtins(obj)
            is_service = isinstance(obj, Service)
            tree |= {"kind": type(obj).__name__, "apiVersion": "v1" if is_service else "discovery.k8s.io/v1"}
            mark = {"annotations": {"version": str(len(list(self.folder.iterdir())))}}
            tree["metadata"] |= mark
            fresh = self.folder / f".{type(obj).__name__}-{obj.metadata.name}.json"
            fresh.write_text(json.dumps(tree))
            fresh.rename(self.folder / fresh.name[1:])

    def rules(self):
        return self.lab.iptables("-t", "nat", "-S").stdout

    def wait_rules(self, condition, what):
        wait_for(lambda: condition(self.rules()), what, timeout=60.0)


@pytest.fixture(scope="module", params=["nft", "legacy"])
def stage(request):
    with Lab(backend=request.param) as lab:
        found = Stage(lab)
        found.put(service("plain", ip="10.96.0.9"), endpoint_slice("plain", list(PODS.values()), ports=PORT))
        found.proxy.start()
        found.proxy.wait_synced()
        yield found
        found.proxy.stop()


def test_affinity_can_be_switched_on_and_off_on_a_running_service(stage):  # R052
    slice_of = endpoint_slice("switch", list(PODS.values()), ports=PORT)
    counts = []
    for spec in ({}, AFFINE, {}):
        stage.put(service("switch", ip="10.96.0.1", **spec), slice_of)
        stage.wait_rules(
            lambda text, has=bool(spec): (
                text.count("10.96.0.1/32") > 0
                and ('"default/switch' in text)
                and any("--rcheck" in line and "default/switch" in line for line in text.splitlines()) is has
            ),
            "the rules of the service",
        )
        counts.append(len(stage.lab.client.http("10.96.0.1", 80, n=30).pods))
    assert counts[1] == 1
    assert counts[0] > 1 < counts[2]


def test_affinity_holds_with_policy_local(stage):  # R053
    stage.put(
        service("local", ip="10.96.0.2", ports=[port(80, node_port=30082)], externalTrafficPolicy="Local", **AFFINE),
        endpoint_slice("local", [PODS["p1"], PODS["p2"], endpoint("10.244.9.9", "node-b")], ports=PORT),
    )
    stage.wait_rules(lambda text: text.count("default/local") > 8, "the rules of the service")
    traffic = stage.lab.client.http(NODE_IP, 30082, n=50)
    assert len(traffic.pods) == 1
    assert len(traffic.answers) == 50
    assert set(traffic.sources) == {"192.168.77.2"}, "the client's address is kept"


def test_affinity_is_by_source_address_so_clients_behind_one_address_share_a_pod(stage):  # R055
    stage.put(service("nat", ip="10.96.0.3", **AFFINE), endpoint_slice("nat", list(PODS.values()), ports=PORT))
    stage.wait_rules(lambda text: text.count("default/nat") > 8, "the rules of the service")
    assert len(stage.lab.client.http("10.96.0.3", 80, n=20).pods) == 1
    each = [stage.lab.client.http("10.96.0.3", 80, source_ip=ip) for ip in stage.lab.client_addresses(20)]
    assert len({pod for traffic in each for pod in traffic.pods}) > 1


def test_the_kernel_remembers_a_hundred_clients_and_we_can_tell(stage):  # R049: xt_recent's ip_list_tot
    stage.put(service("many", ip="10.96.0.4", **AFFINE), endpoint_slice("many", [PODS["p1"]], ports=PORT))
    stage.wait_rules(lambda text: text.count("default/many") > 3, "the rules of the service")
    for ip in stage.lab.client_addresses(120):
        assert stage.lab.client.http("10.96.0.4", 80, source_ip=ip).pods == {"p1": 1}
    lists = inside(stage.lab.node.netns, recent_lists)
    assert lists.limit is not None
    assert max(lists.sizes.values()) == lists.limit
    assert len(lists.full) == 1


def test_two_ports_of_a_service_have_an_affinity_each(stage):  # R050: as in kube-proxy
    names = [{"name": name, "port": 80, "protocol": "TCP"} for name in ("a", "b")]
    stage.put(
        service("two", ip="10.96.0.5", ports=[port(80, "a"), port(81, "b")], **AFFINE),
        endpoint_slice("two", list(PODS.values()), ports=names),
    )
    stage.wait_rules(lambda text: text.count("default/two") > 16, "the rules of the service")
    pairs = []
    for ip in stage.lab.client_addresses(24):
        found = [stage.lab.client.http("10.96.0.5", number, n=3, source_ip=ip).pods for number in (80, 81)]
        assert all(len(pods) == 1 for pods in found)
        pairs.append(found[0] == found[1])
    assert not all(pairs)


def test_node_ports_answer_on_every_local_address_unless_told_otherwise(stage):  # R070, S11
    stage.put(
        service("shop", ip="10.96.0.6", ports=[port(80, node_port=30086)], lb=[BALANCER],
                loadBalancerSourceRanges=["2001:db8::/32"]),
        endpoint_slice("shop", [PODS["p3"]], ports=PORT),
    )  # fmt: skip
    stage.wait_rules(lambda text: text.count("default/shop") > 3, "the rules of the service")
    stage.lab.exec("node", ["ip", "address", "add", f"{BOUND}/32", "dev", "lo"])
    client = stage.lab.client
    assert client.http(BOUND, 30086).pods == {"p3": 1}
    assert client.http(NODE_IP, 30086).pods == {"p3": 1}
    assert client.http(BALANCER, 80).pods == {"p3": 1}, "open: none of the ranges is of this family"
    stage.proxy.stop()
    stage.proxy.arguments += ["--nodeport-addresses", "primary", "--strict-source-ranges"]
    stage.proxy.start()
    stage.wait_rules(
        lambda text: "KUBE-FW-" in text and "--dst-type LOCAL -j KUBE-NODEPORTS" not in text, "the new rules"
    )
    assert client.http(BOUND, 30086, timeout=0.5).verdict() == "refused"
    assert client.http(NODE_IP, 30086).pods == {"p3": 1}
    assert client.http(BALANCER, 80, timeout=0.5).verdict() == "timeout"
