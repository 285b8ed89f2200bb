"""loadBalancerSourceRanges of every kind (R023), and those that hold only the other family (S11)."""

import pytest

from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.rules.names import PortChains
from pykubeproxy.serving.metrics import BuildInfo, Metrics
from pykubeproxy.sync.engine import Engine
from tests.support.builders import desired, endpoint_slice, rules, service, settings, state
from tests.support.fake_kernel import FakeKernel

V4, V6 = "203.0.113.9", "2001:db8::9"


def balanced(ranges, *, lb=V4, family="IPv4"):
    ip = "10.96.0.10" if family == "IPv4" else "fd00:96::10"
    there = ["10.244.0.1"] if family == "IPv4" else ["fd00:10:244::1"]
    return [
        service(ip=ip, lb=[lb], loadBalancerSourceRanges=ranges),
        endpoint_slice(endpoints=there, family=family),
    ]


def firewall(wanted):
    (name,) = wanted.ports_of(next(iter(wanted._ports_of)))
    chain = PortChains(name).firewall
    return rules(wanted, "nat", chain) if chain in wanted.ruleset.chains["nat"] else None


def allowed(wanted):
    return [rule.split()[1] for rule in firewall(wanted) if rule.startswith("-s ")]


MIXED = ["10.0.0.0/8", " 192.168.0.0/16 ", "2001:db8::/32", "10.1.2.3/8"]


def test_ranges_are_trimmed_canonical_and_sorted_out_by_family():
    at = settings(node_ip="172.18.0.2")
    assert set(allowed(desired(*balanced(MIXED), at=at))) == {"10.0.0.0/8", "192.168.0.0/16"}
    six = desired(*balanced(MIXED, lb=V6, family="IPv6"), at=settings("IPv6"))
    assert allowed(six) == ["2001:db8::/32"]


def test_a_node_inside_the_ranges_may_talk_to_the_address_from_itself():
    assert allowed(desired(*balanced(["192.168.0.0/16"]))) == ["192.168.0.0/16", "203.0.113.9/32"]


def test_one_range_of_everything_opens_the_address_for_good():
    for everything in ("0.0.0.0/0", "10.0.0.0/0"):
        wanted = desired(*balanced(["10.0.0.0/8", everything]))
        assert firewall(wanted) is None
        assert wanted.problems() == ()


def test_blank_ranges_are_no_ranges():
    wanted = desired(*balanced(["", "  "]))
    assert firewall(wanted) is None
    assert wanted.problems() == ()
    assert firewall(desired(*balanced(["", "  "]), at=settings(strict_source_ranges=True))) is None


def test_a_range_that_is_none_is_named_and_left_out():
    told = []
    held = state(*balanced(["10.0.0.0/8", "10.0.0.0/33", "nonsense", "10.0.0.1"]), on_problem=told.append)
    assert [problem.field for problem in told] == [f"spec.loadBalancerSourceRanges[{i}]" for i in (1, 2, 3)]
    (only,) = held.ports(next(iter(held.keys())))
    assert [str(network) for network in only.source_ranges] == ["10.0.0.0/8"]


class Told:
    def __init__(self):
        self.found = []

    def service(self, key, reason, message):
        self.found.append((str(key), reason, message))


def synced(objects, at=None):
    told, metrics = Told(), Metrics(families=["IPv4"], build=BuildInfo(version="0"))
    program = Engine(
        state(*objects), Backend("nft", "IPv4"), FakeKernel(), at or settings(), metrics=metrics, reporter=told
    )
    program.sync()
    program.sync()
    value = metrics.source_ranges_open.labels(ip_family="IPv4")._value.get()
    return program, told.found, value


def test_ranges_of_the_other_family_leave_the_address_open_with_an_event_and_a_metric():
    program, told, value = synced(balanced(["2001:db8::/32"]))
    assert firewall(program.wanted) is None
    assert value == 1
    assert told == [
        (
            "default/web",
            "SourceRangesOpen",
            (
                "spec.loadBalancerSourceRanges: holds no IPv4 range, so 203.0.113.9 is open to everyone; "
                "--strict-source-ranges closes it"
            ),
        )
    ]


def test_strict_source_ranges_closes_it():
    program, told, value = synced(balanced(["2001:db8::/32"]), settings(strict_source_ranges=True))
    assert (told, value) == ([], 0)
    assert allowed(program.wanted) == []
    (drop,) = rules(program.wanted, "filter", "KUBE-PROXY-FIREWALL")
    assert drop.startswith("-d 203.0.113.9/32 ")
    assert drop.endswith("-j DROP")


def test_strict_source_ranges_closes_an_address_whose_ranges_are_all_nonsense():
    wanted = desired(*balanced(["nonsense"]), at=settings(strict_source_ranges=True))
    assert allowed(wanted) == []


@pytest.mark.parametrize("strict", [False, True])
def test_without_an_address_of_the_family_there_is_nothing_to_open_or_close(strict):
    wanted = desired(*balanced(["2001:db8::/32"], lb=V6), at=settings(strict_source_ranges=strict))
    assert firewall(wanted) is None
    assert wanted.problems() == ()
    assert wanted.open_ranges == 0


def test_it_is_over_when_the_ranges_are_set_right():
    held = state(*balanced(["2001:db8::/32"]))
    wanted = desired()
    wanted.update(held, held.take_dirty())
    assert wanted.open_ranges == 1
    held.set_service(balanced(["2001:db8::/32", "10.0.0.0/8"])[0])
    wanted.update(held, held.take_dirty())
    assert (wanted.open_ranges, wanted.problems()) == (0, ())
