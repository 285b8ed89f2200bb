"""``python -m e2e.faults.crash``: kill the work on the kernel at random points, a thousand times, while traffic runs.

The engine runs in this process, inside the node's network namespace, with the real iptables. What dies at a kill point
is what dies with a daemon: the engine and all it remembers. Three ways, by chance:

* *between*: before a restore starts, after others of the same plan were committed;
* *within*: the running restore is killed after a random part of its input, or a random time after all of it;
* *orphan*: the daemon dies while it is still writing, so the restore sees its input end early, and ends by itself.

A new engine then starts on what stands. Connections that are made all the time must all come about; after every few
deaths one start is let through, and the kernel must hold what a fresh start would make.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

import pykubeproxy.sync.engine as engine_module
from e2e.faults import twins
from e2e.faults.scene import Scene, Tally, endpoint_slice, inside, service
from e2e.netlab import Backend, Lab
from e2e.netlab.wiring import NODE_IP
from pykubeproxy.model.state import ClusterState
from pykubeproxy.model.topology import Placement
from pykubeproxy.netfilter.backend import Backend as Iptables
from pykubeproxy.netfilter.process import Finished, SubprocessRunner
from pykubeproxy.netfilter.read import Reader
from pykubeproxy.rules.settings import LocalDetector, RuleSettings
from pykubeproxy.serving.metrics import BuildInfo, Metrics
from pykubeproxy.sync.desired import Desired
from pykubeproxy.sync.diff import difference
from pykubeproxy.sync.engine import Engine
from pykubeproxy.watch.objects import EndpointSlice, Service

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
STEADY, MOVING = "10.96.0.10", "10.96.0.11"
PODS = ("10.244.2.11", "10.244.2.12")
NODE_PORT = 30080
LETS_THROUGH = 8
"""After so many deaths one start is let through."""


class DeathError(BaseException):
    """The daemon is dead: nothing of it may go on."""


@dataclass(slots=True)
class DeadlyRunner:
    """Runs iptables and dies on the way, if it is told to."""

    chance: random.Random
    inner: SubprocessRunner = field(default_factory=SubprocessRunner)
    way: str = ""
    after: int = 0
    """Restores that are let through first."""
    deaths: Counter[str] = field(default_factory=Counter)

    def arm(self, way: str, after: int) -> None:
        """Die in this way at the restore after so many."""
        self.way, self.after = way, after

    def run(
        self,
        argv: list[str],
        stdin: bytes = b"",
        *,
        timeout: float = 30.0,
        on_start: Callable[[int], None] | None = None,
    ) -> Finished:
        """Run ``argv``; see Runner."""
        if self.way and argv[0].endswith("-restore"):
            if self.after <= 0:
                self._die(argv, stdin)
            self.after -= 1
        return self.inner.run(argv, stdin, timeout=timeout, on_start=on_start)

    def _die(self, argv: list[str], data: bytes) -> None:
        way, self.way = self.way, ""
        if way != "between":
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            assert process.stdin is not None
            if way == "orphan" or self.chance.random() < 0.5:
                process.stdin.write(data[: self.chance.randrange(len(data) + 1)])
                process.stdin.flush()
                time.sleep(self.chance.uniform(0, 0.005))
            else:
                process.stdin.write(data)
                process.stdin.close()
                # How long a restore takes depends on its size: most of these moments lie within it.
                time.sleep(self.chance.uniform(0, 0.004 + len(data) / 4e6))
            if way == "within":
                way = "within" if process.poll() is None else "just after"
                process.kill()
            else:
                process.stdin.close()
            process.wait()
        self.deaths[way] += 1
        raise DeathError


class World:
    """The objects, and random changes of them. The steady services are never without a ready endpoint."""

    def __init__(self, count: int, chance: random.Random) -> None:
        self.chance = chance
        self.state = ClusterState("IPv4")
        self.count = count
        found = [service_of("steady", STEADY, nodePort=NODE_PORT), service_of("moving", MOVING)]
        found += [service_of(f"s{number}", _address(number)) for number in range(count)]
        slices = [slice_of("steady", list(PODS)), slice_of("moving", list(PODS))]
        slices += [slice_of(f"s{number}", self._pods()) for number in range(count)]
        self.state.replace_services(found)
        self.state.replace_slices(slices)

    def change(self) -> None:
        """Change a few things."""
        chance, state = self.chance, self.state
        state.set_slice(slice_of("moving", list(chance.choice((PODS, PODS[:1], PODS[1:])))))
        for _ in range(chance.randint(1, max(3, self.count // 10))):
            number = chance.randrange(self.count)
            what = chance.random()
            if what < 0.6:
                state.set_slice(slice_of(f"s{number}", self._pods()))
            elif what < 0.75:
                state.delete_service("default", f"s{number}")
            elif what < 0.9:
                state.set_service(service_of(f"s{number}", _address(number)))
            else:
                state.set_service(service_of(f"s{number}", _address(number), nodePort=31000 + number % 1500))

    def _pods(self) -> list[str]:
        return [f"10.244.9.{self.chance.randint(20, 250)}" for _ in range(self.chance.randint(0, 4))]


class Harness:
    """One backend's run. ``twin`` may spoil the engine on purpose (see tests/crash)."""

    def __init__(self, backend: Backend, *, count: int, seed: int, batch: int | None) -> None:
        self.chance = random.Random(seed)
        self.backend = Iptables(backend, "IPv4")
        self.runner = DeadlyRunner(self.chance)
        self.world = World(count, self.chance)
        self.batch = batch
        self.dispatch = "flat"
        self.wrong: list[str] = []
        self.starts = 0
        self.metrics = Metrics(families=["IPv4"], build=BuildInfo(version="0"))

    def settings(self) -> RuleSettings:
        """Return the settings of the node."""
        return RuleSettings(
            "IPv4", here=Placement("node-a"), node_ip=NODE_IP, local_detector=LocalDetector(network="10.244.0.0/16")
        )

    def engine(self) -> Engine:
        """Start anew: whatever was remembered is gone."""
        self.starts += 1
        return Engine(
            self.world.state, self.backend, self.runner, self.settings(), metrics=self.metrics, dispatch=self.dispatch,
            batch=self.batch or 2000,
        )  # fmt: skip

    def kill(self, way: str) -> None:
        """Make changes and die while they are applied; a few are let through before."""
        engine = self.engine()
        if self.chance.random() < 0.5:
            engine.sync("before")  # this one has adopted, and dies at a change
        self.world.change()
        if self.chance.random() < 0.1:
            self.dispatch = "tree" if self.dispatch == "flat" else "flat"
            engine.configure(self.settings(), dispatch=self.dispatch)
        self.runner.arm(way, self.chance.choice((0, 0, 0, 1, 2, 4)))
        try:
            engine.sync("change")
        except DeathError:
            return
        finally:
            self.runner.way = ""

    def work(self, kills: int, within: float) -> None:
        """Die as often as asked for."""
        while sum(self.runner.deaths.values()) < kills:
            for _ in range(LETS_THROUGH):
                chosen = self.chance.random()
                self.kill("within" if chosen < within else "orphan" if chosen < within + 0.25 else "between")
            self.converge()

    def converge(self) -> None:
        """Let a start through and compare with what a fresh start would make."""
        self.engine().sync("start")
        state = self.world.state
        wanted = Desired(self.settings(), dispatch=self.dispatch)
        with state.lock:
            wanted.update(state, state.keys())
        found = difference(Reader(self.backend, SubprocessRunner()).read().ruleset, wanted.ruleset, None)
        if found:
            self.wrong.append(f"after start {self.starts}: {found.write} {found.delete} {found.ensure}"[:2000])


@dataclass(slots=True)
class Report:
    """What came of a run."""

    backend: str
    services: int
    deaths: dict[str, int]
    starts: int
    connections: int
    failed: int
    kinds: dict[str, int]
    wrong: list[str]
    seconds: float

    @property
    def killed(self) -> int:
        """How often something died."""
        return sum(self.deaths.values())

    def __str__(self) -> str:
        ways = ", ".join(f"{count} {way}" for way, count in sorted(self.deaths.items()))
        return (
            f"{self.backend}, {self.services} services: killed {self.killed} times ({ways}), {self.starts} starts, "
            f"{self.connections} connections, {self.failed} failed {self.kinds or ''}, {len(self.wrong)} wrong ends, "
            f"{self.seconds:.0f} s"
        )


def run(
    backend: Backend,
    *,
    kills: int,
    count: int = 30,
    seed: int = 1,
    batch: int | None = None,
    within: float = 0.4,
    twin: str = "",
) -> Report:
    """Kill ``kills`` times; ``within`` is the share of those inside a running restore."""
    engine_module.make_plan = twins.maker(twin)  # type: ignore[assignment]
    with Lab(backend=backend) as lab:
        pods = [lab.add_pod(f"p{index}", ip, http=[8080]) for index, ip in enumerate(PODS)]
        del pods
        curl = lab.add_pod("curl", "10.244.2.50", http=[])
        os.environ["XTABLES_LOCKFILE"] = str(lab.claim.folder / "xtables.lock")
        harness = Harness(backend, count=count, seed=seed, batch=batch)
        inside(lab.node.netns, harness.converge)
        tally = Tally()
        began = time.monotonic()
        soaks = [
            curl.soak_http(STEADY, 80, interval=0.005, timeout=4.0),
            curl.soak_http(MOVING, 80, interval=0.005, timeout=4.0),
            lab.client.soak_http(NODE_IP, NODE_PORT, interval=0.01, timeout=4.0),
        ]
        try:
            inside(lab.node.netns, lambda: harness.work(kills, within))
        finally:
            for soak in soaks:
                tally.add(soak.stop())
        deaths = dict(harness.runner.deaths)
        seconds = time.monotonic() - began
        return Report(
            backend, count, deaths, harness.starts, tally.made, tally.failed, tally.kinds, harness.wrong, seconds
        )


def kill_daemons(backend: Backend, *, kills: int, seed: int = 1) -> Report:
    """Kill the whole daemon at random moments, now and then together with the restore that it runs."""
    chance = random.Random(seed)
    deaths: Counter[str] = Counter()
    wrong: list[str] = []
    with Scene(backend, interval=0.01) as scene:
        scene.start()
        scene.wait_ready()
        began = time.monotonic()
        with scene.traffic() as tally:
            for number in range(1, kills + 1):
                way = "daemon"
                if chance.random() < 0.3:
                    scene.seam.order("kill", bytes=chance.random(), seconds=0.03)
                    way = "daemon and its restore"
                scene.change()
                time.sleep(chance.uniform(0, 0.1))
                scene.stop(signal.SIGKILL)
                deaths[way] += 1
                scene.seam.clear()
                scene.start()
                time.sleep(chance.uniform(0.2, 2.0))  # it dies while it starts, too
                if number % 10 == 0 or number == kills:
                    scene.wait_ready()
                    scene.wait_until(lambda: not scene.lost().count, 15)
                    found = scene.lost()
                    if found.count:
                        wrong.append(f"after {number} kills: {found}"[:1000])
        seconds = time.monotonic() - began
        return Report(
            f"{backend}, whole daemon",
            32,
            dict(deaths),
            kills + 1,
            tally.made,
            tally.failed,
            tally.kinds,
            wrong,
            seconds,
        )


def in_a_process(backend: Backend, **how: Any) -> Report:
    """Run in a process of its own."""
    return run_in_process("crash", Report, backend, **how)


def run_in_process(module: str, kind: type[T], backend: Backend, **how: Any) -> T:
    """Call ``run`` of a module of this package in a process whose environment is its own, and which logs nothing."""
    code = (
        f"import sys, msgspec; from e2e.faults import crash, {module}; crash.quiet(); "
        f"sys.stdout.buffer.write(msgspec.json.encode({module}.run({backend!r}, **{how!r})))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, env=environment)
    return msgspec.json.decode(done.stdout, type=kind)


def quiet() -> None:
    """Log errors of the engine nowhere: killed restores are its daily bread here."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m e2e.faults.crash", description=__doc__)
    parser.add_argument("--backend", choices=("nft", "legacy", "both"), default="both")
    parser.add_argument(
        "--kills", type=int, default=1000, help="at the small size; a quarter and a tenth at the others"
    )
    parser.add_argument("--daemons", type=int, default=50, help="kills of whole daemons")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    backends: list[Backend] = ["nft", "legacy"] if arguments.backend == "both" else [arguments.backend]
    is_wrong = False
    for backend in backends:
        for report in _reports(backend, arguments):
            print(report, flush=True)
            for line in report.wrong:
                print("   ", line)
            is_wrong = is_wrong or bool(report.failed or report.wrong)
    return 1 if is_wrong else 0


def _reports(backend: Backend, arguments: argparse.Namespace) -> Iterator[Report]:
    for share, count, batch in ((1.0, 30, 60), (0.25, 300, 400), (0.1, 1500, None)):
        kills = max(1, int(arguments.kills * share))
        yield in_a_process(backend, kills=kills, count=count, seed=arguments.seed, batch=batch)
    yield kill_daemons(backend, kills=arguments.daemons, seed=arguments.seed)


def service_of(name: str, address: str, **more: Any) -> Service:
    """Build a Service as the daemon knows it."""
    return msgspec.convert(service(name, address, **more), Service)


def slice_of(name: str, addresses: list[str]) -> EndpointSlice:
    """Build an EndpointSlice as the daemon knows it."""
    return msgspec.convert(endpoint_slice(name, list(dict.fromkeys(addresses))), EndpointSlice)


def _address(number: int) -> str:
    return f"10.97.{number // 250}.{number % 250 + 1}"


if __name__ == "__main__":
    sys.exit(main())
