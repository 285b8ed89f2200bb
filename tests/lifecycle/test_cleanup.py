"""``--cleanup``: own chains only, both families of both backends, no API server, as often as one likes."""

import pytest

from pykubeproxy.rules.names import is_ours
from tests.lifecycle.bare import BACKENDS, FAMILIES, bare, left_by_kube_proxy

pytestmark = pytest.mark.netns

FOREIGN = """*mangle
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*filter
:DOCKER-USER - [0:0]
:KUBE-NETWORK-POLICIES - [0:0]
-A FORWARD -j DOCKER-USER
-A DOCKER-USER -j RETURN
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A FORWARD -m comment --comment "kube-router netpol" -j KUBE-NETWORK-POLICIES
COMMIT
*nat
:CNI-HOSTPORT-DNAT - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -s 10.244.0.0/16 -j MASQUERADE
COMMIT
"""
FOREIGN6 = FOREIGN.replace("10.244.0.0/16", "fd00:10:244::/48")


def foreign(family):
    return FOREIGN if family == "IPv4" else FOREIGN6


@pytest.mark.parametrize("backend", BACKENDS)
def test_before_and_after_are_equal(backend):
    with bare() as it:
        for family in FAMILIES:
            it.restore(backend, family, foreign(family))
        before = {family: it.plain(backend, family) for family in FAMILIES}
        for family in FAMILIES:
            it.restore(backend, family, left_by_kube_proxy("154", backend, family))
        assert len(it.chains(backend, "IPv4")) > 20
        done = it.program("--cleanup")
        assert done.returncode == 0, done.stderr
        assert {family: it.plain(backend, family) for family in FAMILIES} == before


def test_both_backends_are_cleaned_whatever_the_flag_says():
    with bare() as it:
        for backend in BACKENDS:
            for family in FAMILIES:
                it.restore(backend, family, left_by_kube_proxy("154", backend, family))
        assert it.program("--cleanup", "--iptables-backend", "nft").returncode == 0
        assert {b + f: it.chains(b, f) for b in BACKENDS for f in FAMILIES} == {
            b + f: set() for b in BACKENDS for f in FAMILIES
        }


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_time_writes_nothing(backend):
    with bare() as it:
        it.restore(backend, "IPv4", left_by_kube_proxy("154", backend, "IPv4"))
        shim = it.folder / "bin"
        shim.mkdir()
        for stem in ("iptables", "ip6tables"):
            for kind in BACKENDS:
                name = f"{stem}-{kind}-restore"
                real = it.run("which", name).stdout.strip()
                (shim / name).write_text(f'#!/bin/sh\necho "{name}" >> {it.folder}/calls\nexec {real} "$@"\n')
                (shim / name).chmod(0o755)
        env = {"PATH": f"{shim}:{it.environ['PATH']}"}
        assert it.program("--cleanup", env=env).returncode == 0
        assert (it.folder / "calls").read_text()
        (it.folder / "calls").write_text("")
        assert it.program("--cleanup", env=env).returncode == 0
        assert (it.folder / "calls").read_text() == ""


@pytest.mark.parametrize("value", [0, 1])
def test_route_localnet_is_left_and_named(value):
    setting = "net.ipv4.conf.all.route_localnet"
    with bare() as it:
        it.run("sysctl", "-qw", f"{setting}={value}")
        assert (setting in it.program("--cleanup").stderr) is bool(value)
        assert it.run("sysctl", "-n", setting).stdout == f"{value}\n"


def test_looking_creates_no_legacy_tables():
    with bare() as it:
        assert it.program("--cleanup").returncode == 0
        assert it.run("cat", "/proc/net/ip_tables_names").stdout == ""


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_dispatch_trees_go_too(backend):
    chains = ("KUBE-SVC-IP-0A600000-21", "KUBE-SVC-IP-0A600000-24", "KUBE-SERVICES", "KUBE-NODEPORTS")
    chains += ("KUBE-SVC-NP-TCP-28672-32767", "KUBE-SVC-NP-TCP-29696-30207")
    tree = "".join(f":{chain} - [0:0]\n" for chain in chains)
    document = (
        f"*nat\n{tree}"
        "-A KUBE-SERVICES -d 10.96.0.0/21 -j KUBE-SVC-IP-0A600000-21\n"
        "-A KUBE-SVC-IP-0A600000-21 -d 10.96.0.0/24 -j KUBE-SVC-IP-0A600000-24\n"
        "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n"
        "-A KUBE-NODEPORTS -p tcp -m tcp --dport 28672:32767 -j KUBE-SVC-NP-TCP-28672-32767\n"
        "-A KUBE-SVC-NP-TCP-28672-32767 -p tcp -m tcp --dport 29696:30207 -j KUBE-SVC-NP-TCP-29696-30207\n"
        "-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n"
    )
    with bare() as it:
        it.restore(backend, "IPv4", document)
        assert it.program("--cleanup").returncode == 0
        assert it.plain(backend, "IPv4") == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_chain_that_a_foreign_rule_needs_is_emptied_left_and_named(backend):
    with bare() as it:
        it.restore(backend, "IPv4", left_by_kube_proxy("154", backend, "IPv4"))
        it.restore(backend, "IPv4", "*nat\n:MINE - [0:0]\n-A MINE -s 192.0.2.1/32 -j KUBE-MARK-MASQ\nCOMMIT\n")
        for _ in range(2):
            done = it.program("--cleanup")
            assert done.returncode == 1
            last = done.stderr.splitlines()[-1]
            assert "KUBE-MARK-MASQ of nat stays" in last
            assert "-A MINE -s 192.0.2.1/32 -j KUBE-MARK-MASQ" in last
            assert it.chains(backend, "IPv4") == {"KUBE-MARK-MASQ"}
            assert "-A KUBE-MARK-MASQ" not in it.save(backend, "IPv4")


def test_a_table_with_native_nft_rules_is_cleaned_too():
    with bare() as it:
        it.restore("nft", "IPv4", left_by_kube_proxy("154", "nft", "IPv4"))
        it.run("nft", "add", "rule", "ip", "nat", "PREROUTING", "numgen", "random", "mod", "2", "0", "accept")
        it.run("nft", "add", "chain", "ip", "nat", "native")
        assert "incompatible" in it.save("nft", "IPv4"), "the control: iptables cannot print this table"
        done = it.program("--cleanup")
        assert done.returncode == 0, done.stderr
        left = it.run("nft", "list", "ruleset").stdout
        assert [line for line in left.splitlines() if "KUBE-" in line and "KUBE-FIREWALL" not in line] == []
        assert "chain native" in left
        assert "numgen random" in left


def test_what_is_ours_is_what_kube_proxy_cleans():
    ours = ("KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ", "KUBE-SVC-A", "KUBE-SEP-A")
    theirs = (
        "KUBE-FIREWALL",
        "KUBE-KUBELET-CANARY",
        "KUBE-IPTABLES-HINT",
        "KUBE-NETWORK-POLICIES",
        "KUBE-ROUTER-INPUT",
    )
    assert all(is_ours("nat", chain) for chain in ours)
    assert not any(is_ours(table, chain) for table in ("nat", "filter", "mangle") for chain in theirs)


def test_jumps_behind_a_rule_that_iptables_cannot_print_go_too():
    """iptables-nft deletes by value by printing rule by rule, so it never comes to those behind it."""
    with bare() as it:
        it.restore("nft", "IPv4", left_by_kube_proxy("154", "nft", "IPv4"))
        for chain in ("nat PREROUTING", "nat POSTROUTING", "filter FORWARD"):
            it.run("nft", f"insert rule ip {chain} meta cpu 0 accept")
        done = it.program("--cleanup")
        assert done.returncode == 0, done.stderr
        left = it.run("nft", "list", "ruleset").stdout
        assert [line for line in left.splitlines() if "KUBE-" in line and "KUBE-FIREWALL" not in line] == []
        assert left.count("meta cpu 0 accept") == 3


def test_what_nothing_refers_to_goes_although_a_native_map_leads_to_one_chain():
    with bare() as it:
        it.restore("nft", "IPv4", left_by_kube_proxy("154", "nft", "IPv4"))
        it.run("nft", "add chain ip nat mine; add rule ip nat mine ip daddr vmap { 192.0.2.1 : jump KUBE-MARK-MASQ }")
        done = it.program("--cleanup")
        assert done.returncode == 1
        assert "KUBE-MARK-MASQ of nat stays, empty" in done.stderr.splitlines()[-1]
        assert it.chains("nft", "IPv4") == {"KUBE-MARK-MASQ"}
