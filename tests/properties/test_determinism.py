"""The same objects give the same bytes, whatever the order in which they come and whatever Python's hash seed."""

import hashlib
import os
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.dryrun import desired, plan
from pykubeproxy.model.addresses import FAMILIES
from pykubeproxy.watch.manifests import ClusterObjects
from tests.support.builders import cluster, endpoint_slice, port, service, settings, slice_port
from tests.support.clusters import clusters
from tests.support.clusters import settings as any_settings


@pytest.mark.parametrize("dispatch", ["flat", "tree"])
@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
def test_the_order_of_the_objects_makes_no_difference(family, dispatch, data):
    objects, at = data.draw(clusters()), data.draw(any_settings(family))
    shuffled = ClusterObjects(
        data.draw(st.permutations(objects.services)), data.draw(st.permutations(objects.slices)), [], []
    )
    one, other = (plan(desired(family, what, at, dispatch=dispatch)).text() for what in (objects, shuffled))
    assert one == other


def many():
    """A hundred services of all kinds, the same every time."""
    dice = random.Random(4)
    found = []
    for number in range(100):
        found.append(
            service(
                f"s{number}",
                ip=f"10.96.{number % 3}.{number + 1}",
                ports=[port(80, "http", node_port=30000 + number), port(53, "dns", "UDP")],
                externalIPs=["198.51.100.7"] if dice.random() < 0.2 else [],
                lb=[f"203.0.113.{number}"] if dice.random() < 0.3 else None,
                loadBalancerSourceRanges=["10.0.0.0/8", "2001:db8::/32"] if dice.random() < 0.3 else [],
                sessionAffinity=dice.choice(["None", "ClientIP"]),
                externalTrafficPolicy=dice.choice(["Cluster", "Local"]),
            )
        )
        there = [f"10.244.{number}.{k}" for k in range(dice.randrange(4))]
        ports = [slice_port(8080, "http"), slice_port(5353, "dns", "UDP")]
        found.append(endpoint_slice(f"s{number}", there, ports=ports))
    return cluster(*found)


def digest():
    """Return a digest of the whole plan of ``many``, flat and tree."""
    text = "".join(
        plan(desired(family, many(), settings(family), dispatch=dispatch)).text()
        for family in FAMILIES
        for dispatch in ("flat", "tree")
    )
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_hash_seed_makes_no_difference():
    program = "from tests.properties.test_determinism import digest\nprint(digest())\n"
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout.splitlines()[-1]
        for seed in ("0", "1", "2", "4711")
    }
    assert len(found) == 1
