"""What the daemon says of itself, asked over loopback: in sync or not, what it leaves out, not there, somebody else."""

import contextlib
import socket

import pytest

from pykubeproxy.insight import explaintext
from pykubeproxy.insight.explain import Daemon, Explanation
from pykubeproxy.insight.running import ask
from pykubeproxy.model.service import ServiceKey
from pykubeproxy.serving.http import HttpServer
from pykubeproxy.serving.message import Routes, plain
from pykubeproxy.serving.pages import add_state

WEB = ServiceKey("default", "web")
STATE = {"node": "node-a", "version": "1", "notReady": [], "leftOut": {"IPv4": {"default/web": "no match recent"}}}


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch):
    monkeypatch.setattr("pykubeproxy.insight.running.holder", lambda: None)


@contextlib.contextmanager
def daemon(routes, host="127.0.0.1"):
    server = HttpServer()
    server.start()
    try:
        (address,) = server.serve("metrics", [f"{host}:0"], routes).addresses
        yield address[1]
    finally:
        server.stop()


def telling(**more):
    routes = Routes()
    add_state(routes, lambda: STATE | more)
    return routes


def test_in_sync_and_what_is_left_out():
    with daemon(telling()) as port:
        found = ask(f"127.0.0.1:{port}")
    assert found.daemon == Daemon(condition="in sync", node="node-a")
    assert found.why_left_out(WEB, "IPv4") == "no match recent"
    assert found.why_left_out(WEB, "IPv6") == found.why_left_out(ServiceKey("default", "x"), "IPv4") == ""


def test_on_all_addresses_it_is_asked_on_loopback():
    with daemon(telling(notReady=["IPv4: a change has been waiting"]), host="0.0.0.0") as port:
        found = ask(f"0.0.0.0:{port}")
    assert found.daemon == Daemon(condition="not in sync", why=("IPv4: a change has been waiting",), node="node-a")


def test_nobody_and_somebody_who_cannot_be_asked(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert ask(address).daemon == Daemon(condition="absent", why=(f"{address}: Connection refused",))
        monkeypatch.setattr("pykubeproxy.insight.running.holder", lambda: (1, 0))
        assert ask(address).daemon.condition == "silent"
        assert ask("").daemon == Daemon(condition="silent", why=("its metrics port is switched off",))


def test_another_program():
    routes = Routes()
    routes.add("/metrics", lambda _: plain("kube-proxy"))
    with daemon(routes) as port:
        found = ask(f"127.0.0.1:{port}")
    assert found.daemon.condition == "absent"
    assert "another program, such as kube-proxy" in found.daemon.why[0]


def lines(**more):
    explanation = Explanation(service="default/web", family="IPv4", node="node-a", ports=(), kernel="", **more)
    return [str(child.label) for child in explaintext.tree(explanation).children]


@pytest.mark.parametrize(
    ("daemon", "told"),
    [
        (Daemon(condition="in sync", node="node-a"), ["the daemon follows the cluster"]),
        (Daemon(condition="not in sync", why=("a", "b"), node="node-a"), ["the daemon is not in sync: a; b"]),
        (
            Daemon(condition="in sync", notes=("a.yaml: is empty",), node="node-a"),
            ["the daemon follows the cluster", "the daemon says: a.yaml: is empty"],
        ),
        (Daemon(condition="silent", why=("a",)), ["the daemon cannot be asked (a)"]),
        (Daemon(condition="absent", why=("a",)), ["no pykubeproxy runs here (a): nobody keeps the rules up to date"]),
        (
            Daemon(condition="in sync", node="node-b"),
            ["the daemon follows the cluster", "the daemon here calls its node node-b"],
        ),
        (None, []),
    ],
)
def test_it_is_told(daemon, told):
    assert lines(daemon=daemon) == told


def test_why_a_service_is_left_out_is_told():
    assert lines(left_out="no match recent") == ["left out by the daemon: no match recent"]


def test_of_many_oddities_some_are_told():
    problems = tuple(f"EndpointSlice default/web-{i}: ports[0].port: is missing" for i in range(3000))
    shown = lines(problems=problems)
    assert len(shown) == 11
    assert shown[-1] == "… and 2,990 more like these"
