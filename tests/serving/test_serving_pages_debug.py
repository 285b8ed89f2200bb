from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry
from serving_client import ask, running

from pykubeproxy.serving import profiling
from pykubeproxy.serving.metrics import Metrics
from pykubeproxy.serving.pages import About, metrics_routes


@contextmanager
def debug_server(**about):
    with running() as server:
        metrics = Metrics(CollectorRegistry(), with_process=False)
        routes = metrics_routes(metrics, About(has_profiling=True, **about), stopping=server.stopping)
        (address,) = server.serve("metrics", ["127.0.0.1:0"], routes).addresses
        yield address, server


@contextmanager
def busy_thread(name: str):
    ended = threading.Event()

    def wait_here() -> None:
        ended.wait(60)

    thread = threading.Thread(target=wait_here, name=name)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_the_index_lists_what_there_is():
    with debug_server() as (address, _):
        index = ask(address, "/debug/pprof/")
        assert index.status == 200
        for word in (b"cmdline", b"goroutine", b"heap", b"profile"):
            assert word in index.body
        for word in ("trace", "symbol"):
            assert ask(address, f"/debug/pprof/{word}").body == b"Unknown profile\n"


def test_every_thread_is_shown():
    with debug_server() as (address, _), busy_thread("waits-for-test"):
        dump = ask(address, "/debug/pprof/goroutine?debug=2").body.decode()
    assert "[waits-for-test]:" in dump
    assert "wait_here" in dump
    assert "[http] daemon:" in dump


def test_a_profile_counts_stacks():
    with debug_server() as (address, _), busy_thread("waits-for-test"):
        profile = ask(address, "/debug/pprof/profile?seconds=0.05").body.decode()
    lines = [line for line in profile.splitlines() if line.startswith("waits-for-test;")]
    assert any("wait_here" in line for line in lines)
    assert all(int(line.rsplit(" ", 1)[1]) > 0 for line in lines)


def test_only_one_profile_at_a_time_and_it_ends_when_the_server_stops():
    with debug_server() as (address, server):
        sampling = threading.Event()
        answers = []

        def slow(seconds: float, *, stopping: threading.Event) -> str:
            sampling.set()
            assert stopping.wait(30)
            return "ended"

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(profiling, "sample_stacks", slow)

            def first() -> None:
                with pytest.raises(EOFError):  # the server goes before the answer comes
                    answers.append(ask(address, "/debug/pprof/profile?seconds=60"))

            thread = threading.Thread(target=first)
            thread.start()
            assert sampling.wait(30)
            assert ask(address, "/debug/pprof/profile?seconds=1").status == 503
            server.stop()
            thread.join()
    assert answers == []


def test_sampling_ends_early_when_told():
    stopping = threading.Event()
    stopping.set()
    with busy_thread("waits-for-test"):
        assert "waits-for-test;" in profiling.sample_stacks(60, stopping=stopping)


def test_nonsense_seconds():
    with debug_server() as (address, _):
        assert ask(address, "/debug/pprof/profile?seconds=many").status == 400


def test_heap_and_command_line():
    with debug_server() as (address, _):
        heap = ask(address, "/debug/pprof/heap").body.decode().splitlines()
        assert heap[0].split() == ["objects", "bytes", "type"]
        assert any(line.endswith(" builtins.dict") for line in heap)
        assert ask(address, "/debug/pprof/cmdline").status == 200


def test_the_verbosity_is_put():
    seen: list[str] = []

    def set_verbosity(value: str) -> None:
        int(value)
        seen.append(value)

    with debug_server(set_verbosity=set_verbosity) as (address, _):
        done = ask(address, "/debug/flags/v", "PUT", body=b"5")
        assert (done.status, done.body) == (200, b"successfully set klog.logging.verbosity to 5\n")
        refused = ask(address, "/debug/flags/v", "PUT", body=b"loud")
        assert refused.status == 400
        assert refused.body.startswith(b"failed set klog.logging.verbosity loud: ")
        assert (ask(address, "/debug/flags/v").status, ask(address, "/debug/flags/v").body) == (
            406,
            b"unsupported http method\n",
        )
    assert seen == ["5"]
