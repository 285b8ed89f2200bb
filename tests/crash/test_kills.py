"""Killed at random points, within a running restore as well, under traffic: nobody notices, the next start converges.

``python -m e2e.faults.crash`` does a thousand for each backend and three sizes of cluster; here are a few, and twins.
"""

import pytest

from e2e.faults import crash

pytestmark = pytest.mark.netns


@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_killed_anywhere_no_connection_fails(backend):
    report = crash.in_a_process(backend, kills=24, batch=60)
    assert report.killed >= 24
    assert report.connections > 500
    assert report.failed == 0, report
    assert report.wrong == []


@pytest.mark.parametrize("twin", ["sweep first", "in two commits"])
def test_its_twins_lose_connections(twin):
    report = crash.in_a_process("legacy", kills=16, batch=60, twin=twin)
    assert report.failed > 0
