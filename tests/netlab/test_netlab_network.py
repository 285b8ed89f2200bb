"""The laboratory's network carries packets as the drawing says, before any rule exists."""

import pytest

from e2e.netlab import Lab

pytestmark = pytest.mark.netns


@pytest.fixture(scope="module")
def lab():
    with Lab() as lab:
        lab.add_pod("p1", "10.244.2.13", http=[80], udp=[5353])
        lab.add_pod("far", "10.244.0.50")
        lab.remote.listen("http", ["10.244.9.9", "fd00:10:244:9::9"], [80])
        yield lab


@pytest.mark.parametrize(
    ("who", "ip", "pod", "source"),
    [
        ("client", "10.244.2.13", "p1", "192.168.77.2"),
        ("client", "fd00:10:244:2::13", "p1", "fd00:77::2"),
        ("client", "10.244.9.9", "remote", "192.168.77.2"),
        ("node", "10.244.2.13", "p1", "10.244.2.1"),
        ("far", "10.244.2.13", "p1", "10.244.0.50"),
        ("far", "fd00:10:244:2::13", "p1", "fd00:10:244::50"),
        ("far", "10.244.9.9", "remote", "10.244.0.50"),
        ("remote", "10.244.2.13", "p1", "10.244.9.9"),
        ("remote", "fd00:10:244:2::13", "p1", "fd00:10:244:9::9"),
        ("p1", "10.244.0.50", "far", "10.244.2.13"),
    ],
)
def test_everyone_reaches_pods_with_their_own_address(lab, who, ip, pod, source):
    parts = {"client": lab.client, "node": lab.node, "remote": lab.remote, **lab.pods}
    traffic = parts[who].http(ip, 80, n=3)
    assert traffic.verdict() == "answered"
    assert (traffic.pods, traffic.sources) == ({pod: 3}, {source: 3})


def test_a_closed_port_is_refused(lab):
    assert lab.client.http("10.244.2.13", 81).verdict() == "refused"


def test_an_address_that_nobody_has_is_no_answer(lab):
    assert lab.client.http("10.101.0.1", 80, timeout=0.2).verdict() == "timeout"


def test_udp_is_echoed_and_remembered(lab):
    assert lab.client.udp("10.244.2.13", 5353, n=5, source_port=5000).sources == {"192.168.77.2": 5}
    assert ("192.168.77.2", 5000, "x") in lab.pods["p1"].seen(5353)


def test_a_closed_udp_port_is_refused(lab):
    assert lab.client.udp("10.244.2.13", 5354).verdict() == "refused"


def test_a_fixed_source_port_can_be_used_again_and_again(lab):
    traffic = lab.client.http("10.244.2.13", 80, n=50, source_port=5000)
    assert traffic.verdict() == "answered"
    assert {answer.port for answer in traffic.answers} == {5000}


def test_the_client_can_have_more_addresses(lab):
    for address in lab.client_addresses(2):
        assert lab.client.http("10.244.2.13", 80, source_ip=address).sources == {address: 1}


def test_a_kept_connection_answers_again_and_again(lab):
    connection = lab.client.connect("10.244.2.13", 80)
    assert [connection.ask(path)["answer"]["path"] for path in ("/a", "/b")] == ["/a", "/b"]
    connection.close()


def test_a_pod_comes_and_goes(lab):
    lab.add_pod("brief", "10.244.2.99")
    connection = lab.client.connect("10.244.2.99", 80)
    lab.remove_pod("brief")
    assert lab.client.http("10.244.2.99", 80, timeout=0.3).answers == []
    assert "failure" in connection.ask(timeout=0.3)


def test_dns_over_both_protocols_and_through_the_c_library():
    with Lab(resolver="10.244.2.2") as lab:
        dns = lab.add_pod("dns", "10.244.2.2", http=[], dns=[53])
        dns.zone({"web.default.svc.cluster.local": ["10.96.0.7"]})
        asker = lab.add_pod("asker", "10.244.2.3")
        for tcp in (False, True):
            assert asker.dns("10.244.2.2", "web.default.svc.cluster.local", tcp=tcp).values == ["10.96.0.7"]
            assert asker.dns("10.244.2.2", "nowhere", tcp=tcp).code == 3
            assert "10.244.2.3" in asker.dns("10.244.2.2", "whoami", "TXT", tcp=tcp).values[0]
        assert asker.resolve("web") == ["10.96.0.7"]
        assert asker.resolve("nowhere") == []
