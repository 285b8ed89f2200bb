"""Rendering the dirty services after each event gives what rendering everything at once gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.dryrun import desired
from pykubeproxy.model.state import ClusterState
from pykubeproxy.sync import desired as module
from pykubeproxy.sync.desired import Desired
from tests.support.clusters import World, settings
from tests.support.events import events, happen

FAMILIES = pytest.mark.parametrize("family", ["IPv4", "IPv6"])


def check(family, dispatch, data):
    at = data.draw(settings(family))
    state, world = ClusterState(family), World({}, {})
    state.replace_services([])
    state.replace_slices([])
    wanted = Desired(at, dispatch=dispatch)
    standing = {table: dict(chains) for table, chains in wanted.ruleset.chains.items()}
    wanted.take_changed()
    for group in data.draw(st.lists(st.lists(events(), min_size=1, max_size=3), max_size=6)):
        for event in group:
            world = happen(event, world, state)
        with state.lock:
            wanted.update(state, state.take_dirty())
        for table, chain in wanted.take_changed():
            text = wanted.ruleset.chains[table].get(chain)
            if text is None:
                standing[table].pop(chain, None)
            else:
                standing[table][chain] = text
        once = desired(family, world.objects, at, dispatch=dispatch)
        assert wanted.ruleset.chains == once.ruleset.chains
        assert standing == once.ruleset.chains, "a change that was not told"
        assert wanted.owner == once.owner
        assert wanted.health_checks == once.health_checks
        assert wanted.size == once.size
        assert wanted.lacking() == once.lacking()
        assert wanted.problems() == once.problems()
        assert set(state.keys()) == {port.key for key in state.keys() for port in wanted.ports_of(key)}  # noqa: SIM118


@FAMILIES
@pytest.mark.parametrize("dispatch", ["flat", "tree"])
@given(data=st.data())
def test_incremental_is_from_scratch(family, dispatch, data):
    check(family, dispatch, data)


@FAMILIES
@given(data=st.data())
def test_incremental_is_from_scratch_across_the_large_cluster_threshold(family, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LARGE_CLUSTER_ENDPOINTS", 5)
        check(family, "flat", data)
