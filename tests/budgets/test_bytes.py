"""What a change sends does not grow with the cluster, and neither does the work to find it out."""

import sys

import pytest

from pykubeproxy.netfilter.process import Finished
from tests.budgets.world import World, a_service, a_slice

SMALL, LARGE = 1200, 4800
"""Both above the size from which per-endpoint rules carry no comments."""


class Silent:
    """A runner that applies everything."""

    def run(self, argv, stdin=b"", **_):
        assert "-restore" in argv[0]
        return Finished(0, b"", b"")


def bytes_of(world, change):
    world.forget()
    change(world)
    world.engine.sync()
    return sum(map(len, world.restores))


def grow(world):
    world.state.set_slice(a_slice(7, range(4)))


def create(world):
    world.state.set_slice(a_slice(60000))
    world.state.set_service(a_service(60000))


@pytest.fixture(scope="module")
def worlds():
    return World(SMALL), World(LARGE)


def test_an_endpoint_change_sends_the_same_at_any_size(worlds):
    one, other = (bytes_of(world, grow) for world in worlds)
    assert one == other
    assert one < 1500


def test_a_new_service_sends_about_the_same_at_any_size(worlds):
    for world in worlds:
        assert bytes_of(world, create) < 8000


def lines_run(world, change):
    """How many lines of Python a change costs, from the object that comes in to the restore."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        change(world)
        world.engine.sync()
        world.engine.wanted.lacking()
    finally:
        sys.settrace(None)
    return count


def test_a_change_costs_the_same_at_any_size(worlds):
    for world in worlds:
        world.engine._runner = Silent()  # the fake kernel's own lines are not what is counted
    one, other = (lines_run(world, lambda w: w.state.set_slice(a_slice(9, range(5)))) for world in worlds)
    assert abs(one - other) <= 0.05 * one
