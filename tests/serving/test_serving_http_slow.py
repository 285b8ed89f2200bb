"""Slow answers: made one at a time in a thread of their own, for nobody who has left, and no reason to stay."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from serving_client import ask, connect, hello, parse, read_all, request, serving

from pykubeproxy.serving.connection import Limits
from pykubeproxy.serving.message import plain

ROOT = Path(__file__).parents[2]
STAYS_BUSY = """
import sys, threading
from pykubeproxy.serving.http import HttpServer
from pykubeproxy.serving.message import Request, Routes, plain
begun = threading.Event()

def page(request):
    begun.set()
    threading.Event().wait()

routes = Routes()
routes.add("/page", page, is_slow=sys.argv[1] == "slow")
server = HttpServer()
server.start()
(address,) = server.serve("test", ["127.0.0.1:0"], routes).addresses
import socket
client = socket.create_connection(address)
client.sendall(b"GET /page HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
begun.wait()
server.stop()
print("stopped")
"""


class Gate:
    """A handler that waits to be let on, and counts."""

    def __init__(self):
        self.begun = threading.Semaphore(0)
        self.open = threading.Semaphore(0)
        self.made = []

    def __call__(self, asked):
        self.begun.release()
        assert self.open.acquire(timeout=30)
        self.made.append(asked.path)
        return plain("page")


def pages(gate):
    routes = hello()
    routes.add("/page/", gate, is_slow=True)
    routes.add("/metrics", lambda _: plain("metrics"))
    return routes


def turn(address):
    """Let the loop come to everything that has been sent so far: what is asked second comes after that."""
    for _ in range(2):
        assert ask(address, "/hello").status == 200


def test_nobody_waits_for_a_slow_answer():
    gate = Gate()
    with serving(pages(gate)) as address, connect(address) as one, connect(address) as two, connect(address) as three:
        for number, sock in enumerate((one, two, three)):
            sock.sendall(request("GET", f"/page/{number}", {"Connection": "close"}))
        assert gate.begun.acquire(timeout=30)
        assert ask(address, "/metrics").body == b"metrics"
        assert ask(address, "/hello").status == 200
        assert not gate.begun.acquire(blocking=False), "one at a time"
        gate.open.release(3)
        assert [parse(read_all(sock)).body for sock in (one, two, three)] == [b"page"] * 3


def test_what_waits_for_a_client_that_has_left_is_not_begun():
    gate = Gate()
    with serving(pages(gate)) as address, connect(address) as first:
        first.sendall(request("GET", "/page/first", {"Connection": "close"}))
        assert gate.begun.acquire(timeout=30)
        for _ in range(3):
            with connect(address) as gone:
                gone.sendall(request("GET", "/page/gone") + b"GET /")
        with connect(address) as last:
            last.sendall(request("GET", "/page/last", {"Connection": "close"}))
            turn(address)
            gate.open.release(9)
            assert parse(read_all(last)).body == b"page"
    assert gate.made == ["/page/first", "/page/last"]


def test_too_many_that_wait_are_turned_away():
    gate = Gate()
    with serving(pages(gate), Limits(max_slow_waiting=1)) as address, connect(address) as one, connect(address) as two:
        one.sendall(request("GET", "/page/1", {"Connection": "close"}))
        assert gate.begun.acquire(timeout=30)
        two.sendall(request("GET", "/page/2", {"Connection": "close"}))
        turn(address)
        refused = ask(address, "/page/3")
        assert (refused.status, refused.header("Retry-After")) == (503, "5")
        gate.open.release(2)
        assert [parse(read_all(sock)).body for sock in (one, two)] == [b"page", b"page"]


def test_the_process_ends_while_an_answer_is_being_made():
    for kind in ("slow", "other"):
        done = subprocess.run(
            [sys.executable, "-c", STAYS_BUSY, kind], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["stopped"]), done.stderr
