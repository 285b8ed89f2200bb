from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
import yaml
from prometheus_client import CollectorRegistry
from serving_client import ask, assert_same_headers, serving
from serving_recordings import answer, series_of

from pykubeproxy.serving.message import plain
from pykubeproxy.serving.metrics import Metrics
from pykubeproxy.serving.pages import About, metrics_routes, process_start_time

START = 1796043176.45
GROUP = "config.k8s.io"


def recorded_flags() -> dict[str, str]:
    lines = answer("10249-flagz").body.decode().splitlines()[3:]
    return dict(line.split("=", 1) for line in lines)


def recorded_configuration() -> dict[str, object]:
    return json.loads(answer("10249-configz").body)["kubeproxy.config.k8s.io"]


class Clock:
    wall = START + 3
    mono = 500.0


@contextmanager
def metrics_server(clock: Clock | None = None, **about) -> Iterator[tuple[str, int]]:
    clock = clock or Clock()
    metrics = Metrics(CollectorRegistry(), with_process=False)
    facts = About(
        version="0.1.0",
        configuration=recorded_configuration,
        flags=lambda: dict(reversed(recorded_flags().items())),
        start_time=START,
        wall=lambda: clock.wall,
        monotonic=lambda: clock.mono,
        **about,
    )
    routes = metrics_routes(metrics, facts)
    with serving(routes) as address:
        yield address


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("10249-healthz", "/healthz"),
        ("10249-proxyMode", "/proxyMode"),
        ("10249-configz", "/configz"),
        ("10249-root", "/"),
        ("10249-root", "/debug/pprof/"),
        ("10249-root", "/debug/flags/v"),
        ("10249-root", "/readyz"),
    ],
)
def test_answers_byte_for_byte_as_recorded(name, path):
    recorded = answer(name)
    with metrics_server() as address:
        ours = ask(address, path)
    assert (ours.status, ours.reason, ours.body) == (recorded.status, recorded.reason, recorded.body)
    assert_same_headers(ours, recorded, free=("Date", "Content-Length"))  # a path in configz has been changed
    assert int(ours.header("Content-Length")) == len(recorded.body)


def test_flagz_as_recorded():
    recorded = answer("10249-flagz")
    with metrics_server() as address:
        ours = ask(address, "/flagz")
    assert ours.body == recorded.body
    assert_same_headers(ours, recorded, free=("Date", "Content-Length"))  # a value of the recording has been cut


def test_statusz_as_recorded_but_for_the_language():
    recorded = answer("10249-statusz")
    clock = Clock()
    with metrics_server(clock) as address:
        clock.mono += 7
        ours = ask(address, "/statusz")
    assert_same_headers(ours, recorded, free=("Date", "Content-Length"))

    def comparable(body: bytes) -> list[str]:
        lines = body.decode().splitlines()
        return [line for line in lines if "version  " not in line or line.startswith("Emulation")]

    assert comparable(ours.body) == comparable(recorded.body)
    assert b"\nBinary version  0.1.0\n" in ours.body
    assert b"\nPython version  3." in ours.body


def test_statusz_counts_time_by_the_clock_that_does_not_jump():
    clock = Clock()
    with metrics_server(clock) as address:
        clock.wall += 1_000_000
        clock.mono += 2 * 3600 + 3 * 60 + 4 - 3
        assert b"\nUp  2 hr 03 min 04 sec\n" in ask(address, "/statusz").body


@pytest.mark.parametrize(
    "accept", ["", "*/*", "text/plain", "text/plain;charset=utf-8", "text/*", "application/xml, */*;q=0.1"]
)
@pytest.mark.parametrize("path", ["/statusz", "/flagz"])
def test_text_is_the_default(path, accept):
    with metrics_server() as address:
        ours = ask(address, path, headers={"Accept": accept})
    assert ours.status == 200
    assert ours.header("Content-Type") == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    "accept",
    [
        "application/xml",
        "application/json",
        "application/json;v=v1beta1;g=config.k8s.io",
        "application/json;v=foo;g=config.k8s.io;as=Statusz",
        "application/json;v=v1beta1;g=config.k8s.io;as=Other",
        "text/plain;q=0",
        "text/plain;q=nonsense",
    ],
)
def test_what_cannot_be_served_is_not_acceptable(accept):
    with metrics_server() as address:
        ours = ask(address, "/statusz", headers={"Accept": accept})
    assert ours.status == 406
    assert ours.body.startswith(b"only the following media types are accepted: text/plain, application/json;")


def structured(address: tuple[str, int], path: str, accept: str) -> tuple[Mapping[str, object], dict[str, str]]:
    ours = ask(address, path, headers={"Accept": accept})
    assert ours.status == 200
    load = json.loads if "json" in ours.header("Content-Type") else yaml.safe_load
    return load(ours.body), dict(ours.headers)


@pytest.mark.parametrize("language", ["json", "yaml"])
def test_the_structured_forms(language):
    with metrics_server() as address:
        status, headers = structured(address, "/statusz", f"application/{language};v=v1beta1;g={GROUP};as=Statusz")
        flags, _ = structured(address, "/flagz", f"application/{language};g={GROUP};v=v1beta1;as=Flagz")
    assert headers["Content-Type"] == f"application/{language}"
    assert "Warning" not in headers
    assert status.pop("goVersion").startswith("python3.")
    assert status == {
        "kind": "Statusz",
        "apiVersion": f"{GROUP}/v1beta1",
        "metadata": {"name": "kube-proxy"},
        "startTime": "2026-11-30T12:52:56Z",
        "uptimeSeconds": 3,
        "binaryVersion": "0.1.0",
        "emulationVersion": "1.36",
        "paths": ["/configz", "/flagz", "/healthz", "/metrics", "/proxyMode"],
    }
    assert flags == {
        "kind": "Flagz",
        "apiVersion": f"{GROUP}/v1beta1",
        "metadata": {"name": "kube-proxy"},
        "flags": recorded_flags(),
    }


def test_the_first_of_equals_wins_the_old_form_warns_and_wildcards_come_last():
    alpha = f"application/json;g={GROUP};v=v1alpha1;as=Statusz"
    beta = f"application/json;g={GROUP};v=v1beta1;as=Statusz"
    with metrics_server() as address:
        document, headers = structured(address, "/statusz", f"{alpha},{beta}")
        assert document["apiVersion"] == f"{GROUP}/v1alpha1"
        assert headers["Warning"].startswith('299 - "config.k8s.io/v1alpha1 Statusz is deprecated')
        for accept in (f"{beta},{alpha}", f"{alpha};q=0.5,{beta}", f"*/*,{beta}"):
            document, headers = structured(address, "/statusz", accept)
            assert document["apiVersion"] == f"{GROUP}/v1beta1"


def test_metrics_have_the_recorded_headers_and_please_promtool():
    recorded = answer("10249-metrics_slis")
    with metrics_server() as address:
        ours = ask(address, "/metrics")
    assert_same_headers(ours, recorded, free=("Date", "Content-Length"))
    result = subprocess.run(["promtool", "check", "metrics"], input=ours.body, capture_output=True, check=False)
    assert [line for line in result.stderr.decode().splitlines() if 'should not have "_total"' not in line] == []


def test_metrics_are_compressed_for_those_who_ask():
    with metrics_server() as address:
        plain_answer = ask(address, "/metrics")
        small = ask(address, "/metrics", headers={"Accept-Encoding": "gzip"})
        refused = ask(address, "/metrics", headers={"Accept-Encoding": "gzip;q=0"})
    assert small.header("Content-Encoding") == "gzip"
    assert gzip.decompress(small.body) == plain_answer.body == refused.body


def test_openmetrics_is_not_spoken_even_if_preferred():
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    with metrics_server() as address:
        assert (
            ask(address, "/metrics", headers={"Accept": accept})
            .header("Content-Type")
            .startswith("text/plain; version=0.0.4")
        )


def test_slis_as_recorded():
    recorded = answer("10249-metrics_slis")
    with metrics_server() as address:
        ask(address, "/healthz")
        ours = ask(address, "/metrics/slis")
    assert_same_headers(ours, recorded, free=("Date", "Content-Length"))
    without_help = [line for line in ours.body.decode().splitlines() if not line.startswith("# HELP")]
    assert without_help == recorded.body.decode().splitlines()
    assert set(series_of(ours.body.decode())) == set(series_of(recorded.body.decode()))


def test_healthz_with_detail():
    with metrics_server() as address:
        assert ask(address, "/healthz?verbose").body == b"[+]ping ok\nhealthz check passed\n"
        assert ask(address, "/healthz/ping").body == b"ok"


def test_a_configuration_that_cannot_be_shown_costs_its_page_only():
    metrics = Metrics(CollectorRegistry(), with_process=False)
    routes = metrics_routes(metrics, About(configuration=lambda: {"x": object()}))
    with serving(routes) as address:
        assert ask(address, "/configz").status == 500
        assert ask(address, "/healthz").status == 200


def test_more_pages_can_be_added():
    metrics = Metrics(CollectorRegistry(), with_process=False)
    routes = metrics_routes(metrics, About())
    routes.add("/debug/services/", lambda request: plain(request.path))
    with serving(routes) as address:
        assert ask(address, "/debug/services/ns/web").body == b"/debug/services/ns/web"
        assert ask(address, "/debug/services/ns/web", "POST").status == 405
        assert b"Paths  /configz /debug /flagz" in ask(address, "/statusz").body


def test_the_start_of_this_process_is_known():
    assert process_start_time(lambda: 0.0) > START / 10
