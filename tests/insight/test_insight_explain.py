"""What explain finds out: addresses and what becomes of their packets, shares, unused endpoints, the kernel."""

from dataclasses import replace

import pytest
from insight_builders import KEY, SETTINGS, endpoint, seen, service, slice_of, standing

from pykubeproxy.insight.explain import explain, shares
from pykubeproxy.insight.explaintext import duration
from pykubeproxy.model.service import ServicePortName
from pykubeproxy.netfilter.read import UNKNOWN
from pykubeproxy.rules.dispatch import AddressSpace, PortSpace
from pykubeproxy.rules.names import DISPATCH_PREFIXES, PortChains
from pykubeproxy.watch import objects as api

CHAINS = PortChains(ServicePortName("default", "web", "", "TCP"))


def only_port(*objects, settings=SETTINGS, kernel=None):
    shown = seen(*objects, settings=settings)
    return explain(shown, KEY, standing=kernel).ports[0]


def reasons(port):
    return {one.target: one.why for one in port.unused}


def test_endpoints_have_equal_shares():
    port = only_port(service(), slice_of(endpoint("10.244.0.1"), endpoint("10.244.0.2", node="node-b")))
    (spread,) = port.spreads
    assert [(one.target, one.node, one.is_on_this_node) for one in spread.endpoints] == [
        ("10.244.0.1:8080", "node-a", True),
        ("10.244.0.2:8080", "node-b", False),
    ]
    assert [one.share for one in spread.endpoints] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("one", "more", "why"),
    [
        (endpoint("10.244.0.1", ready=False), {}, "not ready"),
        (
            endpoint("10.244.0.1", ready=False, serving=True, terminating=True),
            {},
            "terminating, while others are ready",
        ),
        (
            endpoint("10.244.0.1", ready=False, serving=False, terminating=True),
            {},
            "terminating and no longer serving",
        ),
        (
            endpoint("10.244.0.1", node="node-b"),
            {"internal_traffic_policy": "Local"},
            "not on this node (policy Local)",
        ),
        (
            endpoint("10.244.0.1", node=None),
            {"internal_traffic_policy": "Local"},
            "its node is not known (policy Local)",
        ),
    ],
)
def test_an_endpoint_that_is_not_used_has_a_reason(one, more, why):
    port = only_port(service(**more), slice_of(one, endpoint("10.244.0.9")))
    assert reasons(port) == {"10.244.0.1:8080": why}


def test_zone_hints_leave_out_other_zones():
    port = only_port(
        service(), slice_of(endpoint("10.244.0.1", zones=["z1"]), endpoint("10.244.0.2", zones=["z2", "z3"]))
    )
    assert port.hints == "zone"
    assert reasons(port) == {"10.244.0.2:8080": "meant for other zones (z2, z3; this node is in z1)"}


def test_node_hints_leave_out_other_nodes():
    port = only_port(
        service(), slice_of(endpoint("10.244.0.1", nodes=["node-a"]), endpoint("10.244.0.2", nodes=["node-b"]))
    )
    assert reasons(port) == {"10.244.0.2:8080": "meant for other nodes (node-b)"}


def test_terminating_endpoints_serve_when_no_other_is_left():
    port = only_port(service(), slice_of(endpoint("10.244.0.1", ready=False, serving=True, terminating=True)))
    assert [one.state for one in port.spreads[0].endpoints] == ["terminating"]


def test_a_load_balancer_tells_addresses_chains_and_ranges():
    port = only_port(
        service(
            kind="LoadBalancer",
            ports=[api.ServicePortSpec(port=80, node_port=30080)],
            ingress=["203.0.113.1"],
            external_ips=["198.51.100.7"],
            load_balancer_source_ranges=["192.168.0.0/24"],
            external_traffic_policy="Local",
            health_check_node_port=31000,
        ),
        slice_of(endpoint("10.244.0.1"), endpoint("10.244.0.2", node="node-b")),
    )
    assert [(one.kind, one.address, one.port, one.chains) for one in port.addresses] == [
        ("cluster IP", "10.96.0.1", 80, (CHAINS.cluster,)),
        ("external IP", "198.51.100.7", 80, (CHAINS.external, CHAINS.local)),
        ("load balancer IP", "203.0.113.1", 80, (CHAINS.firewall, CHAINS.external, CHAINS.local)),
        ("node port", "", 30080, (CHAINS.external, CHAINS.local)),
    ]
    assert port.addresses[2].source_ranges == ("192.168.0.0/24",)
    assert port.health_check_node_port == 31000
    assert {one.masquerades for one in port.addresses[1:]} == {"only this node itself"}
    assert [one.policy for one in port.spreads] == ["Cluster", "Local"]


def test_without_endpoints_on_this_node_policy_local_drops_what_comes_from_outside():
    port = only_port(
        service(
            kind="NodePort", ports=[api.ServicePortSpec(port=80, node_port=30080)], external_traffic_policy="Local"
        ),
        slice_of(endpoint("10.244.0.2", node="node-b")),
    )
    node_port = port.addresses[-1]
    assert (node_port.verdict, node_port.why, node_port.chains) == (
        "DROP",
        "no endpoints on this node",
        (CHAINS.external,),
    )
    assert port.addresses[0].verdict == "served"


def test_without_any_endpoints_everything_is_rejected():
    port = only_port(service())
    assert [(one.verdict, one.chains) for one in port.addresses] == [("REJECT", ())]
    assert port.spreads == ()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (SETTINGS, "senders outside 10.244.0.0/16"),
        (replace(SETTINGS, masquerade_all=True), "every sender"),
        (replace(SETTINGS, local_detector=None), "only a pod that reaches itself"),
        (
            replace(SETTINGS, local_detector=type(SETTINGS.local_detector)(interface="cali+")),
            "senders that do not come in by cali+",
        ),
    ],
)
def test_whose_address_is_hidden_is_told(settings, words):
    port = only_port(service(), slice_of(endpoint("10.244.0.1")), settings=settings)
    assert port.addresses[0].masquerades == words


def test_some_ports_can_be_asked_for():
    ports = [api.ServicePortSpec(port=80, name="http", node_port=30080), api.ServicePortSpec(port=443, name="https")]
    shown = seen(service(kind="NodePort", ports=ports))
    names = [one.id for one in shown.state.ports(KEY)]
    for only, count in ((names, 2), (names[:1], 1), (None, 2)):
        assert len(explain(shown, KEY, only=only).ports) == count
    assert explain(shown, KEY, only=()) is None


# -- with the kernel


def test_a_kernel_that_holds_the_rules_agrees_and_its_counters_are_told():
    objects = (
        service(kind="NodePort", ports=[api.ServicePortSpec(port=80, node_port=30080)]),
        slice_of(endpoint("10.244.0.1"), endpoint("10.244.0.2")),
    )
    shown = seen(*objects)
    found = explain(shown, KEY, standing=standing(shown, packets=7))
    assert (found.kernel, found.differences, found.ports[0].differences) == ("agrees", (), ())
    assert [one.connections for one in found.ports[0].addresses] == [7, 7]
    assert [one.connections for one in found.ports[0].spreads[0].endpoints] == [7, 7]


def test_counters_are_found_in_the_dispatch_tree():
    others = [service(f"s{n}", cluster_ip=f"10.96.{n}.{n}") for n in range(20)]
    slices = [slice_of(endpoint("10.244.0.9"), name=one.metadata.name) for one in others]
    shown = seen(service(), slice_of(endpoint("10.244.0.1")), *others, *slices, dispatch="tree")
    found = explain(shown, KEY, standing=standing(shown, packets=3))
    assert found.kernel == "agrees"
    assert found.ports[0].addresses[0].connections == 3


def test_affinity_tells_how_many_clients_are_remembered():
    shown = seen(service(session_affinity="ClientIP"), slice_of(endpoint("10.244.0.1")))
    chain = CHAINS.endpoint("10.244.0.1:8080")
    memory = {chain: {f"10.0.0.{n}": 1.0 for n in range(5)}}
    port = explain(shown, KEY, standing=standing(shown, memory=memory, recent_limit=20)).ports[0]
    assert (port.affinity_seconds, port.affinity_limit) == (10800, 20)
    assert port.spreads[0].endpoints[0].clients == 5


def differences(change):
    shown = seen(
        service(kind="NodePort", ports=[api.ServicePortSpec(port=80, node_port=30080)]),
        slice_of(endpoint("10.244.0.1"), endpoint("10.244.0.2")),
    )
    kernel = standing(shown)
    change(kernel.ruleset)
    found = explain(shown, KEY, standing=kernel)
    assert found.kernel == "differs"
    return [*found.differences, *found.ports[0].differences], found.ports[0]


def test_a_missing_chain_is_named():
    found, _ = differences(lambda rules: rules.chains["nat"].pop(CHAINS.external))
    assert found == [f"nat lacks chain {CHAINS.external}"]


def test_a_changed_chain_is_named_and_its_shares_are_the_kernels():
    gone = CHAINS.endpoint("10.244.0.1:8080")
    left = CHAINS.endpoint("10.244.0.2:8080")

    def change(rules):
        rules.chains["nat"][CHAINS.cluster] = f"-A {CHAINS.cluster} -j {left}\n"

    found, port = differences(change)
    assert found == [f"nat {CHAINS.cluster} holds other rules"]
    assert {one.chain: (one.share, one.in_kernel) for one in port.spreads[0].endpoints} == {
        left: (1.0, True),
        gone: (0.0, False),
    }


def test_whether_an_endpoint_is_in_the_kernel_is_not_said_where_that_was_not_read():
    shown = seen(service(), slice_of(endpoint("10.244.0.1"), endpoint("10.244.0.2")))
    kernel = standing(shown)
    kernel.ruleset.chains["nat"][CHAINS.cluster] = UNKNOWN
    partly = standing(shown)
    del partly.ruleset.chains["nat"][CHAINS.cluster]
    partly.unreadable["nat"] = "native rules stand in it"
    for read, kernel_is in ((None, ""), (kernel, "differs"), (partly, "differs")):
        found = explain(shown, KEY, standing=read)
        shares = found.ports[0].spreads[0].endpoints
        assert [(one.in_kernel, round(one.share, 6)) for one in shares] == [(None, 0.5), (None, 0.5)]
        assert found.kernel == kernel_is


def test_an_endpoint_that_only_the_kernel_has_is_shown_as_gone():
    def change(rules):
        rules.chains["nat"][CHAINS.cluster] = f"-A {CHAINS.cluster} -j KUBE-SEP-OLD\n"
        rules.chains["nat"]["KUBE-SEP-OLD"] = "-A KUBE-SEP-OLD -p tcp -m tcp -j DNAT --to-destination 10.244.0.7:80\n"

    _, port = differences(change)
    first = port.spreads[0].endpoints[0]
    assert (first.target, first.state) == ("10.244.0.7:80", "gone")


def test_a_missing_portal_and_one_too_many_are_named():
    def change(rules):
        rules.chains["nat"]["KUBE-NODEPORTS"] = ""
        rules.chains["filter"]["KUBE-SERVICES"] = (
            '-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "default/web has no endpoints" -j REJECT\n'
        )

    found, _ = differences(change)
    assert [line.partition(": ")[0] for line in found] == [
        "nat KUBE-NODEPORTS lacks",
        "filter KUBE-SERVICES has too many",
    ]


def test_what_the_trees_lead_to_is_found_with_its_counters_and_is_no_difference(monkeypatch):
    for space in (AddressSpace, PortSpace):
        monkeypatch.setattr(space, "leaf_size", 1)
    shown = seen(
        service(kind="NodePort", ports=[api.ServicePortSpec(port=80, node_port=30080)]),
        service(
            "other", kind="NodePort", cluster_ip="10.97.0.1", ports=[api.ServicePortSpec(port=80, node_port=32000)]
        ),
        slice_of(endpoint("10.244.0.1")),
        slice_of(endpoint("10.244.0.2"), name="other"),
        dispatch="tree",
    )
    chains = [chain for chain in shown.wanted.ruleset.chains["nat"] if chain.startswith(DISPATCH_PREFIXES)]
    assert {chain[:12] for chain in chains} == set(DISPATCH_PREFIXES)
    one = explain(shown, KEY, standing=standing(shown, packets=3))
    assert one.kernel == "agrees"
    assert [address.connections for address in one.ports[0].addresses] == [3, 3]


def test_a_missing_jump_is_told_for_the_whole():
    def change(rules):
        rules.ensured = tuple(one for one in rules.ensured if one.chain != "PREROUTING")

    found, _ = differences(change)
    assert found == ["nat PREROUTING lacks the jump to KUBE-SERVICES"]


def test_shares_are_read_off_the_rules():
    text = (
        "-A X -d 10.0.0.1/32 -j KUBE-MARK-MASQ\n"
        "-A X -m recent --rcheck --seconds 60 --reap --name KUBE-SEP-A --rsource -j KUBE-SEP-A\n"
        "-A X -m statistic --mode random --probability 0.25000000000 -j KUBE-SEP-A\n"
        "-A X -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-B\n"
        "-A X -j KUBE-SEP-C\n"
    )
    assert {chain: float(share) for chain, share in shares(text).items()} == {
        "KUBE-SEP-A": 0.25,
        "KUBE-SEP-B": 0.375,
        "KUBE-SEP-C": 0.375,
    }


@pytest.mark.parametrize(
    ("seconds", "text"), [(10800, "3 h"), (600, "10 min"), (90, "90 s"), (1, "1 s"), (86400, "24 h")]
)
def test_durations_are_short(seconds, text):
    assert duration(seconds) == text
