"""What kube-proxy's nftables and ipvs modes left: tables go after the first sync, ipvs is reported and cleaned up."""

import signal

import pytest

from pykubeproxy.node.leftovers import Ipvs, VirtualServer, belonging, parse_ip_vs
from pykubeproxy.sync.cleanup import ipvs_removal
from tests.lifecycle.bare import BACKENDS, bare
from tests.support.node import cluster, eventually, node

NFTABLES_MODE = """
table {family} kube-proxy {{
  map service-ips {{ type {kind} . inet_proto . inet_service : verdict; }}
  chain services {{ meta l4proto tcp counter; }}
  chain nat-prerouting {{ type nat hook prerouting priority dstnat; policy accept; jump services; }}
}}
table {family} mine {{ }}
"""
IPVS_RULES = """*nat
:KUBE-LOAD-BALANCER - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SERVICES - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-NODE-PORT -p tcp -m set --match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ
-A KUBE-POSTROUTING -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE
-A KUBE-SERVICES -m set --match-set KUBE-LOOP-BACK dst,dst -j KUBE-LOAD-BALANCER
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
COMMIT
*filter
:KUBE-FORWARD - [0:0]
:KUBE-IPVS-FILTER - [0:0]
:KUBE-IPVS-OUT-FILTER - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SOURCE-RANGES-FIREWALL - [0:0]
-A INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER
-A INPUT -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT
-A OUTPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-OUT-FILTER
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A KUBE-PROXY-FIREWALL -m set --match-set KUBE-LOOP-BACK dst,dst -j KUBE-SOURCE-RANGES-FIREWALL
-A KUBE-SOURCE-RANGES-FIREWALL -j DROP
COMMIT
"""
SETS = (
    "create KUBE-LOOP-BACK hash:ip,port,ip\n"
    "create KUBE-NODE-PORT-TCP bitmap:port range 0-65535\n"
    "create KUBE-6-CLUSTER-IP hash:ip,port family inet6\n"
    "create mine hash:ip\n"
)
IP_VS = """IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:01BB rr
  -> C0A84D01:192B      Masq    1      3          0
UDP  0A60000A:0035 rr persistent 10800
TCP  [fd00:0010:0096:0000:0000:0000:0000:0001]:01BB rr
FWM  00000001 wlc
TCP  C0A84D01:7530 rr
TCP  C0A84D01:0050 wlc
"""


@pytest.mark.netns
@pytest.mark.parametrize("backend", BACKENDS)
def test_nftables_mode_goes_after_the_first_sync(backend):
    with node(backend) as it:
        for family, kind in (("ip", "ipv4_addr"), ("ip6", "ipv6_addr")):
            it.run("nft", "-f", "-", stdin=NFTABLES_MODE.format(family=family, kind=kind))
        it.api.bulk_put(cluster(2))
        it.start()
        it.wait_ready()
        eventually(lambda: "kube-proxy" not in it.run("nft", "list", "tables"), "the tables gone")
        assert it.run("nft", "list", "tables").count(" mine") == 2
        assert it.table().chains["KUBE-SERVICES"]
        eventually(lambda: it.log.read_text().count("nftables mode removed") == 2, "told for both families")


@pytest.mark.netns
def test_nftables_mode_stays_while_nothing_of_ours_stands():
    with node("nft") as it:
        it.run("nft", "-f", "-", stdin=NFTABLES_MODE.format(family="ip", kind="ipv4_addr"))
        it.api.faults.hang(resource="services", times=None)
        it.start()
        eventually(lambda: it.get(10256, "/livez")[0], "the daemon serves")
        assert it.get(10256, "/readyz")[0] == 503
        assert "table ip kube-proxy" in it.run("nft", "list", "tables")


@pytest.mark.netns
def test_cleanup_removes_nftables_mode():
    with bare() as it:
        for family, kind in (("ip", "ipv4_addr"), ("ip6", "ipv6_addr")):
            it.run("nft", "-f", "-", stdin=NFTABLES_MODE.format(family=family, kind=kind))
        for _ in range(2):
            assert it.program("--cleanup").returncode == 0
            assert "kube-proxy" not in it.run("nft", "list", "tables").stdout
        assert it.run("nft", "list", "tables").stdout.count(" mine") == 2


@pytest.mark.netns
@pytest.mark.parametrize("backend", BACKENDS)
def test_cleanup_removes_ipvs_mode(backend):
    with bare() as it:
        it.run("ipset", "restore", stdin=SETS)
        it.run("ip", "link", "add", "kube-ipvs0", "type", "bridge")
        before = it.plain(backend, "IPv4")
        it.restore(backend, "IPv4", IPVS_RULES)
        done = it.program("--cleanup")
        assert done.returncode == 0, done.stderr
        assert it.plain(backend, "IPv4") == before
        assert it.run("ipset", "list", "-name").stdout == "mine\n"
        assert "kube-ipvs0" not in it.run("ip", "link").stdout


@pytest.mark.netns
def test_without_the_interface_nothing_of_ipvs_is_touched():
    with bare() as it:
        it.run("ipset", "restore", stdin=SETS)
        assert it.program("--cleanup").returncode == 0
        assert "KUBE-LOOP-BACK" in it.run("ipset", "list", "-name").stdout


@pytest.mark.netns
def test_the_daemon_reports_ipvs_mode_and_works():
    with node("nft") as it:
        it.run("ipset", "restore", stdin=SETS)
        it.run("ip", "link", "add", "kube-ipvs0", "type", "bridge")
        it.run("iptables-nft-restore", "--noflush", stdin=IPVS_RULES)
        it.api.bulk_put(cluster(2))
        it.start()
        it.wait_ready()
        assert "interface kube-ipvs0, 3 ipsets" in it.words()
        assert it.stop(signal.SIGTERM) == 0
        assert "KUBE-LOOP-BACK" in it.run("ipset", "list", "-name"), "only --cleanup removes them"


def test_virtual_servers_are_read():
    assert parse_ip_vs(IP_VS) == (
        VirtualServer("TCP", "10.96.0.1", 443),
        VirtualServer("UDP", "10.96.0.10", 53),
        VirtualServer("TCP", "fd00:10:96::1", 443),
        VirtualServer("TCP", "192.168.77.1", 30000),
        VirtualServer("TCP", "192.168.77.1", 80),
    )


def test_virtual_servers_of_others_stay():
    kept = belonging(parse_ip_vs(IP_VS), frozenset({"10.96.0.1", "fd00:10:96::1"}), frozenset({"192.168.77.1"}))
    assert kept == (
        VirtualServer("TCP", "10.96.0.1", 443),
        VirtualServer("TCP", "fd00:10:96::1", 443),
        VirtualServer("TCP", "192.168.77.1", 30000),
    )


def test_leftovers_in_words():
    assert str(Ipvs()) == "nothing"
    assert not Ipvs()
    found = Ipvs(interface=True, sets=("KUBE-A",), servers=(VirtualServer("TCP", "10.96.0.1", 443),))
    assert str(found) == "interface kube-ipvs0, 1 ipsets, 1 virtual servers"


def test_without_chains_of_ipvs_mode_there_is_nothing_to_restore():
    assert ipvs_removal({}) == ""
