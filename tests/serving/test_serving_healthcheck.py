from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from serving_client import ask, assert_same_headers, connect, read_all, read_answer, request, running
from serving_recordings import answer

from pykubeproxy.serving.healthcheck import ServiceHealthChecks
from pykubeproxy.serving.http import HttpServer
from pykubeproxy.serving.sockets import open_socket


class Rig:
    def __init__(self, server: HttpServer, family: str) -> None:
        self.is_healthy = True
        self.failures: list[tuple[str, str, str]] = []
        self.server = server
        self.checks = ServiceHealthChecks(
            server,
            family,  # type: ignore[arg-type]
            is_healthy=lambda: self.is_healthy,
            on_failure=lambda *failure: self.failures.append(failure),
        )


@contextmanager
def checks(family: str = "IPv4") -> Iterator[Rig]:
    with running() as server:
        yield Rig(server, family)


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    socks = [open_socket(host, 0) for _ in range(count)]
    try:
        return [sock.getsockname()[1] for sock in socks]
    finally:
        for sock in socks:
            sock.close()


def free_port() -> int:
    return free_ports(1)[0]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def is_open(port: int, host: str = "127.0.0.1") -> bool:
    try:
        connect((host, port)).close()
    except OSError:
        return False
    return True


def test_the_answer_is_the_recorded_one_byte_for_byte():
    recorded = answer("healthCheckNodePort")
    port = free_port()
    with checks() as rig:
        rig.checks.sync({port: ("default", "lb-local", 2)})
        ours = ask(("127.0.0.1", port), "/")
    assert (ours.status, ours.reason, ours.body) == (recorded.status, recorded.reason, recorded.body)
    assert_same_headers(ours, recorded)


@pytest.mark.parametrize(
    ("endpoints", "is_healthy", "status"), [(2, True, 200), (0, True, 503), (2, False, 503), (0, False, 503)]
)
def test_ok_needs_a_local_endpoint_and_a_healthy_proxy(endpoints, is_healthy, status):
    port = free_port()
    with checks() as rig:
        rig.is_healthy = is_healthy
        rig.checks.sync({port: ("ns", "svc", endpoints)})
        ours = ask(("127.0.0.1", port), "/any/path", "POST", body=b"x")
    assert ours.status == status
    assert ours.header("X-Load-Balancing-Endpoint-Weight") == str(endpoints)
    assert f'"localEndpoints": {endpoints},'.encode() in ours.body
    assert f'"serviceProxyHealthy": {str(is_healthy).lower()}'.encode() in ours.body


def test_a_changed_count_is_answered_on_the_same_connection():
    port = free_port()
    with checks() as rig:
        rig.checks.sync({port: ("ns", "svc", 1)})
        with connect(("127.0.0.1", port)) as sock:
            for endpoints, status in ((1, 200), (0, 503), (3, 200)):
                rig.checks.sync({port: ("ns", "svc", endpoints)})
                sock.sendall(request("GET", "/healthz"))
                assert read_answer(sock).status == status


def test_a_service_that_is_gone_answers_no_more_even_on_connections_that_stand():
    port = free_port()
    with checks() as rig:
        rig.checks.sync({port: ("ns", "svc", 1)})
        with connect(("127.0.0.1", port)) as sock:
            sock.sendall(request("GET", "/"))
            assert read_answer(sock).status == 200
            rig.checks.sync({})
            assert read_all(sock) == b""
        assert not is_open(port)
        assert rig.checks.open_ports() == {}


def test_deleting_and_creating_fifty_times_neither_collides_nor_leaks():
    port, other = free_ports(2)
    with checks() as rig:
        rig.checks.sync({other: ("ns", "other", 1)})
        ask(("127.0.0.1", other), "/")
        before = open_files()
        for round_ in range(50):
            rig.checks.sync({port: ("ns", "svc", round_ + 1), other: ("ns", "other", 1)})
            with connect(("127.0.0.1", port)) as sock:
                sock.sendall(request("GET", "/"))
                assert read_answer(sock).header("X-Load-Balancing-Endpoint-Weight") == str(round_ + 1)
                rig.checks.sync({other: ("ns", "other", 1)})
        assert rig.failures == []
        assert open_files() <= before


def test_a_port_that_moves_to_another_service():
    port = free_port()
    with checks() as rig:
        rig.checks.sync({port: ("ns", "old", 1)})
        rig.checks.sync({port: ("ns", "new", 0)})
        ours = ask(("127.0.0.1", port), "/")
    assert (ours.status, b'"name": "new"' in ours.body) == (503, True)


def test_a_taken_port_is_reported_once_and_taken_at_a_later_sync_while_others_work():
    port, other = free_ports(2)
    desired = {port: ("ns", "bad", 1), other: ("ns", "good", 1)}
    with checks() as rig:
        with open_socket("0.0.0.0", port, is_v6_only=True):
            for _ in range(3):
                rig.checks.sync(desired)
            assert ask(("127.0.0.1", other), "/").status == 200
            message = f"health check port {port}: cannot listen on 0.0.0.0:{port}: Address already in use"
            assert rig.failures == [("ns", "bad", message)]
        rig.checks.sync(desired)
        assert ask(("127.0.0.1", port), "/").status == 200
        rig.checks.sync({})
        with open_socket("0.0.0.0", port, is_v6_only=True):
            rig.checks.sync(desired)
        assert len(rig.failures) == 2  # a new failure is told anew


def test_a_port_that_is_no_port_is_reported():
    with checks() as rig:
        rig.checks.sync({70000: ("ns", "svc", 1)})
        assert [failure[:2] for failure in rig.failures] == [("ns", "svc")]


def test_only_the_given_addresses_of_the_own_family_are_listened_on_and_they_may_change():
    port = free_port()
    with checks() as rig:
        rig.checks.sync({port: ("ns", "svc", 1)}, ["127.0.0.2", "127.0.0.3", "::1"])
        assert rig.checks.open_ports() == {port: ["127.0.0.2", "127.0.0.3"]}
        assert [is_open(port, host) for host in ("127.0.0.1", "127.0.0.2", "127.0.0.3")] == [False, True, True]
        rig.checks.sync({port: ("ns", "svc", 1)}, ["127.0.0.3"])
        assert [is_open(port, host) for host in ("127.0.0.1", "127.0.0.2", "127.0.0.3")] == [False, False, True]
        rig.checks.sync({port: ("ns", "svc", 1)}, ["::1"])  # none of ours
        assert rig.checks.open_ports() == {}
        assert rig.failures == []


def test_one_address_that_fails_does_not_close_the_others():
    port = free_port()
    with checks() as rig, open_socket("127.0.0.2", port):
        rig.checks.sync({port: ("ns", "svc", 1)}, ["127.0.0.2", "127.0.0.3"])
        assert ask(("127.0.0.3", port), "/").status == 200
        assert len(rig.failures) == 1


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_both_families_share_a_port_and_each_counts_its_own():
    port = free_port()
    with running() as server:
        four, six = Rig(server, "IPv4"), Rig(server, "IPv6")
        for _ in range(2):
            four.checks.sync({port: ("ns", "svc", 1)})
            six.checks.sync({port: ("ns", "svc", 0)})
            assert four.failures == six.failures == []
            assert ask(("127.0.0.1", port), "/").status == 200
            assert ask(("::1", port), "/").status == 503
            six.checks.sync({})
            assert not is_open(port, "::1")
            assert ask(("127.0.0.1", port), "/").status == 200
            four.checks.sync({})


def test_hundreds_of_ports_take_no_thread_each():
    with checks() as rig:
        threads = threading.active_count()
        ports = free_ports(300)
        rig.checks.sync({port: ("ns", f"svc-{port}", 1) for port in ports})
        assert len(rig.checks.open_ports()) == 300
        for port in ports[::50]:
            assert f'"name": "svc-{port}"'.encode() in ask(("127.0.0.1", port), "/").body
        assert threading.active_count() == threads
        rig.checks.close()
        assert not is_open(ports[0])
