"""``python -m e2e.faults.soak``: 100,000 object changes at a steady rate, with traffic and a wall clock that jumps.

Memory, descriptors and threads of the daemon must stay what they are once it is warm; at the end the kernel must hold
what a fresh start would make, no chain more; and no connection may have failed.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from e2e.faults.scene import BACKGROUND, PODS, Scene, endpoint_slice, service
from e2e.netlab import Backend

JUMPING = """
import sys, threading, time
real, real_ns, offset = time.time, time.time_ns, [0]
time.time = lambda: real() + offset[0]
time.time_ns = lambda: real_ns() + offset[0] * 10**9
def jump():
    for step in __import__("itertools").cycle((0, 3600, -3600, 86400, -86400)):
        offset[0] = step
        time.sleep(3)
threading.Thread(target=jump, name="jumping clock", daemon=True).start()
from pykubeproxy.cli import main
sys.exit(main())
"""
WARM = 0.3
"""The share of the changes after which memory is compared: caches and allocators have settled by then."""


@dataclass(slots=True)
class Sample:
    """What the daemon holds."""

    changes: int
    kib: int
    descriptors: int
    threads: int


@dataclass(slots=True)
class Result:
    """What came of it."""

    backend: str
    changes: int
    seconds: float
    samples: list[Sample] = field(default_factory=list)
    connections: int = 0
    failed: int = 0
    missing: list[str] = field(default_factory=list)
    surplus: list[str] = field(default_factory=list)
    relists: float = 0.0

    @property
    def warm(self) -> Sample:
        """Return the first sample after it was warm."""
        return next(sample for sample in self.samples if sample.changes >= WARM * self.changes)

    @property
    def growth(self) -> float:
        """Return by what share memory has grown since."""
        return self.samples[-1].kib / self.warm.kib - 1

    def wrong(self) -> list[str]:
        """Return what is not as it must be."""
        found = []
        if self.growth > 0.05:
            found.append(f"memory grew by {self.growth:.1%}")
        if self.samples[-1].descriptors > self.warm.descriptors + 2:
            found.append("descriptors grew")
        if self.samples[-1].threads > self.warm.threads:
            found.append("threads grew")
        if self.failed:
            found.append(f"{self.failed} connections failed")
        if self.missing or self.surplus:
            found.append(f"missing {self.missing[:5]}, surplus {self.surplus[:5]}")
        return found


class Churn:
    """Random changes of objects, as a cluster makes them."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self._scene = scene
        self._chance = random.Random(seed)
        self._own: list[str] = []
        self._made = 0

    def change(self) -> None:
        """Make one change."""
        api, chance = self._scene.api, self._chance
        what = chance.random()
        if what < 0.7:
            name = chance.choice([*self._own, *(f"other-{n}" for n in range(BACKGROUND))])
            api.put(endpoint_slice(name, self._pods()))
        elif what < 0.8:
            api.put(endpoint_slice("steady", chance.choice((list(PODS.values()), [PODS["p1"]], [PODS["p2"]]))))
        elif what < 0.9 or len(self._own) < 20:
            self._made += 1
            name = f"churn-{self._made}"
            self._own.append(name)
            more = {"sessionAffinity": "ClientIP"} if chance.random() < 0.2 else {}
            api.put(service(name, f"10.98.{self._made // 250 % 250}.{self._made % 250 + 1}", **more))
        else:
            name = self._own.pop(chance.randrange(len(self._own)))
            api.delete("Service", "default", name)
            api.delete("EndpointSlice", "default", f"{name}-1")

    def _pods(self) -> list[str]:
        return list({f"10.244.9.{self._chance.randint(20, 250)}" for _ in range(self._chance.randint(0, 5))})


def run(backend: Backend, *, changes: int, rate: float, samples: int = 20, seed: int = 1) -> Result:
    """Make so many changes at so many a second."""
    with Scene(backend, interval=0.02) as scene:
        scene.program = ("-c", JUMPING)
        scene.start()
        scene.wait_ready()
        churn = Churn(scene, seed)
        began = time.monotonic()
        result = Result(backend, changes, 0.0)
        with scene.traffic() as tally:
            for number in range(1, changes + 1):
                churn.change()
                if number % max(1, changes // samples) == 0:
                    result.samples.append(_sample(scene, number))
                behind = began + number / rate - time.monotonic()
                if behind > 0:
                    time.sleep(behind)
            result.seconds = time.monotonic() - began
            scene.wait_until(lambda: not scene.lost().count, 30)
        result.connections, result.failed = tally.made, tally.failed
        result.missing, result.surplus = scene.lost()
        result.samples.append(_sample(scene, changes))
        return result


def _sample(scene: Scene, changes: int) -> Sample:
    status = Path(f"/proc/{scene.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", status)
    assert found is not None
    return Sample(changes, int(found[1]), scene.descriptors(), scene.threads())


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m e2e.faults.soak", description=__doc__)
    parser.add_argument("--backend", choices=("nft", "legacy", "both"), default="both")
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=400.0, help="changes a second")
    arguments = parser.parse_args()
    backends: list[Backend] = ["nft", "legacy"] if arguments.backend == "both" else [arguments.backend]
    wrong = False
    for backend in backends:
        result = run(backend, changes=arguments.changes, rate=arguments.rate)
        print(f"{backend}: {result.changes} changes in {result.seconds:.0f} s, {result.connections} connections")
        print("  changes  KiB     descriptors  threads")
        for sample in result.samples:
            print(f"  {sample.changes:<8} {sample.kib:<7} {sample.descriptors:<12} {sample.threads}")
        print(f"  memory {result.growth:+.1%} since {WARM:.0%}", *result.wrong(), sep="\n  WRONG: ", flush=True)
        wrong = wrong or bool(result.wrong())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
