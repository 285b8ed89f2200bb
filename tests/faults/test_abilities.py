"""What the kernel can do is tried once at the start, again while something is missing, and never without need."""

import pytest

from pykubeproxy.errors import EnvironmentProblem
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.node import nfacct
from pykubeproxy.sync.abilities import INTERVAL, Abilities
from pykubeproxy.sync.derive import Facts
from tests.faults.program import engine, objects
from tests.support.builders import settings, state
from tests.support.fake_kernel import FakeKernel


class Clock:
    def __init__(self):
        self.now = 5.0
        """Soon after the machine has started."""

    def __call__(self):
        return self.now


def abilities(kernel, clock=None, counters=nfacct.COUNTERS):
    return Abilities(Backend("nft", "IPv4"), kernel, counters=lambda: counters, clock=clock or Clock())


@pytest.mark.parametrize("match", ["recent", "statistic", "addrtype", "conntrack"])
def test_a_missing_match_is_a_fact(match):
    facts = abilities(FakeKernel(bad_words=(f"-m {match} ",))).find(Facts())
    assert facts.missing == frozenset((match,))
    assert facts.comments
    assert facts.nfacct


def test_comments_and_counters_are_facts_of_their_own():
    facts = abilities(FakeKernel(bad_words=("-m comment ",)), counters=()).find(Facts())
    assert (facts.missing, facts.comments, facts.nfacct) == (frozenset(), False, False)


def test_what_stands_is_not_tried():
    kernel = FakeKernel()
    engine(kernel, state(*objects(2)[0]), settings=settings(nfacct=True)).sync()
    kernel.restores.clear()
    assert abilities(kernel).find(Facts()) == Facts(nfacct=True)
    assert kernel.restores == []


def test_what_is_missing_is_tried_again_after_a_while_and_not_before():
    kernel, clock = FakeKernel(bad_words=("-m recent ",)), Clock()
    it = abilities(kernel, clock)
    facts = it.find(Facts())
    kernel.restores.clear()
    clock.now += INTERVAL - 1
    assert it.refreshed(facts) is facts
    assert kernel.restores == [], "the first sync comes right after the start"
    clock.now += 1
    assert it.refreshed(facts) == facts
    assert kernel.restores
    kernel.bad_words = ()
    clock.now += INTERVAL
    assert it.refreshed(facts).missing == frozenset()


def test_where_nothing_is_missing_nothing_is_tried():
    kernel, clock = FakeKernel(), Clock()
    it = abilities(kernel, clock)
    facts = it.find(Facts())
    kernel.restores.clear()
    clock.now += 10 * INTERVAL
    assert it.refreshed(facts) is facts
    assert kernel.restores == []


def test_an_iptables_that_is_just_being_replaced_changes_nothing():
    kernel, clock = FakeKernel(bad_words=("-m recent ",)), Clock()
    it = abilities(kernel, clock)
    facts = it.find(Facts())

    def gone(_):
        raise EnvironmentProblem("iptables-nft-restore is not to be found")

    kernel.refuse = gone
    clock.now += INTERVAL
    assert it.refreshed(facts) is facts
