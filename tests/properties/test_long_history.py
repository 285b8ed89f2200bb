"""A long life (R032): thousands of slice events, several slices a service, moves between services, restores that fail.

One seeded history instead of many small ones: what is lost by an update is never found again by a short run.
"""

import contextlib
import os
import random

import pytest

from pykubeproxy.dryrun import desired
from pykubeproxy.errors import NetfilterError
from pykubeproxy.model.state import ClusterState
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.read import parse, standing
from pykubeproxy.serving.metrics import BuildInfo, Metrics
from pykubeproxy.sync.diff import difference
from pykubeproxy.sync.engine import Engine
from tests.support.builders import cluster, endpoint, endpoint_slice, port, service, settings
from tests.support.fake_kernel import FakeKernel, Trouble

EVENTS = 10_000 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 2_000
SERVICES = 12


@pytest.mark.parametrize("seed", [1, 2])
def test_a_long_history_with_failing_restores_ends_right(seed):
    dice = random.Random(seed)
    now = [0.0]
    refused = []

    def trouble(document):
        if dice.random() < 0.8:
            return None
        refused.append(document)
        return Trouble(after=dice.randrange(3))

    kernel = FakeKernel(refuse=trouble)
    services = {
        f"s{n}": service(
            f"s{n}",
            ip=f"10.96.0.{n + 1}",
            ports=[port(80, node_port=30000 + n)],
            externalTrafficPolicy=dice.choice(["Cluster", "Local"]),
        )
        for n in range(SERVICES)
    }
    slices = {}
    held = ClusterState("IPv4")
    held.replace_services(list(services.values()))
    held.replace_slices([])
    at = settings()
    program = Engine(
        held,
        Backend("nft", "IPv4"),
        kernel,
        at,
        metrics=Metrics(families=["IPv4"], build=BuildInfo(version="0")),
        dispatch="tree",
        clock=lambda: now[0],
        batch=200,
    )
    for number in range(EVENTS):
        name = f"slice-{dice.randrange(3 * SERVICES)}"
        if dice.random() < 0.2:
            slices.pop(name, None)
            held.delete_slice("default", name)
        else:
            there = [
                endpoint(
                    f"10.244.0.{dice.randrange(1, 30)}", dice.choice(["node-a", "node-b"]), ready=dice.random() < 0.8
                )
                for _ in range(dice.randrange(4))
            ]
            slices[name] = endpoint_slice(f"s{dice.randrange(SERVICES)}", there, name=name)
            held.set_slice(slices[name])
        if number % 7 == 0:
            now[0] += dice.choice((0.5, 60.0))
            with contextlib.suppress(NetfilterError):
                program.sync(verify=dice.random() < 0.3)
    assert len(refused) > EVENTS // 50
    kernel.refuse = lambda _: None
    for _ in range(3):
        now[0] += 7200
        program.sync(verify=True)
    wanted = desired("IPv4", cluster(*services.values(), *slices.values()), at, dispatch="tree")
    assert not difference(standing(parse(kernel.save())), wanted.ruleset, None)
