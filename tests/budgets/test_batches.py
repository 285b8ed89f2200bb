"""What touches everything comes in inputs of bounded size on nft, whatever the reason.

Only a single chain that is larger by itself exceeds the bound: flat KUBE-SERVICES and its kind are one commit.
"""

from dataclasses import replace

import pytest

from pykubeproxy.rules.settings import LARGE_CLUSTER_ENDPOINTS, LocalDetector
from pykubeproxy.sync.engine import NFT_BATCH
from tests.budgets.world import World, a_service, a_service_key, a_slice, chains, lines
from tests.support.builders import endpoint_slice, service

BATCH = 200
COUNT = 330
"""Services of three endpoints: a little less than what makes a large cluster."""


def check(world, batch=BATCH):
    """Every input within the bound, but for one large chain; and all of them needed to be several."""
    assert len(world.restores) > 2
    for document in world.restores:
        assert lines(document) <= batch or len(chains(document)) == 1, chains(document)[:5]
    written = world.engine.wanted.ruleset.chains
    for table, found in written.items():
        there = world.kernel.tables[table].chains
        assert {chain: [f"-A {chain} {rule}" for rule in there[chain]] for chain in found} == {
            chain: text.splitlines() for chain, text in found.items()
        }


def configured(world, *, dispatch="tree", **changes):
    world.engine.configure(replace(world.engine.settings, **changes), dispatch=dispatch)
    world.engine.sync("configuration")
    return world


def test_the_first_sync():
    world = World(0, batch=BATCH)
    world.state.replace_services([a_service(number) for number in range(COUNT)])
    world.state.replace_slices([a_slice(number) for number in range(COUNT)])
    world.engine.sync()
    check(world)


def test_the_threshold_of_a_large_cluster_crossed():
    assert COUNT * 3 < LARGE_CLUSTER_ENDPOINTS < COUNT * 3 + 20
    world = World(COUNT, batch=BATCH)
    for number in range(20):
        world.state.set_slice(a_slice(number, range(4)))
    world.engine.sync()
    assert world.engine.wanted.is_large
    check(world)


@pytest.mark.parametrize("change", [{"local_detector": LocalDetector(network="10.0.0.0/8")}, {"masquerade_all": True}])
def test_a_setting_changed_live(change):
    check(configured(World(COUNT, batch=BATCH), **change))


def test_from_flat_to_tree():
    world = World(COUNT, batch=BATCH, dispatch="flat")
    check(configured(world, dispatch="tree"))


def test_from_tree_to_flat():
    check(configured(World(COUNT, batch=BATCH), dispatch="flat"))


@pytest.mark.parametrize("left", [0, 100])
def test_a_sweep(left):
    world = World(COUNT, batch=BATCH)
    for number in range(left, COUNT):
        world.state.delete_service(*a_service_key(number))
    world.engine.sync()
    check(world)


def test_a_service_that_is_larger_than_an_input():
    world = World(0, batch=BATCH)
    addresses = [f"10.244.{n >> 7}.{n & 127}" for n in range(150)]
    world.state.set_slice(endpoint_slice("large", addresses))
    world.state.set_service(service("large", ip="10.96.1.1"))
    world.engine.sync()
    check(world)
    world.forget()
    configured(world, masquerade_all=True)
    assert sum(map(lines, world.restores)) < 2 * len(addresses)


@pytest.mark.slow
def test_the_real_bound_at_five_thousand_services():
    world = World(0)
    world.state.replace_services([a_service(number) for number in range(5000)])
    world.state.replace_slices([a_slice(number) for number in range(5000)])
    world.engine.sync()
    check(world, NFT_BATCH)
