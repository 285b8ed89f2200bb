"""A native nft rule in a table of ours: iptables prints it no more, drift is healed all the same."""

import pytest

from tests.drift.drifting import WEB, eventually, healed, iptables, restore, restores, running, words

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
