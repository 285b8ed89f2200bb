"""A program that changes a chain again each time we put it back is told of once and fought ever more rarely."""

import json
import threading
from itertools import pairwise

import pytest

from pykubeproxy.rules.ruleset import Ruleset
from pykubeproxy.sync.drift import CALM, HEALS_AT_ONCE, LOST_CEILING, LOST_SHARE, Damper, Place, is_lost
from tests.drift.drifting import (
    BACKENDS,
    WEB,
    detected,
    eventually,
    everything,
    healed,
    iptables,
    restore,
    running,
    words,
)

PLACE, OTHER = Place("nat", "KUBE-SVC-A"), Place("nat", "KUBE-SVC-B")


def fight(damper, seconds, step=0.05, start=1000.0, *, is_lost=False):
    """Change the place again right after each heal; return when it was healed, and how often that was told."""
    heals, told, is_wrong, now = [], 0, True, start
    while now < start + seconds:
        if damper.release(now):
            heals.append(now)
            is_wrong = True  # and at once it is changed again
        elif is_wrong:
            heal, tell = damper.judge([PLACE], now, lost=lambda _: is_lost)
            told += len(tell)
            heals += [now] * len(heal)
            is_wrong = bool(heal)
        now += step
    return heals, told


def test_a_fight_is_slowed_down_to_the_sync_period_and_told_once():
    heals, told = fight(Damper(ceiling=30.0), 3600.0)
    assert told == 1
    assert len(heals) <= HEALS_AT_ONCE + 6 + 3600 / 30
    gaps = [later - earlier for earlier, later in pairwise(heals)]
    assert gaps[HEALS_AT_ONCE:] == sorted(gaps[HEALS_AT_ONCE:]) or min(gaps[-50:]) >= 29.9
    assert max(gaps) <= 31.0


@pytest.mark.parametrize(("heal_seconds", "waits"), [(0.05, LOST_CEILING), (2.0, 2.0 * LOST_SHARE), (60.0, 30.0)])
def test_what_is_lost_waits_for_seconds_only_unless_putting_it_back_takes_long(heal_seconds, waits):
    heals, told = fight(Damper(ceiling=30.0, heal_seconds=heal_seconds), 3600.0, is_lost=True)
    assert told == 1
    gaps = [later - earlier for earlier, later in pairwise(heals)]
    assert max(gaps) == pytest.approx(waits, abs=0.1)
    assert gaps[-1] == pytest.approx(waits, abs=0.1)


def test_lost_is_what_is_empty_or_gone():
    wanted, now = Ruleset(), Ruleset()
    wanted.chains["nat"] = {
        "KUBE-SVC-A": "-A KUBE-SVC-A -j X\n",
        "KUBE-SVC-B": "-A KUBE-SVC-B -j X\n",
        "KUBE-SVC-C": "",
    }
    now.chains["nat"] = {"KUBE-SVC-A": "-A KUBE-SVC-A -j Y\n", "KUBE-SVC-B": "", "KUBE-SVC-C": ""}
    lost = [chain for chain in wanted.chains["nat"] if is_lost(Place("nat", chain), now, wanted)]
    assert lost == ["KUBE-SVC-B"]
    del now.chains["nat"]["KUBE-SVC-A"]
    assert is_lost(PLACE, now, wanted)
    assert is_lost(Place("nat", "PREROUTING", "-j KUBE-SERVICES"), now, wanted)


def test_without_the_damper_it_would_never_end():
    """The control: every change is healed at once."""

    class Undamped(Damper):
        def judge(self, places, now, *, lost):
            return list(places), []

    heals, _ = fight(Undamped(), 3600.0)
    assert len(heals) > 1000


def test_other_places_are_healed_at_once_meanwhile():
    damper = Damper()
    fight(damper, 30.0)
    assert damper.judge([OTHER], 1031.0) == ([OTHER], [])


def test_drift_now_and_then_is_no_fight():
    damper, now = Damper(), 1000.0
    for _ in range(50):
        assert damper.judge([PLACE], now) == ([PLACE], [])
        now += CALM + 1


def test_after_the_fight_it_is_healed_and_forgotten():
    damper = Damper(ceiling=30.0)
    fight(damper, 120.0)
    due = damper.due()
    assert due is not None
    assert damper.release(due) == [PLACE]
    assert damper.due() is None
    assert damper.judge([PLACE], due + 100.0) == ([PLACE], [])
    damper.judge([OTHER], due + 1000.0)
    assert len(damper._records) == 1


@pytest.mark.netns
@pytest.mark.parametrize("backend", BACKENDS)
def test_two_writers_on_the_kernel(backend):
    with running(backend) as it:
        right = everything(it, in_order=False)
        stopped = threading.Event()

        def other() -> None:
            while not stopped.wait(0.02):
                if f"-A {WEB.cluster} " in iptables(it, "IPv4", "-t", "nat", "-S", WEB.cluster):
                    restore(it, "IPv4", f"*nat\n:{WEB.cluster} - [0:0]\nCOMMIT\n")

        writer = threading.Thread(target=other)
        writer.start()
        try:
            fights = 'pykubeproxy_drift_fights_total{ip_family="IPv4",table="nat"}'
            eventually(lambda: it.metric(fights), f"the fight is told\n{it.words()}")
            eventually(lambda: healed(it, "nat") > HEALS_AT_ONCE + 1, "it goes on, slower")
            (note,) = json.loads(it.get(10256, "/readyz")[1])["notes"]
            assert note.startswith("IPv4: another program changes 1 chain or jump in nat again")
            # Meanwhile another fault in the same table is healed as ever.
            restore(it, "IPv4", "*nat\n:KUBE-POSTROUTING - [0:0]\nCOMMIT\n")
            eventually(lambda: "-A KUBE-POSTROUTING" in it.save(), "the other chain is put back")
        finally:
            stopped.set()
            writer.join()
        eventually(lambda: everything(it, in_order=False) == right, f"everything as it was\n{it.words()}")
        assert it.metric(fights) == 1
        assert len(words(it, "drift fight", chains=[WEB.cluster])) == 1
        assert words(it, "rule printed otherwise") == []
        eventually(lambda: detected(it, "nat") == healed(it, "nat"), "all that was found was healed")


@pytest.mark.netns
@pytest.mark.parametrize("backend", BACKENDS)
def test_two_writers_over_a_jump(backend):
    jump = ["PREROUTING", "-m", "comment", "--comment", "kubernetes service portals", "-j", "KUBE-SERVICES"]
    with running(backend) as it:
        right = everything(it, in_order=False)
        fights = 'pykubeproxy_drift_fights_total{ip_family="IPv4",table="nat"}'
        stopped = threading.Event()

        def other() -> None:
            while not stopped.wait(0.02):
                if "-j KUBE-SERVICES" in iptables(it, "IPv4", "-t", "nat", "-S", "PREROUTING"):
                    iptables(it, "IPv4", "-t", "nat", "-D", *jump)

        writer = threading.Thread(target=other)
        writer.start()
        try:
            eventually(lambda: it.metric(fights), f"the fight is told\n{it.words()}")
        finally:
            stopped.set()
            writer.join()
        eventually(lambda: everything(it, in_order=False) == right, f"everything as it was\n{it.words()}")
        assert len(words(it, "drift fight")) == 1
        assert words(it, "rule printed otherwise") == []
