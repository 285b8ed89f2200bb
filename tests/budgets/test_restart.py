"""A new process finds what stands: with nothing changed it writes nothing and reads once."""

import pytest

from tests.budgets.world import World, a_slice, chains


@pytest.mark.parametrize(("kind", "saves"), [("nft", 1), ("legacy", 3)])
def test_a_restart_with_nothing_changed_restores_nothing(kind, saves):
    world = World(60, kind=kind)
    world.new_engine().sync("start")
    assert world.restores == []
    assert world.kernel.ran == [f"iptables-{kind}-save"] * saves


def test_a_restart_writes_what_changed_meanwhile_and_no_more():
    world = World(60)
    world.state.set_slice(a_slice(7, range(4)))
    world.engine = world.new_engine()
    world.engine.sync("start")
    assert [len(chains(document)) for document in world.restores] == [2]
    assert set(chains(world.restores[0])) <= world.chains_of(7)
