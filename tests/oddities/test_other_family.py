"""One address of the other family never poisons the restore (R022): it is left out, named, and the rest is served."""

import pytest

from pykubeproxy.dryrun import plan
from pykubeproxy.netfilter.read import parse, standing
from tests.support.builders import desired, endpoint_slice, rules, service, state
from tests.support.kernel import real_kernel

GOOD = [service("good", ip="10.96.0.2"), endpoint_slice("good", ["10.244.0.2"])]
ODD = [
    service(
        "odd",
        ip="10.96.0.1",
        externalIPs=["2001:db8::1", "198.51.100.7"],
        lb=["2001:db8::2"],
        loadBalancerSourceRanges=["2001:db8::/32", "10.0.0.0/8"],
    ),
    endpoint_slice("odd", ["10.244.0.1"]),
]


@pytest.mark.netns
@pytest.mark.parametrize("kind", ["legacy", "nft"])
def test_the_restore_succeeds_with_the_family_s_own_addresses(kind):
    wanted = desired(*ODD, *GOOD)
    with real_kernel(kind) as kernel:
        done = kernel.restore(plan(wanted).text())
        assert done.status == 0, done.complaint
        assert standing(parse(kernel.save())).chains == wanted.ruleset.chains
    assert not any("2001" in text for chains in wanted.ruleset.chains.values() for text in chains.values())
    assert [rule.split()[1] for rule in rules(wanted, "nat", "KUBE-SERVICES") if rule.startswith("-d ")] == [
        "10.96.0.2/32",
        "10.96.0.1/32",
        "198.51.100.7/32",
    ]


def test_what_nobody_serves_is_named_once():
    told = []
    held = state(*ODD, *GOOD, on_problem=told.append)
    held.set_service(ODD[0])
    assert [(problem.name, problem.field) for problem in told] == [
        ("odd", "spec.externalIPs[0]"),
        ("odd", "status.loadBalancer.ingress[0]"),
    ]


def test_on_a_dual_stack_service_each_family_takes_its_own_without_a_word():
    told = []
    dual = {"clusterIPs": ["10.96.0.1", "fd00:96::1"], "ipFamilies": ["IPv4", "IPv6"]}
    others = {"externalIPs": ["2001:db8::1", "198.51.100.7"], "lb": ["2001:db8::2", "203.0.113.9"]}
    odd = service("odd", ip="10.96.0.1", **others, **dual)
    addresses = {}
    for family in ("IPv4", "IPv6"):
        held = state(odd, family=family, on_problem=told.append)
        ((found,),) = [held.ports(key) for key in held.keys()]  # noqa: SIM118
        addresses[family] = (found.external_ips, found.load_balancer_ips)
    assert told == []
    assert addresses == {
        "IPv4": (("198.51.100.7",), ("203.0.113.9",)),
        "IPv6": (("2001:db8::1",), ("2001:db8::2",)),
    }
