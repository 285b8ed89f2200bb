"""What the engine makes of a suspicion: it reads that part and no more, writes what differs, and forgets nothing."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.errors import LockBusyError
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.suspects import EVERYTHING, NOTHING, Suspects, concerns_us, suspects
from pykubeproxy.serving.metrics import BuildInfo, Metrics
from pykubeproxy.sync.engine import DEEP, Engine
from tests.support.builders import endpoint_slice, service, settings, slice_port, state
from tests.support.fake_kernel import FakeKernel, Trouble

JUMP = '-m comment --comment "kubernetes service portals" -j KUBE-SERVICES'


@dataclass
class World:
    """An engine that has synced once, its kernel, what the watch would say, and what was run since."""

    kernel: FakeKernel = field(default_factory=FakeKernel)
    seen: Suspects = NOTHING
    now: float = 1000.0
    ran: list[str] = field(default_factory=list)
    behind: Callable[[], None] = lambda: None
    """What somebody else does right behind each restore of ours."""

    def __post_init__(self):
        kernel = self.kernel

        class Runner:
            def run(_, argv, stdin=b"", **more):  # noqa: N805 - the world is self here
                self.ran.append(" ".join(argv[1:]) if argv[0].endswith("-nft") else " ".join([argv[0], *argv[1:]]))
                done = kernel.run(argv, stdin, **more)
                if argv[0].endswith("-restore"):
                    self.behind()
                return done

        web = service(ports=[{"name": "http", "port": 80, "protocol": "TCP"}])
        self.metrics = Metrics(families=["IPv4"], build=BuildInfo(version="0"))
        self.engine = Engine(
            state(web, endpoint_slice("web", ["10.244.0.1", "10.244.0.2"], ports=[slice_port(name="http")])),
            Backend("nft", "IPv4"),
            Runner(),
            settings(),
            metrics=self.metrics,
            look=self.look,
            clock=lambda: self.now,
        )
        self.engine.sync()
        self.right = kernel.save()
        self.ran.clear()

    def look(self):
        found, self.seen = self.seen, NOTHING
        return found

    def spoil(self, document, *chains, tables=()):
        self.kernel.edit(document)
        self.seen = suspects(tables, chains)

    def verify(self):
        return self.engine.sync("drift", verify=True)

    def chain(self, prefix):
        return next(name for name in self.kernel.tables["nat"].chains if name.startswith(prefix))

    def ours(self):
        return {
            (table, chain): sorted(rules) if chain in held.policies else rules
            for table, held in self.kernel.tables.items()
            for chain, rules in held.chains.items()
            if concerns_us(table, chain)
        }


def test_nothing_suspected_runs_nothing():
    world = World()
    outcome = world.verify()
    assert (world.ran, outcome.restores, outcome.drifted) == ([], 0, {})


def test_one_chain_suspected_is_read_alone():
    world = World()
    chain = world.chain("KUBE-SVC-")
    world.spoil(f"*nat\n-F {chain}\nCOMMIT\n", ("nat", chain))
    outcome = world.verify()
    assert outcome.drifted == {"nat": 1}
    assert outcome.written == {"nat": 1}
    assert [line for line in world.ran if "restore" not in line] == 2 * [f"-t nat -S {chain}"]  # and read back
    assert world.kernel.save() == world.right


def test_a_suspicion_that_is_wrong_writes_nothing():
    world = World()
    world.spoil("*nat\n-A POSTROUTING -o cni0 -j MASQUERADE\nCOMMIT\n", ("nat", "POSTROUTING"))
    outcome = world.verify()
    assert (outcome.restores, outcome.drifted) == (0, {})
    assert world.ran == ["-t nat -S POSTROUTING"]


def test_a_table_suspected_is_read_as_a_whole_and_no_other():
    world = World()
    world.spoil("*filter\n-F KUBE-FORWARD\nCOMMIT\n", tables=["filter"])
    assert world.verify().drifted == {"filter": 1}
    assert "iptables-nft-save -t filter" in world.ran
    assert "iptables-nft-save -t nat" not in world.ran


def test_a_chain_that_is_gone_is_made_again():
    world = World()
    chain, endpoint_chain = world.chain("KUBE-SVC-"), world.chain("KUBE-SEP-")
    world.spoil(
        f"*nat\n-F {chain}\n-F {endpoint_chain}\n-X {endpoint_chain}\nCOMMIT\n", ("nat", chain), ("nat", endpoint_chain)
    )
    assert world.verify().drifted == {"nat": 2}
    assert world.ours() == World().ours()


def test_a_jump_is_put_back_even_if_the_lock_was_busy_at_first():
    world = World()
    world.spoil(f"*nat\n-D PREROUTING {JUMP}\nCOMMIT\n", ("nat", "PREROUTING"))
    world.kernel.refuse = lambda _: Trouble(lock=True)
    with pytest.raises(LockBusyError):
        world.verify()
    world.kernel.refuse = lambda _: None
    assert world.verify().drifted == {"nat": 1}
    assert JUMP in world.kernel.tables["nat"].chains["PREROUTING"]


def test_a_suspicion_outlives_a_reading_that_failed():
    world = World()
    chain = world.chain("KUBE-SVC-")
    world.spoil(f"*nat\n-F {chain}\nCOMMIT\n", tables=["nat"])
    read = world.engine.reader.reread

    def busy(_):
        raise LockBusyError("busy")

    world.engine.reader.reread = busy
    with pytest.raises(LockBusyError):
        world.verify()
    world.engine.reader.reread = read
    world.verify()
    assert world.kernel.save() == world.right


def test_everything_is_read_once_in_a_while_whatever_the_watch_says():
    world = World()
    world.kernel.edit(f"*nat\n-F {world.chain('KUBE-SVC-')}\nCOMMIT\n")  # nobody saw it
    world.now += DEEP - 1
    assert world.verify().drifted == {}
    world.now += 2
    assert world.verify().drifted == {"nat": 1}
    assert world.kernel.save() == world.right


def test_what_another_program_writes_right_behind_us_is_not_taken_for_the_kernels_spelling():
    """The rewritten chain is read back, and by then it is somebody else's again."""
    world = World()
    chain = world.chain("KUBE-SVC-")
    edit = f"*nat\n-F {chain}\n-A {chain} -s 192.0.2.1/32 -j RETURN\nCOMMIT\n"
    world.spoil(edit, ("nat", chain))
    world.behind = lambda: world.spoil(edit, ("nat", chain))
    outcome = world.verify()
    assert outcome.verify_in == 0.0
    world.behind = lambda: None
    world.now += 2.0
    world.verify()
    assert world.kernel.save() == world.right


def test_a_foreign_rule_in_place_of_our_jump_is_not_taken_for_it():
    world = World()
    world.spoil(f"*nat\n-D PREROUTING {JUMP}\n-A PREROUTING -j RETURN\nCOMMIT\n", ("nat", "PREROUTING"))
    world.behind = lambda: world.kernel.edit(f"*nat\n-D PREROUTING {JUMP}\nCOMMIT\n")
    world.verify()
    world.behind = lambda: None
    world.seen = EVERYTHING
    world.verify()
    assert world.kernel.tables["nat"].chains["PREROUTING"] == [JUMP, "-j RETURN"]


EDITS = st.lists(st.tuples(st.sampled_from(["flush", "add", "jump", "delete"]), st.integers(0, 30)), max_size=8)


@given(EDITS, st.booleans())
def test_whatever_was_done_is_undone(edits, by_table):
    world = World()
    touched = set()
    for what, index in edits:
        places = [(t, c) for t, held in world.kernel.tables.items() for c in held.chains if concerns_us(t, c)]
        table, chain = places[index % len(places)]
        rules = world.kernel.tables[table].chains[chain]
        if what == "flush":
            document = f"-F {chain}"
        elif what == "add":
            document = f"-I {chain} 1 -s 192.0.2.{index}/32 -j RETURN"
        elif what == "delete" and rules:
            document = f"-D {chain} {rules[index % len(rules)]}"
        else:
            document = f"-A {chain} -j ACCEPT"
        world.kernel.edit(f"*{table}\n{document}\nCOMMIT\n")
        touched.add((table, chain))
    world.seen = suspects({table for table, _ in touched}) if by_table else suspects((), touched)
    world.verify()
    world.now += 1.0
    assert world.verify().restores == 0
    fresh = World().ours()
    for place, rules in world.ours().items():
        if place[1].startswith("KUBE-") and place[1] != "KUBE-FIREWALL":
            assert rules == fresh[place]
        else:
            assert set(fresh[place]) <= set(rules)
            assert all(rules.count(rule) == 1 for rule in fresh[place])
