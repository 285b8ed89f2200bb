"""Pages: what stands under which path of the health port and of the metrics port.

It exists so that probes, scrapers and scripts written for kube-proxy find what they expect: paths, bodies and headers
are those of kube-proxy 1.36, and where Go itself would speak (its version, its pprof) ours says what is true of Python.
It must not gather anything: what a page shows is passed in, mostly as a callable that is asked at each request.
"""

from __future__ import annotations

import gzip
import json
import platform
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

import yaml
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.process_collector import ProcessCollector

from pykubeproxy.serving import profiling
from pykubeproxy.serving.loopback import STATE, from_this_machine
from pykubeproxy.serving.message import JSON, TEXT, Handler, Request, Response, Routes, error, plain
from pykubeproxy.serving.metrics import CONTENT_TYPE, Metrics, exposition

COMPONENT = "kube-proxy"
_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for"
    " debugging purposes only."
)
_GROUP = "config.k8s.io"
_VERSIONS = ("v1beta1", "v1alpha1")
"""Of the structured forms of /statusz and /flagz; the first is current, the other deprecated since 1.36."""
_PROFILES = f"""\
/debug/pprof/

Text pages of a Python process; not the pprof protocol.

cmdline    command line, NUL between arguments
goroutine  the stack of every thread
heap       objects known to the garbage collector, by type
profile    stacks of all threads every 10 ms, counted; ?seconds=30 (at most {profiling.MAX_SECONDS:.0f})
"""


class AnswersProbes(Protocol):
    """What the health port needs: a status code and a JSON body per question."""

    def healthz(self) -> tuple[int, bytes]:
        """Answer for load balancers."""
        ...

    def livez(self) -> tuple[int, bytes]:
        """Answer the liveness probe."""
        ...

    def readyz(self) -> tuple[int, bytes]:
        """Answer the readiness probe."""
        ...


def health_routes(health: AnswersProbes, metrics: Metrics) -> Routes:
    """Return the pages of the health port (10256). Any method is answered, as the real one does."""

    def healthz(_: Request) -> Response:
        code, body = health.healthz()
        metrics.proxy_healthz_total.labels(code=str(int(code))).inc()
        return Response(code, body, JSON)

    def livez(_: Request) -> Response:
        code, body = health.livez()
        metrics.proxy_livez_total.labels(code=str(int(code))).inc()
        return Response(code, body, JSON)

    def readyz(_: Request) -> Response:
        code, body = health.readyz()
        return Response(code, body, JSON)

    routes = Routes()
    routes.add("/healthz", healthz, is_quick=True, methods=None)
    routes.add("/livez", livez, is_quick=True, methods=None)
    routes.add("/readyz", readyz, is_quick=True, methods=None)
    return routes


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What the metrics port tells of this process. ``start_time``: seconds since 1970."""

    mode: str = "iptables"
    version: str = "0"
    emulates: str = "1.36.2"
    configuration: Callable[[], Mapping[str, object]] = dict
    """The effective KubeProxyConfiguration (v1alpha1), kind and apiVersion included, in the order to be shown."""
    flags: Callable[[], Mapping[str, str]] = dict
    """Flag name → text of its value."""
    has_profiling: bool = False
    set_verbosity: Callable[[str], None] | None = None
    """Takes the new -v; raises ValueError for what is none."""
    start_time: float | None = None
    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


def metrics_routes(metrics: Metrics, about: About, *, stopping: threading.Event | None = None) -> Routes:
    """Return the pages of the metrics port (10249). ``stopping`` ends a profile that is being taken."""
    routes = Routes()
    start_time = process_start_time(about.wall) if about.start_time is None else about.start_time
    slis = _Slis(start_time)

    def healthz(request: Request) -> Response:
        slis.count()
        if request.parameter("verbose") is not None:
            return plain("[+]ping ok\nhealthz check passed\n")
        return plain("ok")

    def configz(_: Request) -> Response:
        return Response(HTTPStatus.OK, _compact({"kubeproxy.config.k8s.io": about.configuration()}), JSON)

    def show_metrics(registry: CollectorRegistry) -> Handler:
        def handler(request: Request) -> Response:
            headers = [("Process-Start-Time-Unix", str(int(start_time)))]
            body = exposition(registry)
            if _accepts_gzip(request.headers.get("accept-encoding", "")):
                body = gzip.compress(body, compresslevel=1)
                headers.insert(0, ("Content-Encoding", "gzip"))
            return Response(HTTPStatus.OK, body, CONTENT_TYPE, tuple(headers))

        return handler

    routes.add("/healthz", healthz, is_quick=True, methods=None)
    routes.add("/healthz/ping", healthz, is_quick=True, methods=None)
    routes.add("/proxyMode", lambda _: plain(about.mode), is_quick=True, methods=None)
    routes.add("/configz", configz, methods=None)
    routes.add("/metrics", show_metrics(metrics.registry), methods=None)
    routes.add("/metrics/slis", show_metrics(slis.registry), methods=None)
    routes.add("/statusz", _statusz(about, start_time, routes), methods=None)
    routes.add("/flagz", _flagz(about), methods=None)
    if about.has_profiling:
        _add_profiling(routes, about, stopping or threading.Event())
    return routes


def add_state(routes: Routes, state: Callable[[], Mapping[str, object]]) -> None:
    """Add the daemon's word on itself, for ``explain`` on the same machine. Not a page of kube-proxy's."""

    def answer(_: Request) -> Response:
        return Response(HTTPStatus.OK, _compact(state()), JSON)

    routes.add(STATE, from_this_machine(answer))


def process_start_time(wall: Callable[[], float] = time.time) -> float:
    """Return when this process was started (seconds since 1970), "now" where /proc does not tell."""
    for family in ProcessCollector(registry=None).collect():
        if family.name == "process_start_time_seconds":
            return family.samples[0].value
    return wall()


class _Slis:
    """The component SLIs (KEP-3466): this port's own health check, counted each time it is asked."""

    def __init__(self, start_time: float) -> None:
        self.registry = CollectorRegistry()
        health = Gauge("kubernetes_healthcheck", "Result of the check.", ["type", "name"], registry=self.registry)
        health.labels(type="healthz", name="ping").set(1)
        total = Counter(
            "kubernetes_healthchecks_total",
            "Results of the health check.",
            ["type", "name", "status"],
            registry=self.registry,
        )
        self._successes = total.labels(type="healthz", name="ping", status="success")
        started = Gauge("process_start_time_seconds", "Start of the process since 1970.", registry=self.registry)
        started.set(start_time)

    def count(self) -> None:
        self._successes.inc()


def _statusz(about: About, start_time: float, routes: Routes) -> Handler:
    age_at_start = max(0.0, about.wall() - start_time)
    began = about.monotonic()

    def handler(request: Request) -> Response:
        uptime = int(age_at_start + about.monotonic() - began)
        paths = sorted({"/" + path.split("/")[1] for path in routes.paths()} - {"/statusz"})
        emulates = ".".join(about.emulates.split(".")[:2])

        def text() -> str:
            started = time.strftime("%a %b %e %H:%M:%S UTC %Y", time.gmtime(start_time))
            return (
                f"\n{COMPONENT} statusz\n{_WARNING}\n\n"
                f"Started  {started}\n"
                f"Up  {uptime // 3600} hr {uptime // 60 % 60:02d} min {uptime % 60:02d} sec\n"
                f"Python version  {platform.python_version()}\n"
                f"Binary version  {about.version}\n"
                f"Emulation version  {emulates}\n"
                f"Paths  {' '.join(paths)}\n"
            )

        return _negotiate(
            request,
            "Statusz",
            text,
            {
                "startTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start_time)),
                "uptimeSeconds": uptime,
                "goVersion": f"python{platform.python_version()}",
                "binaryVersion": about.version,
                "emulationVersion": emulates,
                "paths": paths,
            },
        )

    return handler


def _flagz(about: About) -> Handler:
    def handler(request: Request) -> Response:
        flags = dict(sorted(about.flags().items()))

        def text() -> str:
            lines = "".join([f"{name}={value}\n" for name, value in flags.items()])
            return f"\n{COMPONENT} flagz\n{_WARNING}\n{lines}"

        return _negotiate(request, "Flagz", text, {"flags": flags})

    return handler


def _negotiate(request: Request, kind: str, text: Callable[[], str], fields: Mapping[str, object]) -> Response:
    """Answer with text, or with JSON or YAML if Accept names the whole type (media type, g, v and as)."""
    for media_type, parameters in _accepted(request.headers.get("accept", "")):
        if media_type in ("text/plain", "text/*", "*/*"):
            return Response(HTTPStatus.OK, text().encode(), TEXT, headers=())
        version = parameters.get("v", "")
        names_us = parameters.get("g") == _GROUP and parameters.get("as") == kind and version in _VERSIONS
        if media_type not in ("application/json", "application/yaml") or not names_us:
            continue
        document = {
            "kind": kind,
            "apiVersion": f"{_GROUP}/{version}",
            "metadata": {"name": COMPONENT},
            **fields,
        }
        headers: tuple[tuple[str, str], ...] = ()
        if version != _VERSIONS[0]:
            advice = f"{_GROUP}/{version} {kind} is deprecated, use {_GROUP}/{_VERSIONS[0]} {kind}"
            headers = (("Warning", f'299 - "{advice}"'),)
        if media_type == "application/json":
            body = _compact(document) + b"\n"
        else:
            body = yaml.safe_dump(document, default_flow_style=False).encode()
        return Response(HTTPStatus.OK, body, media_type, headers)
    whole = [f"{base};g={_GROUP};v={_VERSIONS[0]};as={kind}" for base in ("application/json", "application/yaml")]
    return error(
        HTTPStatus.NOT_ACCEPTABLE, f"only the following media types are accepted: {', '.join(['text/plain', *whole])}"
    )


def _accepted(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Return the clauses of an Accept header, most wanted first; among equals the wildcards come last."""
    clauses = []
    for clause in (accept or "*/*").split(",")[:50]:
        media_type, *rest = [part.strip() for part in clause.split(";")]
        pairs = (part.partition("=") for part in rest)
        parameters = {name.strip(): value.strip().strip('"') for name, _, value in pairs}
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 0.0
        if quality > 0:
            clauses.append((-quality, media_type.count("*"), media_type.lower(), parameters))
    clauses.sort(key=lambda clause: clause[:2])
    return [(media_type, parameters) for _, _, media_type, parameters in clauses]


def _accepts_gzip(accept_encoding: str) -> bool:
    return any(name in ("gzip", "*") for name, _ in _accepted(accept_encoding or "identity"))


def _add_profiling(routes: Routes, about: About, stopping: threading.Event) -> None:
    is_sampling = threading.Lock()

    def text(body: str) -> Response:
        return Response(HTTPStatus.OK, body.encode(), TEXT)

    def profile(request: Request) -> Response:
        try:
            seconds = float(request.parameter("seconds") or 30)
        except ValueError:
            return error(HTTPStatus.BAD_REQUEST, "seconds must be a number")
        if not is_sampling.acquire(blocking=False):
            return error(HTTPStatus.SERVICE_UNAVAILABLE, "another profile is being taken")
        try:
            return text(profiling.sample_stacks(seconds, stopping=stopping))
        finally:
            is_sampling.release()

    def index(request: Request) -> Response:
        if request.path != "/debug/pprof/":
            return error(HTTPStatus.NOT_FOUND, "Unknown profile")
        return text(_PROFILES)

    def put_verbosity(request: Request) -> Response:
        if request.method != "PUT" or about.set_verbosity is None:
            return error(HTTPStatus.NOT_ACCEPTABLE, "unsupported http method")
        value = request.body.decode("utf-8", "replace").strip()
        try:
            about.set_verbosity(value)
        except ValueError as problem:
            return error(HTTPStatus.BAD_REQUEST, f"failed set klog.logging.verbosity {value}: {problem}")
        return error(HTTPStatus.OK, f"successfully set klog.logging.verbosity to {value}")

    routes.add("/debug/flags/v", put_verbosity, methods=None)
    routes.add("/debug/pprof/", index)
    routes.add("/debug/pprof/cmdline", lambda _: text("\0".join(sys.argv)))
    routes.add("/debug/pprof/goroutine", lambda _: text(profiling.thread_dump()))
    routes.add("/debug/pprof/heap", lambda _: text(profiling.heap_summary()))
    routes.add("/debug/pprof/profile", profile, methods=("GET",))


def _compact(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
