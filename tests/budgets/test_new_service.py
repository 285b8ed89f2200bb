"""With tree dispatch a service that comes or goes rewrites its own chains and a few small ones, at any size."""

import pytest

from pykubeproxy.rules.dispatch import LEAF_SIZE, LEVELS, PORT_LEVELS
from pykubeproxy.rules.names import DISPATCH_PREFIXES, PORT_DISPATCH_PREFIX
from tests.budgets.world import World, a_service, a_service_key, a_slice, chains, service_ip
from tests.support.builders import port, service

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
    found = world.kernel.tables["nat"].chains
    tree = [rules for name, rules in found.items() if name.startswith(DISPATCH_PREFIXES)]
    assert tree
    assert max(map(len, tree)) <= 16


def a_node_port(number):
    """A port from all over the usual range."""
    return 30000 + number * 1103 % 2768


def with_node_port(number):
    return service(f"s{number}", ip=service_ip(number), ports=[port(80, node_port=a_node_port(number))])


@pytest.mark.parametrize("count", [20, 150])
def test_a_node_port_that_comes_or_goes_touches_few_shared_chains(count):
    news = range(count, count + 30)
    world = World(count + 30)
    for number in range(count):
        world.state.set_service(with_node_port(number))
    world.engine.sync()
    for goes in (False, True):
        touched = []
        for number in news:
            world.state.set_service(a_service(number) if goes else with_node_port(number))
            before = frozenset(world.chains_of(number))
            world.forget()
            world.engine.sync()
            (document,) = world.restores
            named = shared(world, number, document, before)
            assert all(chain.startswith((PORT_DISPATCH_PREFIX, "KUBE-NODEPORTS")) for chain in named)
            touched.append(len(named))
        assert max(touched) <= 1 + len(PORT_LEVELS) + 8, "a chain that is divided has eight parts at most"
        assert sorted(touched)[len(touched) // 2] <= 1
