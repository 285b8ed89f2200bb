"""Killed between any two commits of a plan, a node serves what it served before or will serve afterwards.

The kernel is the verified fake, the packets are traced; the twins break the order on purpose and must be found out.
"""

import pytest

from e2e.faults.twins import TWINS, maker, pieces
from pykubeproxy.insight.packet import Packet
from pykubeproxy.insight.tracer import Tracer
from pykubeproxy.netfilter.read import parse, standing
from pykubeproxy.sync.diff import difference
from pykubeproxy.sync.plan import make_plan
from tests.support.builders import desired, endpoint_slice, port, service
from tests.support.fake_kernel import FakeKernel

CLIENT = "192.168.77.2"


def named(name, number, **more):
    return service(name, ip=f"10.96.0.{number}", **more)


BEFORE = [
    named("same", 1), endpoint_slice("same", ["10.244.0.11", "10.244.0.12"]),
    named("moves", 2), endpoint_slice("moves", ["10.244.0.13"]),
    named("first", 3),
    named("last", 4), endpoint_slice("last", ["10.244.0.14"]),
    named("goes", 5), endpoint_slice("goes", ["10.244.0.15"]),
    named("ranges", 6, lb=["203.0.113.6"]), endpoint_slice("ranges", ["10.244.0.16"]),
]  # fmt: skip
AFTER = [
    named("same", 1), endpoint_slice("same", ["10.244.0.11", "10.244.0.12"]),
    named("moves", 2), endpoint_slice("moves", ["10.244.0.23", "10.244.0.24"]),
    named("first", 3), endpoint_slice("first", ["10.244.0.33"]),
    named("last", 4),
    named("comes", 7, ports=[port(80, node_port=30080)]), endpoint_slice("comes", ["10.244.0.37"]),
    named("ranges", 6, lb=["203.0.113.6"], loadBalancerSourceRanges=["198.51.100.0/24"]),
    endpoint_slice("ranges", ["10.244.0.16"]),
]  # fmt: skip
ADDRESSES = [*(f"10.96.0.{number}" for number in range(1, 8)), "203.0.113.6"]


def asked():
    return [Packet(source=CLIENT, destination=address, port=80) for address in ADDRESSES]


def strange_moments(make, dispatches, batch):
    """Return what packets meet in between and should not; the plan must at least be taken."""
    old, new = (
        desired(*objects, dispatch=dispatch) for objects, dispatch in zip((BEFORE, AFTER), dispatches, strict=True)
    )
    kernel = FakeKernel()
    for step in make_plan(
        difference(standing(parse(kernel.save())), old.ruleset, None), old.owner.get, batch=None
    ).steps:
        kernel.edit(step.text())
    first, last = Tracer.from_ruleset(old.ruleset), Tracer.from_ruleset(new.ruleset)
    allowed = [{*first.trace(packet).ends(), *last.trace(packet).ends()} for packet in asked()]
    plan = make(difference(standing(parse(kernel.save())), new.ruleset, None), new.owner.get, batch=batch)
    found = []
    for section in pieces(plan):
        kernel.edit(section.text())
        now = Tracer.from_save(kernel.save())
        for packet, ends in zip(asked(), allowed, strict=True):
            if strange := set(now.trace(packet).ends()) - ends:
                found.append((packet.destination, strange))
    assert not difference(standing(parse(kernel.save())), new.ruleset, None)
    return found


DISPATCHES = [("flat", "flat"), ("flat", "tree"), ("tree", "flat"), ("tree", "tree")]


@pytest.mark.parametrize("batch", [None, 8], ids=["one input", "batches"])
@pytest.mark.parametrize("dispatches", DISPATCHES, ids=" to ".join)
def test_every_moment_is_one_of_before_or_after(dispatches, batch):
    assert strange_moments(make_plan, dispatches, batch) == []


@pytest.mark.parametrize("twin", TWINS)
def test_its_twins_are_found_out(twin):
    found = []
    for dispatches in DISPATCHES:
        for batch in (None, 8):
            try:
                found += strange_moments(maker(twin), dispatches, batch)
            except AssertionError as refused:  # the kernel takes no jump to a chain that is not there
                found.append(refused)
    assert found
