"""Whatever happens, and whatever fails on the way: in the end the kernel holds the rules of the final objects.

Events come in any order, restores fail at random (refused, half applied, killed, the lock is busy), somebody else
edits our chains, settings change. The kernel is the verified fake. What is compared is what iptables-save prints,
chain by chain (``same_chain``), with what these objects mean when they are read at once.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event as note
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.dryrun import desired
from pykubeproxy.errors import NetfilterError
from pykubeproxy.model.state import ClusterState
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.read import parse, standing
from pykubeproxy.rules.base import ensured_rules
from pykubeproxy.serving.metrics import BuildInfo, Metrics
from pykubeproxy.sync.diff import difference
from pykubeproxy.sync.engine import Engine
from tests.support.clusters import World, settings
from tests.support.events import events, happen
from tests.support.fake_kernel import BUILTIN, FakeKernel, Trouble

TROUBLE = st.one_of(
    st.none(),
    st.none(),
    st.builds(Trouble, after=st.integers(0, 3), killed=st.booleans()),
    st.just(Trouble(lock=True)),
)
EDITS = st.sampled_from(
    ("nothing", "nothing", "flush a chain", "delete a jump", "flush nat", "flush all", "a rule more")
)
FOREIGN = "*filter\n:DOCKER - [0:0]\n-A FORWARD -j DOCKER\n-A DOCKER -p tcp -j ACCEPT\nCOMMIT\n"


class Program:
    """An engine on a fake kernel with foreign rules in it, and its clock."""

    def __init__(self, family, at, *, batch, dispatch):
        self.now = 0.0
        self.troubles = []
        self.kernel = FakeKernel(refuse=self.trouble)
        self.kernel.edit(FOREIGN)
        self.state = ClusterState(family)
        self.metrics = Metrics(families=[family], build=BuildInfo(version="0"))
        self.at, self.dispatch, self.batch = at, dispatch, batch
        self.engine = self.new_engine()

    def new_engine(self):
        return Engine(
            self.state,
            Backend("nft", self.state.family),
            self.kernel,
            self.at,
            metrics=self.metrics,
            dispatch=self.dispatch,
            clock=lambda: self.now,
            batch=self.batch,
        )

    def trouble(self, _):
        return self.troubles.pop() if self.troubles else None

    def sync(self, *, verify=False):
        try:
            self.engine.sync("test", verify=verify)
        except NetfilterError:
            return False
        return True

    def settle(self):
        """Let time pass without trouble."""
        self.troubles = []
        for _ in range(4):
            self.now += 7200
            assert self.sync(verify=True), "a sync without trouble failed"

    def edit(self, what, chooser):
        tables = self.kernel.tables
        ours = [(t, c) for t, table in tables.items() for c in table.chains if c.startswith("KUBE-")]
        jumps = [(t, c, r) for t, names in BUILTIN.items() for c in names for r in tables[t].chains[c] if "KUBE-" in r]
        if what == "flush a chain" and ours:
            table, chain = chooser(ours)
            tables[table].chains[chain].clear()
        elif what == "a rule more" and ours:
            table, chain = chooser(ours)
            tables[table].chains[chain].insert(0, "-p tcp -j RETURN")
        elif what == "delete a jump" and jumps:
            table, chain, rule = chooser(jumps)
            tables[table].chains[chain].remove(rule)
        elif what in ("flush nat", "flush all"):
            for table in ["nat"] if what == "flush nat" else list(tables):
                names = BUILTIN[table]
                tables[table].chains = {chain: [] for chain in names}

    def left_to_do(self, world):
        wanted = desired(self.state.family, world.objects, self.at, dispatch=self.dispatch)
        found = standing(parse(self.kernel.save()))
        left = difference(found, wanted.ruleset, None)
        ours = {(rule.table, rule.chain, rule.rule) for rule in ensured_rules(self.at)}
        places = {chain for _, chain, _ in ours}
        alien = [
            rule
            for rule in found.ensured
            if "KUBE-" in rule.rule and rule.chain in places and (rule.table, rule.chain, rule.rule) not in ours
        ]
        return left, alien


@pytest.mark.parametrize("batch", [None, 12], ids=["one input", "batches"])
@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
@given(data=st.data())
def test_it_always_ends_right(family, batch, data):
    program = Program(
        family, data.draw(settings(family)), batch=batch, dispatch=data.draw(st.sampled_from(("flat", "tree")))
    )
    world = World({}, {})
    program.state.replace_services([])
    program.state.replace_slices([])
    failed = foreign_flush = 0
    for group in data.draw(st.lists(st.lists(events(), max_size=3), max_size=6)):
        for event in group:
            world = happen(event, world, program.state)
        what = data.draw(st.integers(0, 9))
        if what == 0:
            # Whether the kernel has the comment match does not change while it runs.
            program.at = replace(data.draw(settings(family)), comments=program.at.comments)
            program.engine.configure(program.at, dispatch=program.dispatch)
        elif what == 1:
            program.engine = program.new_engine()
        edit = data.draw(EDITS)
        program.edit(edit, lambda options: data.draw(st.sampled_from(options)))
        foreign_flush += edit == "flush all"
        program.troubles = data.draw(st.lists(TROUBLE, max_size=4))
        failed += not program.sync(verify=data.draw(st.booleans()))
        program.now += data.draw(st.sampled_from((0.1, 30.0, 100.0)))
    note(f"failed syncs: {failed}")
    program.settle()
    left, alien = program.left_to_do(world)
    assert not left, left
    assert alien == []
    assert program.engine.quarantined == {}
    if not foreign_flush:
        assert program.kernel.tables["filter"].chains["DOCKER"] == ["-p tcp -j ACCEPT"], "a foreign chain was touched"
    program.kernel.restores.clear()
    program.now += 7200
    assert program.sync(verify=True)
    assert program.kernel.restores == [], "something is written again and again"
