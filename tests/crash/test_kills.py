"""Killed at random points, within a running restore as well, under traffic: nobody notices, the next start converges.

``python -m e2e.faults.crash`` does a thousand for each backend and three sizes of cluster; here are a few, and the twin.
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


def test_its_twin_that_sweeps_first_loses_connections():
    report = crash.in_a_process("legacy", kills=24, batch=60, twin="sweep first")
    assert report.failed > 0
