"""With tree dispatch a service that comes or goes rewrites its own chains and a few small ones, at any size."""

import pytest

from pykubeproxy.rules.dispatch import LEAF_SIZE, LEVELS
from tests.budgets.world import World, a_service, a_service_key, a_slice, chains

SPLIT = LEAF_SIZE + 1
"""A chain that is full becomes one of jumps and at most so many new ones."""


def shared(world, number, document, before=frozenset()):
    """The chains of an input that are not this service's own."""
    return set(chains(document)) - world.chains_of(number) - before


@pytest.mark.parametrize("count", [50, 600])
def test_a_new_service_touches_few_shared_chains(count):
    world = World(count)
    touched = []
    for number in range(count, count + 60):
        world.state.set_slice(a_slice(number))
        world.state.set_service(a_service(number))
        world.forget()
        world.engine.sync()
        (document,) = world.restores
        touched.append(len(shared(world, number, document)))
    assert max(touched) <= SPLIT + len(LEVELS["IPv4"])
    assert sorted(touched)[len(touched) // 2] <= 2


def test_a_deleted_service_touches_few_shared_chains():
    world = World(600)
    for number in range(60):
        own = frozenset(world.chains_of(number))
        world.state.delete_service(*a_service_key(number))
        world.forget()
        world.engine.sync()
        (document,) = world.restores
        assert len(shared(world, number, document, own)) <= SPLIT + len(LEVELS["IPv4"])


def test_flat_dispatch_rewrites_one_shared_chain():
    world = World(300, dispatch="flat")
    world.state.set_slice(a_slice(300))
    world.state.set_service(a_service(300))
    world.engine.sync()
    (document,) = world.restores
    assert shared(world, 300, document) == {"KUBE-SERVICES"}


def test_no_chain_of_the_tree_is_long():
    world = World(2000)
    tree = [rules for name, rules in world.kernel.tables["nat"].chains.items() if name.startswith("KUBE-SVC-IP-")]
    assert tree
    assert max(map(len, tree)) <= 16
