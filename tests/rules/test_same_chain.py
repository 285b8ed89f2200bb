"""When two texts of one chain are the same: as strings, but for the order in the dispatching chains."""

import pytest

from pykubeproxy.rules.ruleset import Ensured, Ruleset, same_chain
from pykubeproxy.sync.diff import difference

A = "-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A\n"
B = "-A KUBE-SERVICES -d 10.96.0.2/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-B\n"
A2 = "-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A2\n"
LAST = "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n"
H1 = '-A KUBE-NODEPORTS -p tcp -m comment --comment "a/b:1 health" -m tcp --dport 32000 -j ACCEPT\n'
H2 = '-A KUBE-NODEPORTS -p tcp -m comment --comment "a/b:2 health" -m tcp --dport 32000 -j ACCEPT\n'
N1 = '-A KUBE-NODEPORTS -p tcp -m comment --comment "a/b:1" -m tcp --dport 32000 -j KUBE-EXT-1\n'
N2 = '-A KUBE-NODEPORTS -p tcp -m comment --comment "a/b:2" -m tcp --dport 32000 -j KUBE-EXT-2\n'


@pytest.mark.parametrize(
    ("chain", "one", "other", "same"),
    [
        ("KUBE-SERVICES", A + B + LAST, B + A + LAST, True),
        ("KUBE-SERVICES", A + B + LAST, A + LAST + B, False),
        ("KUBE-SERVICES", A + A2 + LAST, A2 + A + LAST, False),
        ("KUBE-SERVICES", A + B + A2, B + A + A2, True),
        ("KUBE-SERVICES", A + B, A + A, False),
        ("KUBE-SERVICES", A + A + B, A + B + B, False),
        ("KUBE-SERVICES", A, "", False),
        ("KUBE-SERVICES", "", "", True),
        ("KUBE-NODEPORTS", H1 + H2, H2 + H1, True),
        ("KUBE-NODEPORTS", N1 + N2, N2 + N1, False),
        ("KUBE-NODEPORTS", N1 + H1, H1 + N1, False),
        ("KUBE-SVC-A", "-A KUBE-SVC-A -j X\n-A KUBE-SVC-A -j Y\n", "-A KUBE-SVC-A -j Y\n-A KUBE-SVC-A -j X\n", False),
        ("KUBE-SVC-A", "-A KUBE-SVC-A -j X\n", "-A KUBE-SVC-A -j X\n", True),
    ],
)
def test_same(chain, one, other, same):
    assert same_chain(chain, one, other) is same
    assert same_chain(chain, other, one) is same


def ruleset(chains=(), ensured=()):
    found = Ruleset(ensured=tuple(ensured))
    found.chains["nat"] = dict(chains)
    return found


def test_a_difference_names_what_is_to_be_written_and_what_is_to_go():
    standing = ruleset({"KUBE-SVC-A": "a", "KUBE-SVC-B": "b", "KUBE-SVC-C": "c"})
    found = difference(standing, ruleset({"KUBE-SVC-A": "a", "KUBE-SVC-B": "new", "KUBE-SVC-D": "d"}), None)
    assert found.write["nat"] == {"KUBE-SVC-B": ("b", "new"), "KUBE-SVC-D": (None, "d")}
    assert found.delete == {"nat": ("KUBE-SVC-C",)}


def test_only_touched_chains_are_compared():
    standing, wanted = ruleset({"KUBE-SVC-A": "a", "KUBE-SVC-B": "b"}), ruleset({})
    assert difference(standing, wanted, [("nat", "KUBE-SVC-A")]).delete == {"nat": ("KUBE-SVC-A",)}
    assert not difference(standing, wanted, [])


def test_a_jump_that_is_missing_is_inserted_and_one_too_many_is_removed():
    jump, guard = (
        Ensured("nat", "OUTPUT", "-j KUBE-SERVICES"),
        Ensured("filter", "KUBE-FIREWALL", "-j DROP", at_top=False),
    )
    foreign = Ensured("nat", "OUTPUT", "-j DOCKER")
    wanted = ruleset(ensured=[jump, guard])
    assert difference(ruleset(ensured=[foreign]), wanted, None).ensure == (jump, guard)
    twice = ruleset(ensured=[foreign, jump, jump, guard, guard])
    found = difference(twice, wanted, None)
    assert (found.ensure, found.remove) == ((), (jump,)), "the guard is kubelet's as well"
    assert not difference(twice, wanted, None, ensured=False)
