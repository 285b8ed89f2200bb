from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from serving_client import ask, connect, hello, read_all, running
from structlog.testing import capture_logs

from pykubeproxy.errors import EnvironmentProblem
from pykubeproxy.serving.connection import Limits
from pykubeproxy.serving.sockets import format_address, open_socket, split_address


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on loopback")


def taken_port() -> socket.socket:
    return open_socket("127.0.0.1", 0)


def test_one_server_answers_on_several_addresses():
    with running() as server:
        served = server.serve("test", ["127.0.0.1:0", "127.0.0.2:0"], hello())
        assert [host for host, _ in served.addresses] == ["127.0.0.1", "127.0.0.2"]
        assert served.wait(0)
        for address in served.addresses:
            assert ask(address, "/hello").status == 200


@needs_ipv6
def test_an_ipv6_address_stands_in_brackets():
    with running() as server:
        ((host, port),) = server.serve("test", ["[::1]:0"], hello()).addresses
        assert host == "::1"
        assert ask((host, port), "/hello").status == 200


@needs_ipv6
@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", ":0"])
def test_a_wildcard_of_either_family_takes_both_as_in_go(address):
    with running() as server:
        ((_, port),) = server.serve("test", [address], hello()).addresses
        assert ask(("127.0.0.1", port), "/hello").status == 200
        assert ask(("::1", port), "/hello").status == 200


def test_a_wildcard_where_the_machine_has_no_ipv6(monkeypatch):
    real = socket.socket

    def without_ipv6(family=socket.AF_INET, *args, **kwargs):
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return real(family, *args, **kwargs)

    monkeypatch.setattr(socket, "socket", without_ipv6)
    with open_socket("0.0.0.0", 0) as sock:
        assert sock.family == socket.AF_INET


def test_a_taken_port_is_reported_once_tried_again_and_served_in_the_end():
    messages: list[str] = []
    with taken_port() as blocker, running(Limits(retry_interval=0.02)) as server:
        port = blocker.getsockname()[1]
        served = server.serve("health", ["127.0.0.1:0", f"127.0.0.1:{port}"], hello(), on_failure=messages.append)
        assert len(served.addresses) == 1  # the other address answers meanwhile
        assert ask(served.addresses[0], "/hello").status == 200
        assert not served.wait(0.1)  # some attempts later
        assert messages == [f"health cannot listen on 127.0.0.1:{port}: Address already in use"]
        blocker.close()
        assert served.wait(30)
        assert ask(("127.0.0.1", port), "/hello").status == 200
        assert messages[1:] == []


def test_what_does_not_listen_is_not_said_to_serve():
    with capture_logs() as logs, taken_port() as blocker, running(Limits(retry_interval=0.02)) as server:
        port = blocker.getsockname()[1]
        served = server.serve("health", [f"127.0.0.1:{port}"], hello())
        assert [entry["event"] for entry in logs if entry["log_level"] != "debug"] == ["cannot listen"]
        blocker.close()
        assert served.wait(30)
    told = [(entry["event"], entry["addresses"]) for entry in logs if entry["event"] == "serving"]
    assert told == [("serving", [f"127.0.0.1:{port}"])]


def test_hard_fail_raises_and_leaves_nothing_listening():
    with taken_port() as blocker, running() as server:
        port = blocker.getsockname()[1]
        with taken_port() as other:
            free = other.getsockname()[1]
        with pytest.raises(EnvironmentProblem, match=f"health cannot listen on 127.0.0.1:{port}: Address already"):
            server.serve("health", [f"127.0.0.1:{free}", f"127.0.0.1:{port}"], hello(), is_hard_fail=True)
        open_socket("127.0.0.1", free).close()


def test_closing_ends_listening_retrying_and_connections():
    with taken_port() as blocker, running(Limits(retry_interval=0.01)) as server:
        port = blocker.getsockname()[1]
        served = server.serve("test", ["127.0.0.1:0", f"127.0.0.1:{port}"], hello())
        with connect(served.addresses[0]) as sock:
            assert ask(served.addresses[0], "/hello").status == 200
            served.close()
            assert read_all(sock) == b""
        open_socket(*served.addresses[0]).close()
        blocker.close()
        assert not served.wait(0.1)
        open_socket("127.0.0.1", port).close()


def test_stop_frees_ports_threads_and_files():
    files = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with running() as server:
            served = server.serve("test", ["127.0.0.1:0"], hello())
            sock = connect(served.addresses[0])
            ask(served.addresses[0], "/hello")
        with sock:
            assert read_all(sock) == b""
        open_socket(*served.addresses[0]).close()
        server.stop()  # once more does nothing
    assert len(list(Path("/proc/self/fd").iterdir())) <= files  # what others left may have been collected
    assert [thread.name for thread in threading.enumerate() if thread.name == "http"] == []


def test_a_stopped_server_refuses_instead_of_waiting_for_ever():
    with running() as server:
        pass
    with pytest.raises(RuntimeError):
        server.serve("test", ["127.0.0.1:0"], hello())


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:80", "127.0.0.1", 80), ("[::1]:80", "::1", 80), (":80", "", 80), ("0.0.0.0:0", "0.0.0.0", 0)],
)
def test_addresses_are_taken_apart(text, host, port):
    assert split_address(text) == (host, port)


@pytest.mark.parametrize("text", ["", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "[::1]"])
def test_what_is_no_address_is_named(text):
    with pytest.raises(EnvironmentProblem, match="is not an address to listen on"):
        split_address(text)


def test_addresses_are_written():
    assert format_address("::1", 80) == "[::1]:80"
    assert format_address("127.0.0.1", 80) == "127.0.0.1:80"
