"""How long the first packets of a new connection take: real TCP connects from the node, walked rule by rule.

A connect over a veth pair ends before the system call does: SYN through the rules, SYN-ACK, ACK. Nobody accepts; the
listener's queue is emptied in between, so no other process is woken.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from e2e.bench import clusters
from e2e.bench.namespaces import inside

_QUEUE = 16_000
_RULE = re.compile(
    r"^-A (?P<chain>\S+)(?: -d (?P<ip>[0-9.]+)/(?P<length>\d+))?(?P<rest>.*) -j (?P<target>\S+)", re.MULTILINE
)


class Dialer:
    """Opens connections from one namespace to a listener in another."""

    def __init__(self, client: str, server: str) -> None:
        self._client = client

        def listen() -> socket.socket:
            Path("/proc/sys/net/core/somaxconn").write_text(str(_QUEUE))
            sock = socket.create_server(("0.0.0.0", clusters.TARGET_PORT), backlog=_QUEUE)
            sock.setblocking(False)
            return sock

        self._listener = inside(server, listen)

    def median(self, targets: list[tuple[str, int]], count: int) -> list[float]:
        """Return the median microseconds of ``count`` connects to each target, taken in turns."""
        return inside(self._client, lambda: self._dial(targets, count))

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _dial(self, targets: list[tuple[str, int]], count: int) -> list[float]:
        taken: list[list[int]] = [[] for _ in targets]
        linger = struct.pack("ii", 1, 0)  # closed by a reset: no port is kept waiting
        for number in range(count):
            for times, target in zip(taken, targets, strict=True):
                sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                start = time.perf_counter_ns()
                sock.connect(target)
                times.append(time.perf_counter_ns() - start)
                sock.close()
            if number * len(targets) % (_QUEUE // 4) < len(targets):
                self._drain()
        self._drain()
        return [sorted(times)[len(times) // 2] / 1000 for times in taken]

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                self._listener.accept()[0].close()


@dataclass(frozen=True, slots=True)
class _Chain:
    hosts: dict[str, tuple[int, str]]
    networks: list[tuple[int, int, int, str]]
    rules: int


def rules_walked(save: str, services: list[int]) -> dict[int, int]:
    """Return how many rules of nat each service's first packet meets until it enters the service's own chain."""
    chains: dict[str, _Chain] = {}
    for match in _RULE.finditer(save):
        name = match["chain"]
        if name != "KUBE-SERVICES" and not name.startswith("KUBE-SVC-IP-"):
            continue
        chain = chains.get(name)
        place = 0 if chain is None else chain.rules
        hosts = {} if chain is None else chain.hosts
        networks = [] if chain is None else chain.networks
        if match["ip"] and match["length"] == "32":
            hosts.setdefault(match["ip"], (place, match["target"]))
        elif match["ip"]:
            shift = 32 - int(match["length"])
            networks.append((place, shift, _number(match["ip"]) >> shift, match["target"]))
        chains[name] = _Chain(hosts, networks, place + 1)
    return {number: _walk(chains, clusters.cluster_ip(number)) for number in services}


def _walk(chains: dict[str, _Chain], ip: str) -> int:
    name, walked, number = "KUBE-SERVICES", 0, _number(ip)
    while name in chains:
        chain = chains[name]
        found = [chain.hosts[ip]] if ip in chain.hosts else []
        found += [(place, target) for place, shift, network, target in chain.networks if number >> shift == network]
        if not found:
            raise ValueError(f"no rule for {ip} in {name}")
        place, name = min(found)
        walked += place + 1
    return walked


def _number(ip: str) -> int:
    return int.from_bytes(socket.inet_aton(ip), "big")
