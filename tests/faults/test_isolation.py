"""Who is to blame for a refused input, and who is not (R022, R025)."""

import pytest

from pykubeproxy.errors import NetfilterError
from pykubeproxy.model.service import ServiceKey
from pykubeproxy.rules.names import CANARY, FILTER, NAT
from pykubeproxy.sync.engine import Engine
from pykubeproxy.sync.isolation import MANY_CULPRITS
from tests.faults.program import BlindKernel, Told, engine, objects, portals
from tests.support.builders import endpoint_slice, port, service, state
from tests.support.fake_kernel import FakeKernel, Trouble

KERNELS = [pytest.param(FakeKernel, id="the line is named"), pytest.param(BlindKernel, id="COMMIT is named")]


def key(number):
    return ServiceKey("default", f"s{number}")


def has_scratch(kernel):
    return [table for table in (NAT, FILTER) if kernel.tables[table].chains.get(CANARY)]


@pytest.mark.parametrize("batch", [None, 4], ids=["one input", "batches"])
@pytest.mark.parametrize("make", KERNELS)
def test_a_bad_endpoint_costs_its_service_only(make, batch):
    kernel = make(bad_words=("10.244.0.13",))
    services, slices = objects(5)
    program = engine(kernel, state(*services, *slices), batch=batch)
    program.sync()
    assert list(program.quarantined) == [key(2)]
    assert len(portals(kernel)) == 4
    assert not has_scratch(kernel)


@pytest.mark.parametrize("make", KERNELS)
@pytest.mark.parametrize(
    "word",
    ["10.96.0.3/32 -p tcp", "198.51.100.7/32", "--dport 30303 -j", "--dport 31999"],
    ids=["cluster IP", "external IP", "node port", "health check node port"],
)
def test_a_bad_line_in_a_shared_chain_costs_its_service_only(make, word):
    kernel, told = make(bad_words=(word,)), Told()
    services, slices = objects(5)
    services[2] = service(
        "s2", ip="10.96.0.3", type="LoadBalancer", lb=["203.0.113.3"], externalIPs=["198.51.100.7"],
        ports=[port(80, node_port=30303)], externalTrafficPolicy="Local", healthCheckNodePort=31999,
    )  # fmt: skip
    program = engine(kernel, state(*services, *slices), told=told)
    program.sync()
    assert list(program.quarantined) == [key(2)]
    assert len(portals(kernel)) == 4
    assert not has_scratch(kernel)
    assert [(who, reason) for who, reason, _ in told.found] == [("default/s2", "RulesRefused")]


@pytest.mark.parametrize("make", KERNELS)
def test_services_without_endpoints_are_told_apart_too(make):
    kernel = make(bad_words=("10.96.0.3/32 -p tcp",))
    services, _ = objects(5)
    program = engine(kernel, state(*services))
    program.sync()
    assert list(program.quarantined) == [key(2)]
    assert len(kernel.tables[FILTER].chains["KUBE-SERVICES"]) == 4


@pytest.mark.parametrize("make", KERNELS)
def test_one_that_turns_bad_is_taken_out_and_the_others_go_on(make):
    kernel = make()
    services, slices = objects(5)
    held = state(*services, *slices)
    program = engine(kernel, held)
    program.sync()
    kernel.bad_words = ("10.244.7.7",)
    held.set_slice(endpoint_slice("s1", ["10.244.7.7"]))
    held.set_slice(endpoint_slice("s4", ["10.244.0.44"]))
    program.sync()
    assert list(program.quarantined) == [key(1)]
    assert len(portals(kernel)) == 4
    assert any("10.244.0.44" in rule for rules in kernel.tables[NAT].chains.values() for rule in rules)
    assert not any("10.244.7.7" in rule for rules in kernel.tables[NAT].chains.values() for rule in rules)


@pytest.mark.parametrize("make", KERNELS)
def test_a_handful_in_as_many_batches_are_found_in_one_sync(make):
    count = MANY_CULPRITS
    kernel = make(bad_words=tuple(f"10.244.0.{11 + 4 * i}:" for i in range(count)))
    services, slices = objects(4 * count)
    program = engine(kernel, state(*services, *slices), batch=12)
    program.sync()
    assert set(program.quarantined) == {key(4 * i) for i in range(count)}
    assert len(portals(kernel)) == 3 * count


@pytest.mark.parametrize("times", range(1, 7))
def test_a_program_that_fails_for_a_moment_is_no_service_s_fault(times):
    kernel, told = FakeKernel(), Told()
    services, slices = objects(5)
    held = state(*services, *slices)
    program = engine(kernel, held, told=told)
    program.sync()
    troubles = [Trouble()] * times
    kernel.refuse = lambda _: troubles.pop() if troubles else None
    held.set_slice(endpoint_slice("s1", ["10.244.7.7"]))
    for _ in range(6):
        try:
            program.sync()
        except NetfilterError:
            continue
        break
    assert told.found == []
    assert program.quarantined == {}
    assert any("10.244.7.7" in rule for rules in kernel.tables[NAT].chains.values() for rule in rules)


def test_where_everything_is_refused_nobody_is_blamed_and_no_time_is_spent():
    kernel, told = FakeKernel(), Told()
    kernel.refuse = lambda _: Trouble()
    services, slices = objects(200)
    program = engine(kernel, state(*services, *slices), told=told)
    with pytest.raises(NetfilterError, match="without any service"):
        program.sync()
    assert told.found == []
    assert program.quarantined == {}
    assert len(kernel.restores) <= 3


def test_more_than_a_handful_is_a_common_cause_whatever_the_batches():
    kernel, told = FakeKernel(bad_words=("--to-destination",)), Told()
    services, slices = objects(40)
    program = engine(kernel, state(*services, *slices), told=told, batch=12)
    with pytest.raises(NetfilterError, match="not one of them"):
        program.sync()
    assert told.found == []
    assert program.quarantined == {}
    kernel.bad_words = ()
    program.sync()
    assert len(portals(kernel)) == 40
    assert not has_scratch(kernel)


@pytest.mark.parametrize("scattered", [True, False], ids=["scattered", "in a row"])
def test_many_bad_ones_do_not_stop_the_good_ones(scattered):
    bad = range(0, 120, 3) if scattered else range(30)
    told = Told()
    kernel = BlindKernel(bad_words=tuple(f"10.244.0.{11 + i}/32" for i in bad))
    services, slices = objects(120)
    program = engine(kernel, state(*services, *slices), told=told)
    program.sync()
    assert set(program.quarantined) >= {key(i) for i in bad}
    served = 120 - len(program.quarantined)
    assert len(portals(kernel)) == served
    assert served >= (20 if scattered else 60)
    assert len(told.found) == MANY_CULPRITS, "a common cause is named once, not for each service"
    assert not has_scratch(kernel)


def test_only_the_chain_that_is_referred_to_stays():
    kernel = FakeKernel()
    services, slices = objects(6)
    held = state(*services, *slices)
    program = engine(kernel, held)
    program.sync()
    chains = [chain for chain in kernel.tables[NAT].chains if chain.startswith("KUBE-SVC-")]
    kernel.edit(f"*nat\n:FOREIGN - [0:0]\n-A FOREIGN -j {chains[3]}\nCOMMIT\n")
    for number in range(6):
        held.delete_service("default", f"s{number}")
    program.sync()
    left = [chain for chain in kernel.tables[NAT].chains if chain.startswith(("KUBE-SVC-", "KUBE-SEP-"))]
    assert left == [chains[3]]
    assert kernel.tables[NAT].chains[chains[3]] == []


def test_a_moment_s_failure_leaves_no_chain_behind():
    kernel = FakeKernel()
    services, slices = objects(3)
    held = state(*services, *slices)
    program = engine(kernel, held)
    program.sync()
    troubles = [Trouble()]
    kernel.refuse = lambda _: troubles.pop() if troubles else None
    held.delete_service("default", "s1")
    program.sync()
    assert sum(chain.startswith(("KUBE-SVC-", "KUBE-SEP-")) for chain in kernel.tables[NAT].chains) == 4


class NoBisection(Engine):
    """The twin: gives up at the first refusal, as kube-proxy does."""

    def _isolate(self, step, standing, wanted, refused, outcome):
        raise refused


def test_the_twin_without_bisection_serves_nobody():
    kernel = FakeKernel(bad_words=("10.244.0.13",))
    services, slices = objects(5)
    program = engine(kernel, state(*services, *slices), make=NoBisection)
    with pytest.raises(NetfilterError):
        program.sync()
    assert "KUBE-SERVICES" not in kernel.tables[NAT].chains
