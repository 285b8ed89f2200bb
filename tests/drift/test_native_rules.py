"""Foreign rules that iptables does not print, or prints in a strange way: drift is healed all the same."""

from pathlib import Path

import pytest

from pykubeproxy.rules.names import FIREWALL
from tests.drift.drifting import (
    BACKENDS,
    NEVER,
    WEB,
    eventually,
    everything,
    healed,
    iptables,
    restore,
    restores,
    running,
    words,
)

pytestmark = pytest.mark.netns


@pytest.mark.parametrize("rule", ["numgen inc mod 2 0 accept", "meta cpu 0 accept"])
def test_drift_in_a_table_that_iptables_cannot_print(rule):
    with running("nft") as it:
        text, before = iptables(it, "IPv4", "-t", "nat", "-S", WEB.cluster), restores(it)
        it.run("nft", f"add rule ip nat PREROUTING {rule}")
        eventually(lambda: words(it, "table unreadable", table="nat"), f"the table is found unreadable\n{it.words()}")
        restore(it, "IPv4", f"*nat\n:{WEB.cluster} - [0:0]\nCOMMIT\n")
        eventually(lambda: healed(it, "nat"), f"healed\n{it.words()}")
        assert iptables(it, "IPv4", "-t", "nat", "-S", WEB.cluster) == text
        assert restores(it) == before + 1
        assert rule.removesuffix(" accept") in it.run("nft", "list", "chain", "ip", "nat", "PREROUTING")
        it.run("nft", "flush chain ip nat PREROUTING")
        eventually(lambda: "KUBE-SERVICES" in it.run("nft", "list", "chain", "ip", "nat", "PREROUTING"), "the jump")


def test_the_guard_in_a_chain_that_iptables_cannot_print_stands_once():
    """KUBE-FIREWALL is kubelet's as well. Each reading that did not see the guard would append another one."""
    with running("nft") as it:
        before = restores(it)
        it.run("nft", "add rule ip filter KUBE-FIREWALL meta cpu 0 accept")
        eventually(lambda: words(it, "table unreadable", table="filter"), f"found unreadable\n{it.words()}")
        restore(it, "IPv4", "*filter\n:KUBE-FORWARD - [0:0]\nCOMMIT\n")
        eventually(lambda: healed(it, "filter"), f"healed\n{it.words()}")
        assert restores(it) == before + 1
        assert it.run("nft", "list chain ip filter KUBE-FIREWALL").count("drop") == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_comment_with_line_breaks(backend):
    """iptables-save prints them as they are, so the second line looks like a rule of ours."""
    with running(backend) as it:
        right, before = everything(it), restores(it)
        for table, chain in (("filter", "INPUT"), ("nat", "PREROUTING")):
            told = "first\n\n-A KUBE-SERVICES -j DROP\nlast"
            iptables(it, "IPv4", "-t", table, "-A", chain, "-m", "comment", "--comment", told)
        restore(it, "IPv4", f"*nat\n:{WEB.cluster} - [0:0]\nCOMMIT\n")
        eventually(lambda: healed(it, "nat"), f"healed\n{it.words()}")
        assert everything(it) == right
        assert restores(it) == before + 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_match_whose_library_is_not_there(backend, tmp_path):
    """Somebody filters by a match that our image lacks (geoip), so each listing ends there."""
    for path in next(Path("/usr/lib").glob("*/xtables")).iterdir():
        if path.name != "libxt_time.so":
            (tmp_path / path.name).symlink_to(path)
    env = {"XTABLES_LIBDIR": str(tmp_path)}
    with running(backend, env=env) as it:
        foreign = ["-m", "time", "--timestart", "10:00", "-j", "ACCEPT"]
        for table, chain in (
            ("nat", "PREROUTING"),
            ("nat", "POSTROUTING"),
            ("filter", "FORWARD"),
            ("filter", FIREWALL),
        ):
            iptables(it, "IPv4", "-t", table, "-I", chain, *foreign)
        right, before = everything(it), restores(it)
        restore(it, "IPv4", f"*nat\n:{WEB.cluster} - [0:0]\nCOMMIT\n*filter\n:KUBE-FORWARD - [0:0]\nCOMMIT\n")
        for table in ("nat", "filter"):
            eventually(lambda table=table: healed(it, table), f"{table} is healed\n{it.words()}")
        iptables(it, "IPv4", "-t", "nat", "-D", "PREROUTING", "2")
        eventually(lambda: healed(it, "nat") > 1, f"the jump is healed\n{it.words()}")
        assert everything(it) == right
        assert restores(it) <= before + 3
        it.stop()
        it.start(*NEVER, env=env)
        it.wait_ready()
        assert restores(it) == 0
        assert everything(it) == right


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stale_chain_that_a_foreign_rule_needs_is_emptied_and_each_jump_stands_once(backend):
    """The first input, jumps and deletion together, is refused at nat, when filter has been committed already."""
    old = "KUBE-SVC-OLDOLDOLDOLDOLDO"
    stale = f"*nat\n:{old} - [0:0]\n-A {old} -j ACCEPT\n-A PREROUTING -j {old}\nCOMMIT\n"
    with running(backend, foreign=stale) as it:
        eventually(lambda: words(it, "chain not deleted", chain=old, family="IPv4"), f"told\n{it.words()}")
        assert iptables(it, "IPv4", "-t", "nat", "-S", old) == f"-N {old}\n"
        assert f"-A PREROUTING -j {old}\n" in it.save()

        def doubled() -> list[str]:
            _, jumps = everything(it)["IPv4"]
            return [rule for rules in jumps.values() for rule in set(rules) if rules.count(rule) > 1]

        eventually(lambda: not doubled(), f"each jump stands once\n{it.words()}")
