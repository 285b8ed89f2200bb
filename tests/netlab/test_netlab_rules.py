"""Real rules in the laboratory, on both backends: what the counters and the pods tell fits together."""

import pytest

from e2e.netlab import Lab, chi_square, wait_for

pytestmark = pytest.mark.netns

RULES = """\
*nat
:SVC - [0:0]
:MASQ - [0:0]
:SEP-1 - [0:0]
:SEP-2 - [0:0]
-A PREROUTING -d {vip} -p tcp --dport 80 -j SVC
-A OUTPUT -d {vip} -p tcp --dport 80 -j SVC
-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE
-A MASQ -j MARK --set-xmark 0x4000/0x4000
-A SVC -m statistic --mode random --probability 0.5 -j SEP-1
-A SVC -j SEP-2
-A SEP-1 -s {one} -j MASQ
-A SEP-1 -p tcp -j DNAT --to-destination {at_one}:80
-A SEP-2 -s {two} -j MASQ
-A SEP-2 -p tcp -j DNAT --to-destination {at_two}:80
COMMIT
"""
IPV4 = {
    "vip": "10.96.0.5", "one": "10.244.2.13", "two": "10.244.2.14", "at_one": "10.244.2.13", "at_two": "10.244.2.14",
}  # fmt: skip
IPV6 = {
    "vip": "fd00:10:96::5",
    "one": "fd00:10:244:2::13", "at_one": "[fd00:10:244:2::13]",
    "two": "fd00:10:244:2::14", "at_two": "[fd00:10:244:2::14]",
}  # fmt: skip


@pytest.fixture(params=["nft", "legacy"])
def lab(request):
    with Lab(backend=request.param) as lab:
        lab.add_pod("p1", "10.244.2.13")
        lab.add_pod("p2", "10.244.2.14")
        yield lab


@pytest.mark.parametrize(("family", "names"), [(4, IPV4), (6, IPV6)])
def test_counters_and_pods_agree(lab, family, names):
    lab.restore(RULES.format(**names), family=family)
    before = lab.save(family)
    traffic = lab.client.http(names["vip"], 80, n=200, concurrency=8)
    way = lab.save(family).since(before)
    assert traffic.verdict() == "answered"
    assert way.destinations() == {
        f"{names['at_one']}:80": traffic.pods["p1"],
        f"{names['at_two']}:80": traffic.pods["p2"],
    }
    assert way.chains("PREROUTING")[:2] == ["PREROUTING", "SVC"]
    assert way.chains("OUTPUT") == ["OUTPUT"]
    assert chi_square([traffic.pods["p1"], traffic.pods["p2"]])[1] > 1e-6


def test_the_node_itself_goes_through_output(lab):
    lab.restore(RULES.format(**IPV4))
    before = lab.save()
    assert lab.node.http("10.96.0.5", 80, n=20).verdict() == "answered"
    way = lab.save().since(before)
    assert way.chains("OUTPUT")[:2] == ["OUTPUT", "SVC"]
    assert way.chains("PREROUTING") == ["PREROUTING"]


@pytest.mark.parametrize(("family", "names", "bridge"), [(4, IPV4, "10.244.2.1"), (6, IPV6, "fd00:10:244:2::1")])
def test_a_pod_reaches_itself_and_others_of_its_bridge(lab, family, names, bridge):
    lab.restore(RULES.format(**names), family=family)
    traffic = lab.pods["p1"].http(names["vip"], 80, n=40)
    assert traffic.verdict() == "answered"
    assert {(a.pod, a.source) for a in traffic.answers} == {("p1", bridge), ("p2", names["one"])}


def test_the_other_backend_is_empty(lab):
    lab.restore(RULES.format(**IPV4))
    other = "legacy" if lab.backend == "nft" else "nft"
    assert not lab.save(backend=other).has("nat", "SVC")


def test_a_soak_tells_when_packets_were_lost(lab):
    lab.restore(RULES.format(**IPV4))
    soak = lab.client.soak_http("10.96.0.5", 80, interval=0.005, timeout=0.3)
    stream = lab.client.soak_http("10.244.2.13", 80)
    wait_for(lambda: len(soak.so_far().answers) > 20, "answers")
    assert not soak.so_far().failures
    lab.iptables("-t", "mangle", "-A", "PREROUTING", "-d", "10.96.0.5", "-j", "DROP")
    wait_for(lambda: soak.so_far().failures, "failures")
    lab.iptables("-t", "mangle", "-F", "PREROUTING")
    count = len(soak.so_far().answers)
    wait_for(lambda: len(soak.so_far().answers) > count + 20, "answers again")
    lost = soak.stop()
    assert set(lost.kinds) == {"timeout"}
    assert lost.answers[0].at < lost.failures[0].at < lost.answers[-1].at
    assert stream.stop().verdict() == "answered"


def test_a_lost_syn_is_told_even_if_its_repetition_was_answered(lab):
    drop = "-p tcp --syn -m statistic --mode nth --every 3 --packet 0 -j DROP"
    lab.iptables("-t", "mangle", "-A", "PREROUTING", *drop.split())
    traffic = lab.client.http("10.244.2.13", 80, n=6, concurrency=6, timeout=10)
    assert traffic.verdict() == "answered"
    assert traffic.delayed


def test_data_that_was_sent_again_is_no_lost_syn(lab):
    """A busy machine makes the kernel do so without any loss."""
    drop = "-p tcp --tcp-flags PSH PSH -m statistic --mode nth --every 3 --packet 0 -j DROP"
    lab.iptables("-t", "mangle", "-A", "PREROUTING", *drop.split())
    traffic = lab.client.http("10.244.2.13", 80, n=6, concurrency=6, timeout=10)
    assert traffic.verdict() == "answered"
    assert traffic.delayed == []
