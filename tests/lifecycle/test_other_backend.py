"""Rules in the other iptables backend, ours or kube-proxy's, are taken over: first written here, then removed there."""

import signal

import pytest

from tests.lifecycle.bare import BACKENDS, FAMILIES, left_by_kube_proxy
from tests.support.node import cluster, eventually, node

pytestmark = pytest.mark.netns
OTHER = {"legacy": "nft", "nft": "legacy"}
STEM = {"IPv4": "iptables", "IPv6": "ip6tables"}
MINE = "*filter\n:MINE - [0:0]\n-A FORWARD -s 192.0.2.0/24 -j MINE\n-A MINE -j DROP\nCOMMIT\n"


def kube_chains(it, backend, family):
    lines = it.run(f"{STEM[family]}-{backend}-save").splitlines()
    return [line.split()[0][1:] for line in lines if line.startswith(":KUBE-") and "KUBE-FIREWALL" not in line]


def put(it, backend, family, document):
    it.run(f"{STEM[family]}-{backend}-restore", "--noflush", stdin=document)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_kube_proxy_left_there_goes_after_the_first_sync(backend):
    other = OTHER[backend]
    with node(backend) as it:
        for family in FAMILIES:
            put(it, other, family, left_by_kube_proxy("154", other, family))
        put(it, other, "IPv4", MINE)
        it.api.bulk_put(cluster(3))
        it.start()
        it.wait_ready()
        for family in FAMILIES:
            eventually(lambda family=family: not kube_chains(it, other, family), f"{other} {family} cleaned")
            assert kube_chains(it, backend, family)
        assert "-A FORWARD -s 192.0.2.0/24 -j MINE" in it.run(f"iptables-{other}-save")
        eventually(lambda: it.log.read_text().count("other backend taken over") == 2, "told for both families")


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_stays_while_nothing_of_ours_stands_here(backend):
    other = OTHER[backend]
    with node(backend) as it:
        put(it, other, "IPv4", left_by_kube_proxy("154", other, "IPv4"))
        before = kube_chains(it, other, "IPv4")
        it.api.faults.hang(resource="endpointslices", times=None)
        it.start()
        eventually(lambda: it.get(10256, "/livez")[0], "the daemon serves")
        assert it.get(10256, "/readyz")[0] == 503
        assert it.stop(signal.SIGTERM) == 0
        assert kube_chains(it, other, "IPv4") == before


def test_auto_follows_kubelet_and_the_other_is_cleaned():
    with node("nft") as it:
        put(it, "legacy", "IPv4", "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n")
        put(it, "nft", "IPv4", left_by_kube_proxy("154", "nft", "IPv4"))
        it.api.bulk_put(cluster(3))
        it.start("--iptables-backend", "auto")
        it.wait_ready()
        assert "KUBE-SERVICES" in kube_chains(it, "legacy", "IPv4")
        eventually(lambda: not kube_chains(it, "nft", "IPv4"), "nft cleaned")
        assert "KUBE-IPTABLES-HINT" in it.run("iptables-legacy-save", "-t", "mangle")


def test_no_legacy_table_is_made_by_looking_for_one():
    with node("nft") as it:
        it.api.bulk_put(cluster(1))
        it.start()
        it.wait_ready()
        assert it.stop(signal.SIGTERM) == 0
        assert it.run("cat", "/proc/net/ip_tables_names") == ""
        assert it.run("cat", "/proc/net/ip6_tables_names") == ""
