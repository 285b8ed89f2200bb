"""What a proxy does not read costs nothing: no sync is asked for, no program is run."""

import pytest

from tests.budgets.world import World, a_service, a_slice

NOISE = {
    "annotations": lambda meta: setattr(meta, "annotations", {"example.com/seen": "today"}),
    "resourceVersion": lambda meta: setattr(meta, "resource_version", "4711"),
    "labels": lambda meta: setattr(meta, "labels", {**(meta.labels or {}), "colour": "blue"}),
}


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_an_update_of_what_nobody_reads_is_none(noise):
    world = World(20)
    updated_service, updated_slice = a_service(3), a_slice(3)
    noise(updated_service.metadata)
    noise(updated_slice.metadata)
    assert not world.state.set_service(updated_service)
    assert not world.state.set_slice(updated_slice)
    world.engine.sync()
    assert world.kernel.ran == []


def test_endpoints_in_another_order_are_the_same():
    world = World(20)
    world.state.set_slice(a_slice(3, [2, 0, 1]))
    world.engine.sync()
    assert world.kernel.ran == []


def test_a_list_that_says_the_same_again_writes_nothing():
    world = World(20)
    world.state.replace_services([a_service(number) for number in range(20)])
    world.state.replace_slices([a_slice(number) for number in range(20)])
    world.engine.sync()
    assert world.kernel.ran == []


def test_a_verification_that_nobody_gave_cause_for_reads_nothing():
    world = World(20)
    world.engine.sync("period", verify=True)
    assert world.kernel.ran == []
