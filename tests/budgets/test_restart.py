"""A new process finds what stands: with nothing changed it writes nothing and reads once."""

from dataclasses import replace

import pytest

from pykubeproxy.rules.names import DISPATCH_PREFIXES
from pykubeproxy.sync import desired
from tests.budgets.world import World, a_service_key, a_slice, chains


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


TREE, BETWEEN = 40, 30
"""A number of portals at which auto turns to the tree, and one at which it allows both forms."""


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(desired, "TREE_PORTALS", TREE)


def shrunk():
    """A world in which so many services are left of more that the tree is still there."""
    world = World(TREE, dispatch="auto")
    for number in range(BETWEEN, TREE):
        world.state.delete_service(*a_service_key(number))
    world.engine.sync()
    world.forget()
    return world


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(("make", "form"), [(shrunk, True), (lambda: World(BETWEEN, dispatch="auto"), False)])
def test_a_restart_keeps_the_form_that_stands_where_both_are_allowed(make, form):
    world = make()
    assert world.engine.wanted.uses_tree == form
    world.engine = world.new_engine()
    world.engine.sync("start")
    assert world.restores == []
    assert world.engine.wanted.uses_tree == form


@pytest.mark.usefixtures("few")
def test_changed_settings_keep_the_form_too():
    world = shrunk()
    world.engine.configure(replace(world.engine.settings, masquerade_all=True), dispatch="auto")
    world.engine.sync("configuration")
    assert world.engine.wanted.uses_tree
    assert not [chain for text in world.restores for chain in chains(text) if chain.startswith(DISPATCH_PREFIXES)]


@pytest.mark.usefixtures("few")
def test_another_form_that_stands_is_turned_where_only_one_is_allowed():
    world = shrunk()
    for number in range(TREE // 2 - 1, BETWEEN):
        world.state.delete_service(*a_service_key(number))
    world.engine = world.new_engine()
    world.engine.sync("start")
    assert not world.engine.wanted.uses_tree
    assert not [chain for chain in world.kernel.tables["nat"].chains if chain.startswith(DISPATCH_PREFIXES)]
