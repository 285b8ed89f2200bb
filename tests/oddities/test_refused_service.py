"""One service that the kernel refuses never stops the others (R022, R023), and is tried again when it may work.

The kernel is the verified fake (tests/properties/test_fake_kernel.py) with a word that it does not know.
"""

import pytest

from pykubeproxy.errors import NetfilterError
from pykubeproxy.model.service import ServiceKey
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.rules.names import NAT, PortChains
from pykubeproxy.serving.metrics import BuildInfo, Metrics
from pykubeproxy.sync.engine import FIRST_PAUSE, Engine
from tests.support.builders import desired, endpoint_slice, service, settings, state
from tests.support.fake_kernel import FakeKernel

BAD = "10.244.0.13"


class Told:
    def __init__(self):
        self.found = []

    def service(self, key, reason, message):
        self.found.append((str(key), reason, message))


def objects(count):
    services = [service(f"s{i}", ip=f"10.96.0.{i + 1}") for i in range(count)]
    return services, [endpoint_slice(f"s{i}", [f"10.244.0.{i + 11}"]) for i in range(count)]


def engine(kernel, held, told, *, batch=None, clock=lambda: 0.0):
    return Engine(
        held,
        Backend("nft", "IPv4"),
        kernel,
        settings(),
        metrics=Metrics(families=["IPv4"], build=BuildInfo(version="0")),
        dispatch="flat",
        reporter=told,
        clock=clock,
        batch=batch,
    )


def portals(kernel):
    return [rule for rule in kernel.tables[NAT].chains["KUBE-SERVICES"] if "cluster IP" in rule]


@pytest.mark.parametrize("batch", [None, 4], ids=["one input", "batches"])
def test_the_others_are_served_from_the_first_sync_on(batch):
    kernel, told = FakeKernel(bad_words=(BAD,)), Told()
    services, slices = objects(5)
    program = engine(kernel, state(*services, *slices), told, batch=batch)
    program.sync()
    assert list(program.quarantined) == [ServiceKey("default", "s2")]
    assert len(portals(kernel)) == 4
    assert [(key, reason) for key, reason, _ in told.found] == [("default/s2", "RulesRefused")]


def test_the_others_are_served_when_one_turns_bad_later():
    kernel, told = FakeKernel(), Told()
    services, slices = objects(5)
    held = state(*services, *slices)
    program = engine(kernel, held, told)
    program.sync()
    kernel.bad_words = ("10.244.7.7",)
    held.set_slice(endpoint_slice("s1", ["10.244.7.7"]))
    held.set_slice(endpoint_slice("s4", ["10.244.0.44"]))
    program.sync()
    assert list(program.quarantined) == [ServiceKey("default", "s1")]
    assert any("10.244.0.44" in rule for rules in kernel.tables[NAT].chains.values() for rule in rules)


def test_it_is_served_again_when_its_objects_change():
    kernel, told = FakeKernel(bad_words=(BAD,)), Told()
    services, slices = objects(3)
    held = state(*services, *slices)
    program = engine(kernel, held, told)
    program.sync()
    held.set_slice(endpoint_slice("s2", ["10.244.0.14"]))
    program.sync()
    assert program.quarantined == {}
    assert len(portals(kernel)) == 3


def test_it_is_tried_again_after_a_pause_that_doubles():
    now = [0.0]
    kernel, told = FakeKernel(bad_words=(BAD,)), Told()
    services, slices = objects(3)
    program = engine(kernel, state(*services, *slices), told, clock=lambda: now[0])
    program.sync()
    kernel.restores.clear()
    now[0] = FIRST_PAUSE - 1
    program.sync()
    assert kernel.restores == []
    now[0] = FIRST_PAUSE
    program.sync()
    assert any(BAD in text for text in kernel.restores)
    kernel.restores.clear()
    now[0] = 2 * FIRST_PAUSE
    program.sync()
    assert kernel.restores == []
    kernel.bad_words = ()
    now[0] = 3 * FIRST_PAUSE
    program.sync()
    assert program.quarantined == {}
    assert len(portals(kernel)) == 3


def test_more_than_a_handful_of_culprits_means_a_common_cause():
    kernel, told = FakeKernel(bad_words=("DNAT",)), Told()
    services, slices = objects(12)
    program = engine(kernel, state(*services, *slices), told)
    with pytest.raises(NetfilterError, match="not one of them"):
        program.sync()
    assert told.found == []
    assert program.quarantined == {}


def test_a_refused_line_in_a_shared_chain_is_traced_to_its_service():
    kernel, told = FakeKernel(bad_words=("10.96.0.3/32 -p tcp",)), Told()
    services, _ = objects(5)
    program = engine(kernel, state(*services), told)
    program.sync()
    assert list(program.quarantined) == [ServiceKey("default", "s2")]
    assert len(kernel.tables["filter"].chains["KUBE-SERVICES"]) == 4


def test_a_chain_that_a_foreign_rule_refers_to_is_emptied_and_deleted_when_it_can_be():
    now = [0.0]
    kernel, told = FakeKernel(), Told()
    services, slices = objects(2)
    held = state(*services, *slices)
    program = engine(kernel, held, told, clock=lambda: now[0])
    program.sync()
    chain = PortChains(desired(*services, *slices).ports_of(ServiceKey("default", "s1"))[0]).cluster
    kernel.edit(f"*nat\n:FOREIGN - [0:0]\n-A FOREIGN -j {chain}\nCOMMIT\n")
    held.delete_service("default", "s1")
    program.sync()
    assert kernel.tables[NAT].chains[chain] == []
    assert program.quarantined == {}
    kernel.edit(f"*nat\n-D FOREIGN -j {chain}\nCOMMIT\n")
    now[0] = FIRST_PAUSE
    program.sync()
    assert chain not in kernel.tables[NAT].chains
    kernel.restores.clear()
    now[0] = 1e6
    program.sync()
    assert kernel.restores == []
