"""The nft watch: exactly what strangers changed of ours, in whatever order things happen."""

import pytest

from pykubeproxy.netfilter.process import SubprocessRunner
from pykubeproxy.netfilter.suspects import EVERYTHING, MOST_CHAINS, NOTHING, Suspects
from pykubeproxy.netfilter.watch import WatchedRunner
from tests.drift.listening import OURS, NftPort, listening, waiting_child
from tests.support.node import eventually, inside

pytestmark = pytest.mark.netns

SVC = "KUBE-SVC-AAAAAAAAAAAAAAAA"
EDIT = f"*nat\n-A {SVC} -j ACCEPT\nCOMMIT\n"
ONE = Suspects(frozenset(), frozenset({("nat", SVC)}))


def chains(*names, table="nat"):
    return Suspects(frozenset(), frozenset((table, name) for name in names))


def test_a_strangers_edit_is_noticed_and_named_once():
    with listening("nft", document=OURS) as it:
        it.other(EDIT)
        eventually(lambda: it.told == ["IPv4"], "the notice")
        assert it.look() == ONE
        assert it.look() == NOTHING
        assert it.look("IPv6") == NOTHING
        it.other(EDIT)
        eventually(lambda: it.told == ["IPv4", "IPv4"], "the second notice")


def test_families_are_told_apart():
    with listening("nft", document=OURS) as it:
        it.other(EDIT, family="IPv6")
        eventually(lambda: it.told == ["IPv6"], "the notice")
        assert it.look("IPv4") == NOTHING
        assert it.look("IPv6") == ONE


def test_our_own_writes_are_no_news():
    with listening("nft", document=OURS) as it:
        for number in range(20):
            it.own(f"*nat\n:KUBE-SVC-{number:016} - [0:0]\n-A {SVC} -j ACCEPT\nCOMMIT\n")
            it.own("*filter\n:KUBE-FORWARD - [0:0]\nCOMMIT\n*mangle\n:KUBE-PROXY-CANARY - [0:0]\nCOMMIT\n")
        assert it.look() == NOTHING
        assert it.told == []


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ("*nat\n-A CNI-A -j ACCEPT\nCOMMIT\n", NOTHING),
        ("*nat\n:CNI-B - [0:0]\nCOMMIT\n", NOTHING),
        ("*raw\n-A PREROUTING -j ACCEPT\nCOMMIT\n", NOTHING),
        ("*mangle\n-A PREROUTING -j ACCEPT\nCOMMIT\n", NOTHING),
        ("*nat\n-A PREROUTING -j CNI-A\nCOMMIT\n", chains("PREROUTING")),
        ("*nat\n-D PREROUTING -j KUBE-SERVICES\nCOMMIT\n", chains("PREROUTING")),
        ("*nat\n:KUBE-SEP-BBBBBBBBBBBBBBBB - [0:0]\nCOMMIT\n", chains("KUBE-SEP-BBBBBBBBBBBBBBBB")),
        ("*filter\n-A KUBE-FIREWALL -j RETURN\nCOMMIT\n", chains("KUBE-FIREWALL", table="filter")),
        ("*mangle\n-X KUBE-PROXY-CANARY\nCOMMIT\n", chains("KUBE-PROXY-CANARY", table="mangle")),
        (f"*nat\n-F {SVC}\n-X {SVC}\nCOMMIT\n", ONE),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_named(document, found):
    with listening("nft", document=OURS) as it:
        it.other(document)
        assert it.look() == found


def test_a_rename_makes_the_table_suspect():
    with listening("nft", document=OURS) as it:
        it.run("iptables-nft", "-t", "nat", "-E", SVC, "CNI-C")
        assert it.look() == Suspects(frozenset({"nat"}))
        it.run("nft", "rename", "chain", "ip", "nat", "CNI-C", SVC)
        assert "nat" in it.look().tables


def test_a_policy_makes_no_table_suspect():
    with listening("nft", document=OURS) as it:
        it.run("iptables-nft", "-P", "FORWARD", "DROP")
        assert it.look() == chains("FORWARD", table="filter")


def test_a_table_that_goes_is_suspect():
    with listening("nft", document=OURS) as it:
        it.run("nft", "delete", "table", "ip", "nat")
        assert "nat" in it.look().tables


def test_many_chains_make_their_table_suspect():
    with listening("nft", document=OURS) as it:
        names = [f"KUBE-SVC-{number:016}" for number in range(MOST_CHAINS + 1)]
        it.other("*nat\n" + "".join(f":{name} - [0:0]\n" for name in names) + "COMMIT\n")
        assert it.look() == Suspects(frozenset({"nat"}))


def test_a_strangers_write_between_ours_is_not_lost():
    """Whether it comes while our program runs or right behind it, before anybody looks."""
    with listening("nft", document=OURS) as it:

        class Between(SubprocessRunner):
            def run(self, argv, stdin=b"", **more):
                done = it.runner._inner.run(argv, stdin, **more)
                it.other(EDIT)  # our program's process id has not been given back yet
                return done

        runner = WatchedRunner(Between(), it.watch)
        for _ in range(5):
            runner.run(it.restore("IPv4"), b"*nat\n:KUBE-SVC-BBBBBBBBBBBBBBBB - [0:0]\nCOMMIT\n")
            assert it.look() == ONE
            it.own("*nat\n:KUBE-SVC-BBBBBBBBBBBBBBBB - [0:0]\nCOMMIT\n")
            it.other(EDIT)
            it.own("*nat\n:KUBE-SVC-BBBBBBBBBBBBBBBB - [0:0]\nCOMMIT\n")
            assert it.look() == ONE


def test_lost_notifications_make_everything_suspect():
    with listening("nft", document=OURS, start=False, buffer=4096) as it:
        for number in range(40):
            it.other(f"*nat\n:CNI-{number} - [0:0]\n" + f"-A CNI-{number} -j ACCEPT\n" * 50 + "COMMIT\n")
        assert it.look() == EVERYTHING
        assert it.look("IPv6") == EVERYTHING
        assert it.look() == NOTHING
        it.other(EDIT)
        assert it.look() == ONE


def test_lost_notifications_are_noticed():
    with listening("nft", document=OURS, start=False, buffer=4096) as it:
        for number in range(40):
            it.other(f"*nat\n:CNI-{number} - [0:0]\n" + f"-A CNI-{number} -j ACCEPT\n" * 50 + "COMMIT\n")
        it.start()
        eventually(lambda: sorted(it.told) == ["IPv4", "IPv6"], "both notices")


def test_our_program_with_another_port():
    """Somebody of another pid namespace has the port that our child would get."""
    with listening("nft", document=OURS) as it, waiting_child() as child:
        stranger = NftPort(it.netns, child.pid)
        try:
            it.watch.started("run", child.pid)
            stranger.make_chain("nat", "KUBE-SVC-BBBBBBBBBBBBBBBB")
            # Our child could not have its own number, so the kernel gave it a high one.
            high = NftPort(it.netns, (1 << 32) - 5000)
            high.make_chain("nat", "KUBE-SVC-CCCCCCCCCCCCCCCC")
            high.close()
            assert child.stdin is not None
            child.stdin.close()
            child.wait()
            it.watch.ended("run")
            assert it.look() == EVERYTHING
            # Once our child has ended, its number is a stranger's.
            stranger.make_chain("nat", "KUBE-SVC-DDDDDDDDDDDDDDDD")
            assert it.look() == chains("KUBE-SVC-DDDDDDDDDDDDDDDD")
        finally:
            stranger.close()


def test_a_stopped_watch_suspects_everything():
    with listening("nft", document=OURS) as it:
        it.watch.stop()
        assert it.look() == EVERYTHING
        it.own("*nat\n:KUBE-SVC-BBBBBBBBBBBBBBBB - [0:0]\nCOMMIT\n")


def test_the_kernel_gives_iptables_its_process_id_for_a_port():
    """What all of this rests on."""
    with listening("nft", document=OURS) as it:
        seen: list[int] = []
        take = it.watch._take_foreign  # type: ignore[attr-defined]
        it.watch._take_foreign = lambda *words: (seen.append(words[-1]), take(*words))  # type: ignore[attr-defined]
        pids: list[int] = []
        argv = ["nsenter", f"--net=/run/netns/{it.netns}", "iptables-nft", "-t", "nat", "-A", SVC, "-j", "ACCEPT"]
        inside(it.netns, lambda: SubprocessRunner().run(argv, on_start=pids.append))
        assert it.look() == ONE
        assert set(seen) == set(pids)
