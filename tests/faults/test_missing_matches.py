"""A kernel without some match: what can do without it does, what cannot is left out and named (R026, R028)."""

import pytest

from pykubeproxy.errors import NetfilterError
from pykubeproxy.model.service import ServiceKey
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.probe import FEATURES, probe
from pykubeproxy.rules.names import FILTER, NAT
from tests.faults.program import Told, engine, objects, portals
from tests.support.builders import desired, endpoint_slice, port, service, settings, state
from tests.support.fake_kernel import FakeKernel, Trouble

NFT = Backend("nft", "IPv4")


def three_services():
    services, slices = objects(3)
    services[1] = service("s1", ip="10.96.0.2", sessionAffinity="ClientIP")
    slices[2] = endpoint_slice("s2", ["10.244.0.13", "10.244.1.13"])
    return services, slices


@pytest.mark.parametrize(("match", "left_out"), [("recent", "s1"), ("statistic", "s2")])
def test_a_service_that_needs_a_missing_match_is_left_out_and_named(match, left_out):
    kernel, told = FakeKernel(bad_words=(f"-m {match} ",)), Told()
    services, slices = three_services()
    program = engine(kernel, state(*services, *slices), told=told, settings=settings(missing=frozenset((match,))))
    program.sync()
    assert program.quarantined == {ServiceKey("default", left_out): f"the kernel lacks the match {match}"}
    assert [who for who, _, _ in told.found] == [f"default/{left_out}"]
    assert len(portals(kernel)) == 2
    assert len(kernel.restores) == 1, "what is known to be missing is not tried"
    program.sync()
    assert len(told.found) == 1


def test_it_is_taken_in_when_it_does_without():
    kernel = FakeKernel(bad_words=("-m statistic ",))
    services, slices = three_services()
    held = state(*services, *slices)
    program = engine(kernel, held, settings=settings(missing=frozenset(("statistic",))))
    program.sync()
    held.set_slice(endpoint_slice("s2", ["10.244.0.13"]))
    program.sync()
    assert program.quarantined == {}
    assert len(portals(kernel)) == 3


def test_without_comments_all_is_said_without():
    kernel = FakeKernel(bad_words=("-m comment ",))
    services, slices = three_services()
    program = engine(kernel, state(*services, *slices), settings=settings(comments=False))
    program.sync()
    assert len([rule for rule in kernel.tables[NAT].chains["KUBE-SERVICES"] if "-d 10.96" in rule]) == 3


@pytest.mark.parametrize("match", ["conntrack", "addrtype"])
def test_the_rules_of_all_do_without_what_they_can(match):
    kernel = FakeKernel(bad_words=(f"-m {match} ",))
    services, slices = three_services()
    program = engine(kernel, state(*services, *slices), settings=settings(missing=frozenset((match,))))
    program.sync()
    assert len(portals(kernel)) == 3
    assert any(rule.endswith("-j ACCEPT") for rule in kernel.tables[FILTER].chains["KUBE-FORWARD"])


def test_a_node_port_of_policy_local_needs_addrtype():
    wanted = desired(
        service(ports=[port(80, node_port=30080)], externalTrafficPolicy="Local"),
        endpoint_slice(endpoints=["10.244.0.11"]),
        at=settings(missing=frozenset(("addrtype",))),
    )
    assert wanted.left_out == {ServiceKey("default", "web"): "addrtype"}


def test_names_that_look_like_a_match_are_none():
    wanted = desired(
        service(name="m-recent", ports=[port(80, name="recent")]),
        endpoint_slice("m-recent", ["10.244.0.11"], ports=[{"port": 8080, "name": "recent", "protocol": "TCP"}]),
        at=settings(missing=frozenset(("recent",))),
    )
    assert wanted.left_out == {}


@pytest.mark.parametrize("match", FEATURES)
def test_the_probe_finds_what_is_missing(match):
    words = {"mark": "-j MARK"}
    kernel = FakeKernel(bad_words=(words.get(match, f"-m {match} "),))
    assert list(probe(NFT, kernel, ()).missing) == [match]
    assert not [chain for chain in kernel.tables[NAT].chains if chain.startswith("KUBE")]


def test_the_probe_believes_no_single_failure():
    for times in range(1, 4):
        kernel = FakeKernel()
        troubles = [Trouble()] * times
        kernel.refuse = lambda _, left=troubles: left.pop() if left else None
        try:
            found = probe(NFT, kernel, ())
        except NetfilterError:
            continue  # "cannot be told now" is an answer too
        assert found.missing == {}


def test_a_program_that_always_fails_says_nothing_about_the_kernel():
    kernel = FakeKernel()
    kernel.refuse = lambda _: Trouble()
    with pytest.raises(NetfilterError, match="cannot be found out"):
        probe(NFT, kernel, ())


def test_after_a_restart_the_first_refusal_makes_it_look_again():
    """Our rules stand, so nothing was tried at the start; they were written without comments."""
    kernel = FakeKernel(bad_words=("-m comment ",))
    services, slices = three_services()
    engine(kernel, state(*services, *slices), settings=settings(comments=False)).sync()
    kernel.restores.clear()
    looked = []

    def look():
        looked.append(probe(NFT, kernel, ()))
        program.configure(settings(comments=looked[-1].has("comment")), dispatch="flat")

    told = Told()
    program = engine(kernel, state(*services, *slices), told=told, on_refused=look)
    program.sync()
    assert len(looked) == 1
    assert told.found == []
    assert len([rule for rule in kernel.tables[NAT].chains["KUBE-SERVICES"] if "-d 10.96" in rule]) == 3
