"""The legacy watch: the lock file tells of writers, the digest of what they did; our own writes are no news."""

import pytest

from pykubeproxy.netfilter import legacywatch
from pykubeproxy.netfilter.contents import tables_in_use
from pykubeproxy.netfilter.process import SubprocessRunner
from pykubeproxy.netfilter.suspects import NOTHING, Suspects
from pykubeproxy.netfilter.watch import WatchedRunner
from tests.drift.listening import OURS, listening
from tests.support.kernel import netns
from tests.support.node import eventually, inside

pytestmark = pytest.mark.netns

SVC = "KUBE-SVC-AAAAAAAAAAAAAAAA"
EDIT = f"*nat\n-A {SVC} -j ACCEPT\nCOMMIT\n"
NAT = Suspects(frozenset({"nat"}))


def test_a_strangers_edit_is_noticed_and_its_table_named_once():
    with listening("legacy", document=OURS) as it:
        it.other(EDIT)
        eventually(lambda: {"IPv4", "IPv6"} <= set(it.told), "the notice; the lock is common to both families")
        assert it.look() == NAT
        assert it.look() == NOTHING
        assert it.look("IPv6") == NOTHING


@pytest.mark.parametrize("table", ["mangle", "filter", "nat"])
@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
def test_the_table_is_named(table, family):
    with listening("legacy", document=OURS) as it:
        it.other(f"*{table}\n:KUBE-SVC-X - [0:0]\nCOMMIT\n", family=family)
        assert it.look(family) == Suspects(frozenset({table}))


def test_an_edit_of_the_same_size_is_seen():
    with listening("legacy", document=OURS) as it:
        it.other(f"*nat\n-F {SVC}\n-A {SVC} -m mark --mark 0x2 -j RETURN\nCOMMIT\n")
        assert it.look() == NAT


def test_counters_are_no_change():
    with listening("legacy", document=OURS) as it:
        it.run("ip", "link", "set", "lo", "up")
        it.run("ping", "-q", "-c", "2", "127.0.0.1")
        assert it.look() == NOTHING


def test_a_reader_with_the_lock_is_noticed_and_found_harmless():
    with listening("legacy", document=OURS) as it:
        it.run("iptables-legacy", "-w", "30", "-S")
        eventually(lambda: it.told, "the notice")
        assert it.look() == NOTHING


def test_a_writer_without_the_lock_is_found_by_looking():
    with listening("legacy", document=OURS) as it:
        it.other(EDIT, lock=it.lock.parent / "another.lock")
        assert it.look() == NAT
        assert it.told == []


def test_our_own_writes_are_no_news():
    with listening("legacy", document=OURS) as it:
        for number in range(20):
            for family in ("IPv4", "IPv6"):
                it.own(
                    f"*nat\n:KUBE-SVC-{number:016} - [0:0]\nCOMMIT\n*filter\n:KUBE-FORWARD - [0:0]\nCOMMIT\n",
                    family=family,
                )
        assert it.look() == NOTHING
        assert it.look("IPv6") == NOTHING
        assert it.told == []
        it.other(EDIT)
        assert it.look() == NAT


def test_a_strangers_write_between_ours_is_not_lost():
    with listening("legacy", document=OURS) as it:

        class Between(SubprocessRunner):
            def run(self, argv, stdin=b"", **more):
                done = it.runner._inner.run(argv, stdin, **more)
                it.other(EDIT)  # our program is not known to have ended yet
                return done

        runner = WatchedRunner(Between(), it.watch)
        own = "*nat\n:KUBE-SVC-BBBBBBBBBBBBBBBB - [0:0]\nCOMMIT\n"
        for _ in range(5):
            runner.run(it.restore("IPv4"), own.encode())
            assert it.look() == NAT
            it.own(own)
            it.other(EDIT)
            it.own(own)
            assert it.look() == NAT


def test_a_look_while_a_program_of_ours_runs_takes_nothing_for_granted():
    with listening("legacy", document=OURS, start=False) as it:  # nobody settles anything by itself

        class Meanwhile(SubprocessRunner):
            def run(self, argv, stdin=b"", **more):
                done = it.runner._inner.run(argv, stdin, **more)
                it.other(EDIT, family="IPv6")
                # IPv6 was written by us a moment ago, so nobody knows what it should hold.
                assert it.look("IPv6") == NOTHING
                return done

        it.own("*nat\n:KUBE-SVC-BBBBBBBBBBBBBBBB - [0:0]\nCOMMIT\n", family="IPv6")
        WatchedRunner(Meanwhile(), it.watch).run(it.restore("IPv4"), b"*nat\n:KUBE-SVC-B - [0:0]\nCOMMIT\n")
        assert it.look("IPv6") == NAT


def test_what_we_wrote_is_settled_by_itself():
    """So that a writer without the lock is found even if it comes before the next look."""
    with listening("legacy", document=OURS) as it:
        it.own("*nat\n:KUBE-SVC-BBBBBBBBBBBBBBBB - [0:0]\nCOMMIT\n")
        eventually(lambda: "nat" in it.watch._known["IPv4"], "settled")
        it.other(EDIT, lock=it.lock.parent / "another.lock")
        assert it.look() == NAT


def test_what_we_wrote_into_a_large_table_is_known_by_its_size(monkeypatch):
    """Its digest would cost more than the change; a writer without the lock is found all the same."""
    own = "*nat\n:KUBE-SVC-BBBBBBBBBBBBBBBB - [0:0]\n-A KUBE-SVC-BBBBBBBBBBBBBBBB -j RETURN\nCOMMIT\n"
    with listening("legacy", document=OURS) as it:
        it.own(own)
        eventually(lambda: "nat" in it.watch._known["IPv4"], "what a digest costs")
        monkeypatch.setattr(legacywatch, "CHEAP", -1.0)
        for find in (NOTHING, NAT, NOTHING):
            it.own(own)
            eventually(lambda: "nat" in it.watch._sizes["IPv4"], "the size")
            assert "nat" not in it.watch._known["IPv4"]
            if find is NAT:
                it.other(EDIT, lock=it.lock.parent / "another.lock")
            assert it.look() == find
        it.other(EDIT, lock=it.lock.parent / "another.lock")
        assert it.look() == NAT  # from the look on it is known by its digest


def test_what_is_plainly_missing_is_told_before_the_others_have_finished(monkeypatch):
    monkeypatch.setattr(legacywatch, "QUIET", 3600.0)
    monkeypatch.setattr(legacywatch, "PATIENCE", 3600.0)
    with listening("legacy", document=OURS) as it:
        it.other("*mangle\n-X KUBE-PROXY-CANARY\nCOMMIT\n")
        eventually(lambda: "IPv4" in it.told, "the glance through python-iptables")


def test_a_lock_file_that_is_replaced_is_watched_on():
    with listening("legacy", document=OURS) as it:
        it.lock.unlink()
        eventually(lambda: it.told, "the file is gone: whoever wrote meanwhile is unknown")
        it.look()
        it.look("IPv6")
        eventually(it.lock.exists, "the file is made again")
        it.told.clear()
        it.other(EDIT)
        eventually(lambda: it.told, "the notice")
        assert it.look() == NAT


def test_looking_creates_no_table():
    with listening("legacy") as it, netns() as empty:
        assert it.look() == NOTHING
        assert (
            inside(it.netns, lambda: tables_in_use("IPv4"))
            == inside(empty, lambda: tables_in_use("IPv4"))
            == frozenset()
        )


def test_a_table_that_comes_into_use_is_suspect():
    with listening("legacy") as it:
        it.other("*nat\n:KUBE-SVC-BBBBBBBBBBBBBBBB - [0:0]\nCOMMIT\n")
        assert it.look() == NAT
