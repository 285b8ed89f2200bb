"""A service that gains its first endpoint under a stream of SYNs loses no connection (S13)."""

import pytest

from e2e.faults import first_endpoint

pytestmark = pytest.mark.netns


@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_no_connection_is_lost(backend):
    seen = first_endpoint.in_a_process(backend, rounds=6)
    assert seen.answered > 100
    assert seen.refused > 100
    assert seen.lost == 0


@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_its_twin_with_filter_before_nat_loses_some(backend):
    assert first_endpoint.in_a_process(backend, rounds=6, twin="filter first").lost > 0
