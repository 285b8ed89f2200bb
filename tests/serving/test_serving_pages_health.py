from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from serving_client import ask, assert_same_headers, serving
from serving_recordings import answer

from pykubeproxy.serving.health import TO_BE_DELETED_TAINT, ProxierHealth
from pykubeproxy.serving.metrics import Metrics
from pykubeproxy.serving.pages import health_routes


class Rig:
    def __init__(self) -> None:
        self.now = 0.0
        self.health = ProxierHealth(("IPv4", "IPv6"), 30.0, monotonic=lambda: self.now)
        self.metrics = Metrics(CollectorRegistry(), with_process=False)
        self.address = ("", 0)

    def ask(self, path: str, method: str = "GET"):
        return ask(self.address, path, method)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    with serving(health_routes(rig.health, rig.metrics)) as address:
        rig.address = address
        rig.health.updated("IPv4")
        rig.health.updated("IPv6")
        yield rig


def shape(document: object) -> object:
    """Keep the keys, their order, and what is no time."""
    if isinstance(document, dict):
        return [(key, shape(value)) for key, value in document.items()]
    return "<text>" if isinstance(document, str) else document


@pytest.mark.parametrize(
    ("name", "path", "method"),
    [
        ("10256-healthz", "/healthz", "GET"),
        ("10256-healthz-POST", "/healthz", "POST"),
        ("10256-healthz-tainted", "/healthz", "GET"),
        ("10256-livez", "/livez", "GET"),
        ("10256-nosuch", "/nosuch", "GET"),
        ("10256-metrics", "/metrics", "GET"),
    ],
)
def test_answers_as_recorded(rig, name, path, method):
    recorded = answer(name)
    if "tainted" in name:
        rig.health.set_node(is_known=True, taint_keys=[TO_BE_DELETED_TAINT])
    ours = rig.ask(path, method)
    assert (ours.status, ours.reason) == (recorded.status, recorded.reason)
    assert_same_headers(ours, recorded, free=("Date", "Content-Length"))
    if recorded.header("Content-Type") == "application/json":
        assert shape(json.loads(ours.body)) == shape(json.loads(recorded.body))
    else:
        assert ours.body == recorded.body


def test_answers_are_counted_by_code(rig):
    rig.ask("/healthz")
    rig.ask("/livez")
    rig.health.queued_update("IPv4")
    rig.now = 60
    for path in ("/healthz", "/healthz", "/livez"):
        assert rig.ask(path).status == 503
    text = rig.metrics.exposition().decode()
    for line in (
        'kubeproxy_proxy_healthz_total{code="200"} 1',
        'kubeproxy_proxy_healthz_total{code="503"} 2',
        'kubeproxy_proxy_livez_total{code="200"} 1',
        'kubeproxy_proxy_livez_total{code="503"} 1',
    ):
        assert line in text.splitlines()


def test_every_method_and_query_gets_the_same_answer(rig):
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
        assert rig.ask("/healthz?x=y", method).status == 200
    assert rig.ask("/livez", "HEAD").status == 200


def test_readyz_says_why_not(rig):
    assert rig.ask("/readyz").status == 200
    rig.health.queued_update("IPv6")
    rig.now = 61
    refusal = rig.ask("/readyz")
    assert refusal.status == 503
    assert refusal.header("Content-Type") == "application/json"
    assert json.loads(refusal.body)["reasons"] == ["IPv6: a change has been waiting for 61 s (limit 60 s)"]
