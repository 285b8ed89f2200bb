"""Writes, reads and mistakes: the stand-in says what a real kube-apiserver said in the same conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.apiserver import StandIn
from tests.apiserver import exchanges, realcluster, recordings
from tests.apiserver.realcluster import TOKENS, RealCluster
from tests.apiserver.wireclient import WireClient

RECORDED = {said["name"]: said for said in json.loads(exchanges.RECORDED.read_text())}


@pytest.fixture(scope="module")
def said_by_stand_in() -> dict[str, dict[str, Any]]:
    with StandIn(tokens=[TOKENS["valid"]]) as server:
        (kubernetes,) = (step for step in recordings.history() if step.name == "kubernetes")
        assert kubernetes.obj is not None
        server.put(kubernetes.obj)
        said = exchanges.hold(lambda: WireClient("127.0.0.1", server.port), TOKENS["valid"])
    return {each["name"]: each for each in said}


@pytest.mark.parametrize("exchange", exchanges.CONVERSATION, ids=lambda each: each.name)
def test_the_stand_in_says_what_the_real_server_said(
    said_by_stand_in: dict[str, dict[str, Any]], exchange: exchanges.Exchange
) -> None:
    assert said_by_stand_in[exchange.name] == RECORDED[exchange.name]


@pytest.mark.slow
@pytest.mark.skipif(bool(realcluster.why_absent()), reason=realcluster.why_absent() or "there is one")
def test_a_real_server_still_says_so() -> None:
    with RealCluster() as cluster:
        said = exchanges.hold(lambda: WireClient("127.0.0.1", cluster.port, cluster.context), TOKENS["valid"])
    assert {each["name"]: each for each in said} == RECORDED
