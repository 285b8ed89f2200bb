"""Clients and reflectors against the stand-in API server, and raw sockets for answers no server would give."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from watch_builders import Receiver

from e2e.apiserver import StandIn
from pykubeproxy.config.options import ClientOptions
from pykubeproxy.watch.apisource import ApiSource
from pykubeproxy.watch.client import connect
from pykubeproxy.watch.source import Handlers


def client_of(server: StandIn, folder, **more):
    return connect(ClientOptions(kubeconfig=str(server.write_kubeconfig(folder / "kubeconfig", **more))), environ={})


def until(condition, timeout=60.0):
    """Wait for a condition; fail when it does not come. The time is generous: a busy machine is no fault."""
    ends = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < ends, "did not happen"
        time.sleep(0.005)


def open_sockets():
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            count += str(entry.readlink()).startswith("socket:")
    return count


@contextmanager
def following(server: StandIn, folder, *, node_name="node-a", sleep=None, **more):
    """Run an ApiSource against a server; yield it and its receivers by resource."""
    client = client_of(server, folder, **more)
    receivers = {"services": Receiver(), "endpointslices": Receiver(), "nodes": Receiver()}
    crashed: list[BaseException] = []
    source = ApiSource(client.session, Handlers(**receivers), node_name=node_name, on_crash=crashed.append)
    if sleep is not None:
        for reflector in source._reflectors.values():
            reflector._sleep = lambda seconds, reflector=reflector: reflector._stopping.wait(sleep(seconds))
    source.start()
    try:
        yield source, receivers
    finally:
        source.stop(60)
        client.close()
    assert crashed == []


@contextmanager
def raw_server(*answers):
    """Listen on loopback: the n-th connection gets the n-th answer, bytes or a function of the socket, then closes."""
    listener = socket.create_server(("127.0.0.1", 0))
    requests: list[bytes] = []

    def serve():
        for answer in answers:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock:
                data = b""
                while b"\r\n\r\n" not in data:
                    more = sock.recv(65536)
                    if not more:
                        break
                    data += more
                requests.append(data)
                try:
                    if callable(answer):
                        answer(sock)
                    else:
                        sock.sendall(answer)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def http(body: bytes, *, status="200 OK", headers="") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def chunked(*chunks: bytes, ends=True) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + (b"0\r\n\r\n" if ends else b"")
