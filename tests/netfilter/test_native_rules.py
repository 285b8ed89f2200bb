"""A table that iptables-save cannot print is unreadable, not empty: the kernel itself is asked."""

import pytest

from pykubeproxy.model.addresses import FAMILIES
from pykubeproxy.netfilter import legacytable, native
from pykubeproxy.rules.names import FIREWALL, TABLES
from tests.support.node import cluster, endpoint_slice, eventually, inside, node, pod

pytestmark = pytest.mark.netns

NATIVE = "ip daddr { 198.51.100.7, 198.51.100.8 } ct mark set 7"
RESTORES = 'pykubeproxy_restores_total{ip_family="IPv4",result="success"}'


def add_native_rule(it, table, chain):
    it.run("nft", "add", "rule", "ip", table, chain, NATIVE)
    assert "incompatible" in it.save(table=table), "control: the rule makes the table unreadable"


@pytest.mark.parametrize(("table", "chain"), [("filter", "FORWARD"), ("nat", "PREROUTING")])
def test_restart_writes_nothing_and_changes_arrive(table, chain):
    with node("nft") as it:
        it.api.bulk_put(cluster(5))
        it.start()
        it.wait_ready()
        add_native_rule(it, table, chain)
        before = it.run("nft", "-s", "list", "ruleset")
        it.stop()
        it.start()
        it.wait_ready()
        assert it.metric(RESTORES) == 0
        assert it.run("nft", "-s", "list", "ruleset") == before

        it.api.put(endpoint_slice(3, [pod(3, 0)]))
        eventually(lambda: it.metric(RESTORES) == 1, "the change is written")
        it.api.delete("Service", "default", "svc-4")
        eventually(lambda: it.metric(RESTORES) == 2, "the deletion is written")
        assert "ct mark set 0x00000007" in it.run("nft", "list", "chain", "ip", table, chain)


def test_base_chains_of_somebody_else_in_our_tables_change_nothing():
    with node("nft") as it:
        it.run("iptables-nft", "-A", "FORWARD", "-j", "ACCEPT")
        it.run("iptables-nft", "-t", "nat", "-A", "OUTPUT", "-j", "ACCEPT")
        for table, kind in (("filter", "filter hook input priority 10"), ("nat", "nat hook prerouting priority -90")):
            it.run("nft", "add", "chain", "ip", table, "foreign", f"{{ type {kind}; }}")
            assert "incompatible base-chains" in it.save(table=table), "control: iptables does not print the chain"
        it.api.bulk_put(cluster(5))
        it.start()
        it.wait_ready()
        standing = inside(it.name, lambda: native.base_chains("IPv4", "nat"))
        assert ("foreign", "PREROUTING", -90, "nat") in standing
        assert ("PREROUTING", "PREROUTING", -100, "nat") in standing
        written = it.metric(RESTORES)
        it.api.delete("Service", "default", "svc-4")
        eventually(lambda: it.metric(RESTORES) == written + 1, "the deletion is written")
        it.stop()
        it.start()
        it.wait_ready()
        assert it.metric(RESTORES) == 0


def test_netlink_tells_what_iptables_tells():
    """Where both can read, they agree; where iptables cannot, netlink still names chains and jumps."""
    with node("nft") as it:
        it.api.bulk_put(cluster(3))
        it.start()
        it.wait_ready()
        it.stop()
        for table in ("filter", "nat", "mangle"):
            names = inside(it.name, lambda table=table: native.chain_names("IPv4", table))
            assert set(names) <= set(it.table(table=table).chains)
            assert {n for n in it.table(table=table).chains if n.startswith("KUBE-")} <= set(names)
        text = it.table(table="filter").chains["FORWARD"]
        assert inside(it.name, lambda: native.jumps("IPv4", "filter", "FORWARD")) == text
        add_native_rule(it, "filter", "FORWARD")
        assert inside(it.name, lambda: native.jumps("IPv4", "filter", "FORWARD")) == text


def test_a_builtin_chain_with_another_priority_is_named_and_no_service_is_blamed():
    """iptables refuses to use it, so nothing can be done but to say so and to try again."""
    with node("nft") as it:
        it.api.bulk_put(cluster(2))
        it.run("nft", "add table ip nat; add chain ip nat PREROUTING { type nat hook prerouting priority 0; }")
        it.start()
        eventually(lambda: "another hook or priority" in it.words(), f"named\n{it.words()}")
        assert it.metric('pykubeproxy_quarantined_services{ip_family="IPv4"}') == 0
        it.run("nft", "delete chain ip nat PREROUTING")
        it.wait_ready()
        assert "KUBE-SERVICES" in it.table().chains["PREROUTING"]


def test_a_chain_with_our_prefix_and_a_name_too_long_for_iptables_stands_in_no_way():
    """nft takes such names; an input that mentions one is refused as a whole."""
    long = "KUBE-SVC-" + 30 * "A"
    with node("nft") as it:
        it.api.bulk_put(cluster(2))
        it.run("nft", f"add table ip nat; add chain ip nat {long}; add rule ip nat {long} accept")
        it.start()
        it.wait_ready()
        assert "accept" in it.run("nft", f"list chain ip nat {long}")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_legacy_table_tells_what_iptables_tells(family):
    with node("legacy") as it:
        it.api.bulk_put(cluster(3))
        it.start()
        it.wait_ready()
        it.stop()
        for table in TABLES:
            saved = it.table(family, table).chains
            assert set(inside(it.name, lambda table=table: legacytable.chain_names(family, table))) == set(saved)
            for chain in {"FORWARD", "INPUT", "PREROUTING", "POSTROUTING", FIREWALL} & saved.keys():
                told = inside(it.name, lambda table=table, chain=chain: legacytable.jumps(family, table, chain))
                assert told == saved[chain]
