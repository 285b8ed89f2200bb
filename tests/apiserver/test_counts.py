"""Counts of requests and open watches, and waiting for them."""

from __future__ import annotations

import pytest

from e2e.apiserver import StandIn
from tests.apiserver.asking import SERVICES, SLICES, answer, watch


def test_requests_are_counted_by_verb_and_resource() -> None:
    with StandIn() as server:
        answer(server, SERVICES)
        answer(server, f"{SLICES}?limit=1", bearer="t")
        answer(server, "/api/v1/nodes/none")
        assert server.stats.count("list") == 2
        assert server.stats.count("list", "endpointslices") == 1
        assert server.stats.requests["get", "nodes"] == 1
        assert server.stats.answers == {200: 2, 404: 1}
        seen = server.stats.seen[1]
        assert (seen.url, seen.token, seen.status) == (f"{SLICES}?limit=1", "t", 200)
        server.stats.reset()
        assert server.stats.count("list") == 0


def test_a_watch_is_open_until_its_client_goes() -> None:
    with StandIn() as server:
        with watch(server), watch(server, SLICES):
            assert server.stats.open_watches() == 2
            assert server.stats.open_watches("services") == 1
        server.stats.wait(lambda stats: stats.open_watches() == 0 and stats.connections_open == 0)


def test_waiting_in_vain_tells_what_was_seen() -> None:
    with pytest.raises(TimeoutError, match=r"so far: .*'requests': \{\}"):
        StandIn().stats.wait(lambda stats: stats.count("list") > 0, timeout=0.01)
