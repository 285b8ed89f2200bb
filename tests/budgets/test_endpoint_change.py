"""A changed endpoint is one restore that names exactly the chains of its service that differ, and no other program."""

import pytest

from tests.budgets.world import World, a_slice, chains


@pytest.mark.parametrize("kind", ["nft", "legacy"])
@pytest.mark.parametrize("dispatch", ["flat", "tree"])
def test_one_endpoint_more_writes_its_chain_and_its_services(kind, dispatch):
    world = World(60, kind=kind, dispatch=dispatch)
    before = world.chains_of(7)
    world.state.set_slice(a_slice(7, range(4)))
    world.engine.sync()
    added = world.chains_of(7) - before
    cluster = {chain for chain in before if chain.startswith("KUBE-SVC-")}
    assert [sorted(chains(document)) for document in world.restores] == [sorted(added | cluster)]
    assert len(added) == len(cluster) == 1


def test_one_endpoint_less_rewrites_its_service_and_deletes_its_chain():
    world = World(60)
    before = world.chains_of(7)
    world.state.set_slice(a_slice(7, range(2)))
    world.engine.sync()
    gone = before - world.chains_of(7)
    cluster = {chain for chain in before if chain.startswith("KUBE-SVC-")}
    assert [sorted(chains(document)) for document in world.restores] == [sorted(gone | cluster)]
    assert world.restores[0].splitlines()[-2] == f"-X {gone.pop()}"


@pytest.mark.parametrize("kind", ["nft", "legacy"])
def test_no_save_runs_on_the_hot_path(kind):
    world = World(60, kind=kind)
    for number in range(10):
        world.state.set_slice(a_slice(number, range(4)))
        world.engine.sync()
    assert world.kernel.ran == [f"iptables-{kind}-restore"] * 10


def test_a_hundred_changes_at_once_are_one_restore():
    world = World(120)
    for number in range(100):
        world.state.set_slice(a_slice(number, range(4)))
    world.engine.sync()
    assert len(world.restores) == 1
    assert len(chains(world.restores[0])) == 200
