"""Many services of 5 endpoints from an API server: changes arrive, deletions leave nothing, any kill converges."""

import os
import random
import signal
import time

import pytest

from pykubeproxy.model.service import ServicePortName
from pykubeproxy.rules.names import PortChains
from tests.support.node import cluster, endpoint_slice, eventually, node, pod, service

pytestmark = [pytest.mark.netns, pytest.mark.slow]

BACKENDS = ["nft", "legacy"]
SERVICES = 1000
KILLED_SERVICES, KILLS = 300, int(os.environ.get("PYKUBEPROXY_KILLS", "5"))
"""Kills a backend; PYKUBEPROXY_KILLS=50 for a long run."""


def chains(number):
    return PortChains(ServicePortName("default", f"svc-{number}", "http", "TCP"))


def svc(number):
    return chains(number).cluster


def sep(number, address):
    return chains(number).endpoint(f"{address}:8080")


def chain(it, name):
    """Return one chain's text, None where there is none, without reading the whole table."""
    try:
        return it.run(f"iptables-{it.backend}", "-w", "-t", "nat", "-S", name)
    except AssertionError:
        return None


@pytest.mark.parametrize("backend", BACKENDS)
def test_changes_reach_the_kernel(backend):
    with node(backend) as it:
        it.api.bulk_put(cluster(SERVICES))
        it.start()
        it.wait_ready()
        assert sum(name.startswith("KUBE-SEP-") for name in it.table().chains) == SERVICES * 5

        # An endpoint replaced: its chain comes, the old one goes.
        it.api.put(endpoint_slice(500, [pod(500, i) for i in range(4)] + ["10.250.0.1"]))
        eventually(lambda: chain(it, sep(500, "10.250.0.1")), "the new endpoint's chain")
        eventually(lambda: chain(it, sep(500, pod(500, 4))) is None, "the old endpoint's chain is gone")

        # A service deleted, with and without its slice: no chain is left.
        it.api.delete("Service", "default", "svc-600")
        it.api.delete("EndpointSlice", "default", "svc-600-abcde")
        it.api.delete("Service", "default", "svc-601")
        eventually(
            lambda: chain(it, svc(600)) is None and chain(it, svc(601)) is None, "both services' chains are gone"
        )
        left = {
            name for number in (600, 601) for name in (svc(number), *(sep(number, pod(number, i)) for i in range(5)))
        }
        assert not left & set(it.table().chains)

        # A no-op update writes nothing.
        restores = 'pykubeproxy_restores_total{ip_family="IPv4",result="success"}'
        before = it.metric(restores)
        again = service(700)
        again["metadata"]["annotations"] = {"touched": "yes"}
        it.api.put(again)
        it.api.put(endpoint_slice(701, [pod(701, i) for i in range(4)]))
        eventually(lambda: chain(it, sep(701, pod(701, 4))) is None, "a later change has arrived")
        assert it.metric(restores) == before + 1
        assert it.stop() == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_killed_at_any_moment_it_converges(backend):
    """kill -9 at random moments of syncs; each restart ends in what a fresh start would make."""
    chance = random.Random(20)
    with node(backend) as it:
        it.api.bulk_put(cluster(KILLED_SERVICES))
        it.start()
        it.wait_ready()
        for round_ in range(KILLS):
            changed = chance.sample(range(KILLED_SERVICES), 30)
            for number in changed:
                count = chance.randint(0, 6)
                it.api.put(endpoint_slice(number, [pod(number, i) for i in range(count)]))
            time.sleep(chance.uniform(0, 0.25))
            it.stop(signal.SIGKILL)
            it.start()
            it.wait_ready()
            standing = it.table().chains
            for number in changed:
                slice_ = it.api.get("EndpointSlice", "default", f"svc-{number}-abcde")
                wanted = {sep(number, e["addresses"][0]) for e in slice_["endpoints"] or []}
                known = {sep(number, pod(number, i)) for i in range(7)}
                assert known & set(standing) >= wanted, f"round {round_}: endpoints of svc-{number} are missing"
                text = standing.get(svc(number), "")
                assert {name for name in known if f"-j {name}\n" in text} == wanted, f"round {round_}: svc-{number}"
                assert not (known - wanted) & set(standing), f"round {round_}: stale endpoints of svc-{number}"
