"""A restart begins at zero, whoever asks for the metrics first."""

import threading

from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.process import Finished
from pykubeproxy.rules.names import NAT
from pykubeproxy.sync.connections import ConnectionCounts
from tests.faults.program import engine
from tests.support.builders import desired, endpoint_slice, service, settings, state
from tests.support.fake_kernel import FakeKernel

OBJECTS = (service("web"), endpoint_slice("web", ["10.244.0.11"]))


class Counting:
    """An iptables that lists the chain of one endpoint, with what it has counted."""

    def __init__(self, chain, count):
        self.chain, self.count, self.runs = chain, count, 0

    def run(self, argv, stdin=b"", **_):
        assert "-S" in argv
        self.runs += 1
        line = f"-A {self.chain} -p tcp -m tcp -c {self.count} 60 -j DNAT --to-destination 10.244.0.11:8080\n"
        return Finished(0, line.encode(), b"")


class Counts:
    """Connection counts of a daemon that finds rules which have counted 30 connections."""

    def __init__(self):
        self.now = 100.0
        self.held = state(*OBJECTS)
        self.whole = desired(*OBJECTS)
        self.wanted = None
        chain = next(chain for chain in self.whole.ruleset.chains[NAT] if chain.startswith("KUBE-SEP-"))
        self.kernel = Counting(chain, 30)
        self.counts = ConnectionCounts(
            self.held, lambda: self.wanted, Backend("nft", "IPv4"), self.kernel, spacing=10, clock=lambda: self.now
        )

    def shown(self):
        return [count for *_, count in self.counts.counted().services]


def test_a_scrape_before_it_is_known_what_stood_reads_nothing():
    it = Counts()
    it.wanted = it.whole
    assert it.shown() == []
    assert it.kernel.runs == 0


def test_what_stood_is_no_news():
    it = Counts()
    it.wanted = it.whole
    it.shown()
    it.counts.adopt(it.whole.ruleset)
    assert it.shown() == [0]
    it.kernel.count, it.now = 32, it.now + 10
    assert it.shown() == [2]


def test_a_scrape_that_comes_too_early_postpones_nothing():
    it = Counts()
    assert it.shown() == []
    it.wanted = it.whole
    it.counts.adopt(it.whole.ruleset)
    assert it.shown() == [0]


def test_readings_are_as_far_apart_as_was_asked():
    it = Counts()
    it.wanted = it.whole
    it.counts.adopt(it.whole.ruleset)
    it.shown()
    it.kernel.count, it.now = 32, it.now + 9.9
    assert it.shown() == [0]
    it.now += 0.1
    assert it.shown() == [2]


def test_nobody_finds_wanted_rules_that_are_not_rendered_yet():
    """A reading that met them would take every chain for nobody's and forget what it showed."""
    held = state(*OBJECTS)
    program = engine(FakeKernel(), held)
    program.sync()
    program.configure(settings(masquerade_all=True), dispatch="flat")
    asked = threading.Event()

    class Told:
        """The state's lock, telling when somebody asks for it."""

        def __enter__(self):
            asked.set()
            lock.acquire()

        def __exit__(self, *_):
            lock.release()

    lock, held.lock = held.lock, Told()
    with lock:
        syncing = threading.Thread(target=program.sync)
        syncing.start()
        assert asked.wait(10)
        assert program.wanted is None or program.wanted.owner
    syncing.join()
    assert program.wanted.owner
