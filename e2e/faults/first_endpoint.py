"""A service gains its first endpoint, and loses its last, under a stream of SYNs: no connection may be lost.

A connection may be refused while there is no endpoint; it must never be without an answer, nor need a second SYN: that
is a packet which met neither the refusal nor the endpoint, and whose flow stays that way.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import pykubeproxy.sync.engine as engine_module
from e2e.faults import twins
from e2e.faults.crash import PODS, Harness, run_in_process, service_of, slice_of
from e2e.faults.scene import inside
from e2e.netlab import Backend, Lab

LATE = "10.96.0.12"
LATE_MS = 700.0
"""Milliseconds; the second SYN follows after a second."""


@dataclass(slots=True)
class Seen:
    """What became of the connections."""

    made: int
    answered: int
    refused: int
    lost: int


def run(backend: Backend, *, rounds: int, twin: str = "") -> Seen:
    """Let the endpoint come and go ``rounds`` times while a SYN goes out every 2 ms."""
    engine_module.make_plan = twins.maker(twin)  # type: ignore[assignment]
    with Lab(backend=backend) as lab:
        for index, ip in enumerate(PODS):
            lab.add_pod(f"p{index}", ip, http=[8080])
        curl = lab.add_pod("curl", "10.244.2.50", http=[])
        os.environ["XTABLES_LOCKFILE"] = str(lab.claim.folder / "xtables.lock")
        harness = Harness(backend, count=300, seed=1, batch=None)
        harness.world.state.set_service(service_of("late", LATE))
        engine = harness.engine()
        inside(lab.node.netns, lambda: engine.sync("start"))
        soaks = [curl.soak_http(LATE, 80, interval=0.002, timeout=3.5) for _ in range(2)]

        def work() -> None:
            for _ in range(rounds):
                harness.world.state.set_slice(slice_of("late", list(PODS)))
                engine.sync("comes")
                time.sleep(0.05)
                harness.world.state.set_slice(slice_of("late", []))
                engine.sync("goes")
                time.sleep(0.05)

        inside(lab.node.netns, work)
        seen = Seen(0, 0, 0, 0)
        for soak in soaks:
            traffic = soak.stop()
            # A refusal that comes late is that of a second SYN: the first one met nothing.
            refused = sum(f.kind == "refused" and f.latency < LATE_MS for f in traffic.failures)
            seen.made += traffic.started
            seen.answered += len(traffic.answers) - len(traffic.delayed)
            seen.refused += refused
            seen.lost += len(traffic.failures) - refused + len(traffic.delayed)
        return seen


def in_a_process(backend: Backend, *, rounds: int, twin: str = "") -> Seen:
    """Run in a process of its own."""
    return run_in_process("first_endpoint", Seen, backend, rounds=rounds, twin=twin)
