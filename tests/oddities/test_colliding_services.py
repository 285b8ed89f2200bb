"""Two services that claim one address and port (R068, S12): both rules stay, the older first, and the loser is told."""

import itertools
import os
import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from pykubeproxy.insight.cluster import picture
from pykubeproxy.model.service import ServiceKey
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.serving.metrics import BuildInfo, Metrics
from pykubeproxy.sync.engine import Engine
from tests.support.builders import cluster, desired, endpoint_slice, port, rules, service, settings, state
from tests.support.fake_kernel import FakeKernel

SHARED = "198.51.100.7"
OLD, YOUNG = "2024-01-01T00:00:00Z", "2025-06-01T00:00:00Z"


def two(*, x_created=YOUNG, y_created=OLD):
    """Service a/x and the older b/y, which both claim 198.51.100.7:80."""
    return [
        service("x", "a", ip="10.96.0.1", externalIPs=[SHARED], created=x_created),
        service("y", "b", ip="10.96.0.2", externalIPs=[SHARED], created=y_created),
        endpoint_slice("x", ["10.244.0.1"], namespace="a"),
        endpoint_slice("y", ["10.244.0.2"], namespace="b"),
    ]


def claims(wanted):
    return [rule for rule in rules(wanted, "nat", "KUBE-SERVICES") if SHARED in rule]


@pytest.mark.parametrize("dispatch", ["flat", "tree"])
def test_both_rules_stay_and_the_older_object_comes_first(dispatch):
    found = claims(desired(*two(), dispatch=dispatch))
    assert [rule.split('"')[1] for rule in found] == ["b/y external IP", "a/x external IP"]


def test_objects_of_the_same_age_come_in_the_order_of_their_names():
    found = claims(desired(*two(x_created=OLD, y_created=OLD)))
    assert [rule.split('"')[1] for rule in found] == ["a/x external IP", "b/y external IP"]


@pytest.mark.parametrize("dispatch", ["flat", "tree"])
def test_the_order_of_arrival_makes_no_difference(dispatch):
    texts = {str(desired(*order, dispatch=dispatch).ruleset.chains) for order in itertools.permutations(two())}
    same = {tuple(sorted(desired(*order).ruleset.chains["nat"].items())) for order in itertools.permutations(two())}
    assert len(same) == 1
    assert texts


def test_arriving_one_by_one_gives_what_arriving_together_gives():
    held = state()
    wanted = desired()
    for obj in two():
        if hasattr(obj, "address_type"):
            held.set_slice(obj)
        else:
            held.set_service(obj)
        wanted.update(held, held.take_dirty())
    assert wanted.ruleset.chains == desired(*two()).ruleset.chains


def test_the_hash_seed_makes_no_difference(tmp_path):
    program = (
        "from tests.oddities.test_colliding_services import two\n"
        "from tests.support.builders import desired\n"
        "print(desired(*two(), dispatch='flat').ruleset.chains)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout.splitlines()[-1]
        for seed in ("0", "1", "4711")
    }
    assert len(outputs) == 1


class Told:
    def __init__(self):
        self.found = []

    def service(self, key, reason, message):
        self.found.append((str(key), reason, message))


def engine_of(held, told, at=None):
    metrics = Metrics(families=["IPv4"], build=BuildInfo(version="0"))
    return Engine(held, Backend("nft", "IPv4"), FakeKernel(), at or settings(), metrics=metrics, reporter=told)


def test_the_loser_is_told_once():
    told = Told()
    held = state(*two())
    program = engine_of(held, told)
    program.sync()
    held.set_slice(endpoint_slice("x", ["10.244.0.3"], namespace="a"))
    program.sync()
    assert told.found == [
        (
            "a/x",
            "AddressConflict",
            "spec.externalIPs: 198.51.100.7:80/TCP is claimed by Service b/y as well, which is older and comes first",
        )
    ]


def test_it_is_logged_once_and_shown_by_explain_for_both():
    held = state(*two())
    with capture_logs() as logged:
        program = engine_of(held, Told())
        program.sync()
        held.set_slice(endpoint_slice("x", ["10.244.0.3"], namespace="a"))
        program.sync()
    told = [(one["object"], one["problem"]) for one in logged if one["event"] == "object problem"]
    why = f"{SHARED}:80/TCP is claimed by Service b/y as well, which is older and comes first"
    assert told == [("Service a/x", why)]
    shown = picture(settings(), two()[:2], two()[2:], dispatch="flat")
    for key in (ServiceKey("a", "x"), ServiceKey("b", "y")):
        assert [str(one) for one in shown.problems(key)] == [f"Service a/x: spec.externalIPs: {why}"]


def test_a_conflict_that_comes_back_is_told_again():
    told = Told()
    held = state(*two())
    program = engine_of(held, told)
    program.sync()
    held.delete_service("b", "y")
    program.sync()
    held.set_service(two()[1])
    program.sync()
    assert [reason for _, reason, _ in told.found] == ["AddressConflict"] * 2


def test_new_settings_do_not_tell_it_again():
    told = Told()
    program = engine_of(state(*two()), told)
    program.sync()
    program.configure(settings(masquerade_all=True), dispatch="flat")
    program.sync()
    assert len(told.found) == 1


def test_one_service_may_name_an_address_twice():
    both = service("x", ip="10.96.0.1", externalIPs=[SHARED], lb=[SHARED])
    assert desired(both).problems() == ()


def test_another_protocol_or_port_is_no_conflict():
    one = service("x", ip="10.96.0.1", externalIPs=[SHARED], ports=[port(53)])
    other = service("y", ip="10.96.0.2", externalIPs=[SHARED], ports=[port(53, protocol="UDP"), port(54, name="b")])
    assert desired(one, other).problems() == ()


def test_external_ips_that_are_switched_off_are_no_conflict():
    assert desired(*two(), at=settings(uses_external_ips=False)).problems() == ()


@pytest.mark.parametrize(
    ("mine", "field"),
    [
        ({"ip": "10.96.0.1"}, "spec.clusterIPs"),
        ({"ip": "10.96.0.9", "externalIPs": ["10.96.0.1"]}, "spec.externalIPs"),
        ({"ip": "10.96.0.9", "lb": ["10.96.0.1"]}, "status.loadBalancer.ingress"),
    ],
)
def test_every_way_to_claim_an_address_is_seen(mine, field):
    found = desired(service("a", ip="10.96.0.1", created=OLD), service("b", created=YOUNG, **mine)).problems()
    assert [(problem.name, problem.field) for problem in found] == [("b", field)]


def test_a_node_port_of_two_services_is_told_and_the_older_one_answers():
    wanted = desired(
        service("a", ip="10.96.0.1", ports=[port(80, node_port=30080)], created=YOUNG),
        service("b", ip="10.96.0.2", ports=[port(80, node_port=30080)], created=OLD),
        endpoint_slice("a", ["10.244.0.1"]),
        endpoint_slice("b", ["10.244.0.2"]),
    )
    assert [rule.split('"')[1] for rule in rules(wanted, "nat", "KUBE-NODEPORTS")] == ["default/b", "default/a"]
    (problem,) = wanted.problems()
    assert (problem.name, problem.field) == ("a", "spec.ports")
    assert "node port 30080/TCP is claimed by Service default/b as well" in problem.message


def test_of_three_the_oldest_wins_and_two_are_told():
    three = [
        service(f"s{i}", ip=f"10.96.0.{i}", externalIPs=[SHARED], created=f"202{i}-01-01T00:00:00Z") for i in (3, 1, 2)
    ]
    found = desired(*three).problems()
    assert [problem.name for problem in found] == ["s2", "s3"]
    assert all("Service default/s1" in problem.message for problem in found)


def test_the_next_one_wins_when_the_winner_goes():
    held = state(*two())
    wanted = desired()
    wanted.update(held, held.take_dirty())
    assert len(wanted.problems()) == 1
    held.delete_service("b", "y")
    wanted.update(held, held.take_dirty())
    assert wanted.problems() == ()
    assert [rule.split('"')[1] for rule in claims(wanted)] == ["a/x external IP"]


def test_a_dry_run_tells_it_too(caplog, capsys):
    desired(*cluster(*two()).services)
    assert "198.51.100.7:80/TCP is claimed by Service b/y" in capsys.readouterr().out
