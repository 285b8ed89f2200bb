"""Answers that a fault puts in place of the right one: which requests get them, how often, and what they say."""

from __future__ import annotations

import json

import pytest

from e2e.apiserver import ManualClock, StandIn
from tests.apiserver.asking import SERVICES, SLICES, answer, ask, names, service


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (410, "Expired"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
    ],
)
def test_the_next_requests_get_the_status_and_then_it_is_over(code: int, reason: str) -> None:
    with StandIn() as server:
        server.faults.answer(code, times=2)
        for _ in range(2):
            status, body = answer(server, SERVICES)
            assert (status, body["kind"], body["code"], body["reason"]) == (code, "Status", code, reason)
        assert answer(server, SERVICES)[0] == 200


def test_only_requests_of_the_resource_and_verb_get_it() -> None:
    with StandIn() as server:
        server.put(service("a"))
        server.faults.answer(500, resource="services", verb="list", times=None)
        assert answer(server, SLICES)[0] == 200
        assert answer(server, "/api/v1/namespaces/default/services/a")[0] == 200
        assert answer(server, SERVICES)[0] == 500
        server.faults.clear()
        assert answer(server, SERVICES)[0] == 200


def test_retry_after_is_a_header() -> None:
    with StandIn() as server:
        server.faults.answer(429, retry_after=7)
        with ask(server, SERVICES) as client:
            status, headers = client.head()
    assert (status, headers["Retry-After"]) == (429, "7")


def test_a_watch_may_fail_inside_its_stream() -> None:
    with StandIn() as server:
        server.faults.answer(410, verb="watch", in_stream=True)
        with ask(server, f"{SERVICES}?watch=1") as client:
            assert client.head()[0] == 200
            line = client.line()
            client.wait_end()
    assert (line["type"], line["object"]["code"]) == ("ERROR", 410)


def test_a_proxy_on_the_way_answers_html() -> None:
    with StandIn() as server:
        server.faults.answer_page(502)
        with ask(server, SERVICES) as client:
            status, headers = client.head()
            assert client.body().startswith(b"<html>")
    assert (status, headers["Content-Type"]) == (502, "text/html")


def test_a_piece_of_the_answer_is_replaced() -> None:
    with StandIn() as server:
        server.put(service("a"))
        server.faults.substitute('"name":"a"', '"name":null')
        assert answer(server, SERVICES)[1]["items"][0]["metadata"]["name"] is None
        assert names(answer(server, SERVICES)[1]) == ["a"]


def test_field_selectors_are_refused_until_that_is_taken_back() -> None:
    with StandIn() as server:
        server.faults.reject_field_selectors()
        for _ in range(3):
            status, body = answer(server, f"{SERVICES}?fieldSelector=spec.clusterIP%21%3DNone")
            assert (status, body["reason"]) == (400, "BadRequest")
        assert answer(server, SERVICES)[0] == 200


def test_a_late_answer_is_right() -> None:
    clock = ManualClock()
    with StandIn(clock=clock) as server:
        server.faults.delay(20)
        with ask(server, SERVICES) as client:
            clock.wait_for_waiting()
            clock.advance(19)
            server.edge.settle()
            assert server.stats.count("list") == 0
            clock.advance(1)
            assert client.head()[0] == 200
            assert json.loads(client.body())["kind"] == "ServiceList"
