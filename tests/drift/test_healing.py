"""Whatever somebody else does to our rules is undone at once, by few restores, and nothing foreign is touched."""

import pytest

from tests.drift.drifting import (
    BACKENDS,
    FAMILIES,
    WEB,
    detected,
    eventually,
    everything,
    foreign_rules,
    healed,
    iptables,
    restore,
    restores,
    running,
    words,
)

pytestmark = pytest.mark.netns

SERVICES_JUMP = '-D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES\n'
SEP = WEB.endpoint("10.244.0.1:8080")

ONE_COMMIT = {
    # name: (table, document of one commit by somebody else)
    "deleted jump": ("nat", f"*nat\n{SERVICES_JUMP}COMMIT\n"),
    "second jump": ("nat", f"*nat\n{SERVICES_JUMP.replace('-D', '-A')}COMMIT\n"),
    "filter jump": (
        "filter",
        '*filter\n-D FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD\nCOMMIT\n',
    ),
    "flushed chain": ("nat", f"*nat\n:{WEB.cluster} - [0:0]\nCOMMIT\n"),
    "deleted chain": ("nat", f"*nat\n:{WEB.cluster} - [0:0]\n-F {SEP}\n-X {SEP}\nCOMMIT\n"),
    "edited rule": (
        "nat",
        f"*nat\n:{SEP} - [0:0]\n-A {SEP} -p tcp -m tcp -j DNAT --to-destination 10.9.9.9:80\nCOMMIT\n",
    ),
    "added rule": ("nat", f"*nat\n-I {WEB.cluster} 1 -s 192.0.2.0/24 -j RETURN\nCOMMIT\n"),
    "edited base chain": ("nat", "*nat\n-I KUBE-POSTROUTING 1 -j RETURN\nCOMMIT\n"),
    "edited dispatch": ("nat", "*nat\n-I KUBE-SERVICES 1 -d 10.96.0.0/16 -j RETURN\nCOMMIT\n"),
    "edited filter chain": ("filter", "*filter\n:KUBE-FORWARD - [0:0]\nCOMMIT\n"),
    "removed guard": ("filter", "*filter\n:KUBE-FIREWALL - [0:0]\nCOMMIT\n"),
    "stale chain": (
        "nat",
        "*nat\n:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]\n-A KUBE-SVC-AAAAAAAAAAAAAAAA -j RETURN\nCOMMIT\n",
    ),
    "removed canary": ("mangle", "*mangle\n:KUBE-PROXY-CANARY - [0:0]\n-X KUBE-PROXY-CANARY\nCOMMIT\n"),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fault", ONE_COMMIT)
def test_one_commit_takes_one_restore(backend, fault):
    table, document = ONE_COMMIT[fault]
    with running(backend) as it:
        right, foreign, before = everything(it, in_order=False), foreign_rules(it), restores(it)
        restore(it, "IPv4", document)
        eventually(lambda: healed(it, table) or fault == "second jump", f"healed\n{it.words()}")
        eventually(lambda: everything(it, in_order=False) == right, f"everything as it was\n{it.words()}")
        assert foreign_rules(it) == foreign
        assert restores(it) == before + 1
        assert detected(it, table) == healed(it, table)
        assert len(words(it, "drift", table=table, family="IPv4")) == (fault != "second jump")
        assert words(it, "drift", family="IPv6") == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_renamed_chain(backend):
    with running(backend) as it:
        right = everything(it)
        iptables(it, "IPv4", "-t", "nat", "-E", WEB.cluster, "SOMETHING-ELSE")
        eventually(lambda: healed(it, "nat"), f"healed\n{it.words()}")
        eventually(lambda: everything(it) == right, "everything as it was")
        # The renamed chain is not ours any more, whatever is in it.
        assert ("nat", "SOMETHING-ELSE") in foreign_rules(it)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_nat_table_flushed_while_the_canary_stands(backend):
    """kube-proxy looks for its canary in mangle, and so never notices this (k/k#129128)."""
    with running(backend) as it:
        right, before = everything(it), restores(it)
        for family in FAMILIES:
            iptables(it, family, "-t", "nat", "-F")
        for family in FAMILIES:
            eventually(lambda family=family: healed(it, "nat", family), f"healed in {family}\n{it.words()}")
        eventually(lambda: everything(it) == right, "everything as it was")
        assert restores(it) == before + 1
        kept = foreign_rules(it)
        assert kept["nat", "CNI-HOSTPORT-DNAT"] == []  # it was emptied by the other, and is not ours to fill
        assert ("nat", "POSTROUTING") not in kept
        assert ("filter", "DOCKER-USER") in kept


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_tables_emptied(backend):
    with running(backend) as it:
        right = everything(it)
        for family in FAMILIES:
            empty = "".join(f"*{table}\nCOMMIT\n" for table in ("mangle", "filter", "nat"))
            restore(it, family, empty, flush=True)
        eventually(lambda: everything(it) == right, f"everything as it was\n{it.words()}")
        assert foreign_rules(it) == {}
        for family in FAMILIES:
            for table in ("mangle", "filter", "nat"):
                assert detected(it, table, family) == healed(it, table, family) > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_whole_restore_without_noflush(backend):
    """What a network script does at its start (R035): its own rules and nothing else."""
    own = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -m tcp --dport 2222 -j REDIRECT --to-ports 22\nCOMMIT\n"
    with running(backend) as it:
        right, before = everything(it), restores(it)
        restore(it, "IPv4", own, flush=True)
        eventually(lambda: healed(it, "nat"), f"healed\n{it.words()}")
        eventually(lambda: everything(it) == right, "everything as it was")
        assert restores(it) == before + 1
        assert foreign_rules(it)["nat", "PREROUTING"] == [
            "-A PREROUTING -p tcp -m tcp --dport 2222 -j REDIRECT --to-ports 22"
        ]
        assert ("nat", "CNI-HOSTPORT-DNAT") not in foreign_rules(it)
        assert len(words(it, "drift", table="nat")) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reload_as_firewalld_makes_it(backend):
    """Many small writes: policies shut, all emptied table by table, own chains built up, policies opened again."""
    steps = [f"{{}} -P {chain} DROP" for chain in ("INPUT", "FORWARD", "OUTPUT")]
    steps += [f"{{}} -t {table} -{how}" for table in ("nat", "mangle", "filter") for how in "FX"]
    steps += ["{} -N IN_public", "{} -A INPUT -j IN_public", "{} -A IN_public -p tcp --dport 22 -j ACCEPT"]
    steps += ["{} -t nat -N POST_public", "{} -t nat -A POSTROUTING -j POST_public"]
    steps += [f"{{}} -P {chain} ACCEPT" for chain in ("INPUT", "FORWARD", "OUTPUT")]
    with running(backend, foreign="") as it:
        right = everything(it)
        program = f"iptables-{backend}" + (" -w 30" if backend == "legacy" else "")
        # Where we heal between two of its steps, -X finds our chains in use, as it does with kube-proxy.
        it.run("sh", "-c", "; ".join(f"{step.format(program)} 2>&1" for step in steps))
        eventually(lambda: healed(it, "nat"), f"healed\n{it.words()}")
        eventually(lambda: everything(it) == right, f"everything as it was\n{it.words()}")
        assert foreign_rules(it) == {
            ("filter", "IN_public"): ["-A IN_public -p tcp -m tcp --dport 22 -j ACCEPT"],
            ("filter", "INPUT"): ["-A INPUT -j IN_public"],
            ("nat", "POST_public"): [],
            ("nat", "POSTROUTING"): ["-A POSTROUTING -j POST_public"],
        }
        assert restores(it) <= len(steps)


def test_the_whole_of_nftables_flushed():
    """What firewalld's nftables back end and many a boot script do."""
    with running("nft") as it:
        right = everything(it)
        it.run("nft", "flush ruleset; add table inet firewalld; add chain inet firewalld filter_INPUT")
        eventually(lambda: everything(it) == right, f"everything as it was\n{it.words()}")
        assert "filter_INPUT" in it.run("nft", "list", "table", "inet", "firewalld")
        for family in FAMILIES:
            eventually(lambda family=family: healed(it, "mangle", family), f"all healed in {family}")
