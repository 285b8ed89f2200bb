"""Two rulesets as a diff by chain, and files that hold rules."""

import pytest
from insight_builders import endpoint, seen, service, slice_of, standing

from pykubeproxy.dryrun import plan
from pykubeproxy.insight.compare import compare, shown_facts
from pykubeproxy.insight.documents import holds_rules, rulesets_of, tables_of
from pykubeproxy.rules.ruleset import Ensured, Ruleset
from pykubeproxy.sync.derive import Facts

NAMES = ("old", "new")


def one_and_two():
    one = seen(service(), slice_of(endpoint("10.244.0.1")))
    two = seen(service(), slice_of(endpoint("10.244.0.1"), endpoint("10.244.0.2")))
    return one.wanted.ruleset, two.wanted.ruleset


def test_equal_rules_have_no_difference():
    shown = seen(service(), slice_of(endpoint("10.244.0.1")))
    assert list(compare(shown.wanted.ruleset, standing(shown).ruleset, names=NAMES)) == []


def test_each_chain_that_differs_is_named_with_its_service():
    found = list(compare(*one_and_two(), names=NAMES))
    assert {(one.table, one.service) for one in found} == {("nat", "default/web")}
    assert len(found) == 2
    text = "\n".join(line for one in found for line in one.lines)
    assert "--- old: nothing\n+++ new: nat KUBE-SEP-" in text
    assert "(default/web)" in text


def test_order_is_no_difference_where_it_means_nothing():
    lines = [f"-A KUBE-SERVICES -d 10.96.0.{n}/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-{n}\n" for n in range(3)]
    tail = "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n"
    old, new = Ruleset(), Ruleset()
    old.chains["nat"]["KUBE-SERVICES"] = lines[0] + lines[1] + lines[2] + tail
    new.chains["nat"]["KUBE-SERVICES"] = lines[2] + lines[0] + lines[1] + tail
    assert list(compare(old, new, names=NAMES)) == []
    new.chains["nat"]["KUBE-SERVICES"] = lines[2] + lines[0] + tail
    (found,) = compare(old, new, names=NAMES)
    assert [line for line in found.lines[2:] if line[0] in "+-"] == ["-" + lines[1].rstrip()]


def test_shared_chains_name_the_services_of_their_changed_lines():
    old = seen(service(), slice_of(endpoint("10.244.0.1"))).wanted.ruleset
    new = seen(service()).wanted.ruleset
    shared = [one for one in compare(old, new, names=NAMES) if not one.service]
    assert {one.chain for one in shared} == {"KUBE-SERVICES"}
    assert {name for one in shared for name in one.services} == {"default/web"}


def test_of_chains_of_others_only_our_jumps_are_compared():
    shown = seen()
    kernel = standing(shown).ruleset
    foreign = (Ensured("filter", "FORWARD", "-j FLANNEL-FWD"), Ensured("filter", "KUBE-FIREWALL", "-j LOG"))
    kernel.ensured = (*kernel.ensured, *foreign)
    assert list(compare(kernel, shown.wanted.ruleset, names=NAMES)) == []
    kernel.ensured = tuple(one for one in kernel.ensured if one.chain != "PREROUTING")
    (found,) = compare(kernel, shown.wanted.ruleset, names=NAMES)
    assert found.lines[-1].startswith("+-A PREROUTING ")


def test_an_empty_chain_that_comes_or_goes_is_a_difference():
    old, new = Ruleset(), Ruleset()
    new.chains["mangle"]["KUBE-PROXY-CANARY"] = ""
    (found,) = compare(old, new, names=NAMES)
    assert found.lines[-1] == "+(an empty chain)"
    (found,) = compare(new, old, names=NAMES)
    assert found.lines[-1] == "-(an empty chain)"


# -- files


def test_a_dry_run_reads_as_the_rules_that_it_leaves():
    shown = seen(service(kind="NodePort"), slice_of(endpoint("10.244.0.1")))
    text = plan(shown.wanted).text()
    assert holds_rules(text)
    assert not holds_rules("apiVersion: v1\nkind: Service\n")
    assert list(compare(rulesets_of(text)["IPv4"], shown.wanted.ruleset, names=NAMES)) == []


def test_inserts_deletes_and_flushes_are_applied():
    text = """*nat
:KUBE-SVC-A - [0:0]
:KUBE-SVC-B - [0:0]
-A KUBE-SVC-A -j ACCEPT
-I PREROUTING 1 -j KUBE-SERVICES
-I PREROUTING 2 -j SECOND
-I PREROUTING -j FIRST
-A PREROUTING -j LAST
-D PREROUTING -j SECOND
-D PREROUTING -j NEVER-THERE
-X KUBE-SVC-B
COMMIT
*nat
:KUBE-SVC-A - [0:0]
-A KUBE-SVC-A -j DROP
COMMIT
"""
    chains = tables_of(text)["nat"].chains
    assert chains["KUBE-SVC-A"] == "-A KUBE-SVC-A -j DROP\n"
    assert "KUBE-SVC-B" not in chains
    assert chains["PREROUTING"] == "-A PREROUTING -j FIRST\n-A PREROUTING -j KUBE-SERVICES\n-A PREROUTING -j LAST\n"


def test_families_are_told_by_their_heading_or_by_their_addresses():
    four = "*nat\n:KUBE-SVC-A - [0:0]\n-A KUBE-SVC-A -d 10.0.0.1/32 -j ACCEPT\nCOMMIT\n"
    six = "*nat\n:KUBE-SVC-A - [0:0]\n-A KUBE-SVC-A -d fd00::1/128 -j ACCEPT\nCOMMIT\n"
    assert set(rulesets_of(four)) == {"IPv4"}
    assert set(rulesets_of(six)) == {"IPv6"}
    both = rulesets_of(f"# IPv4\n{four}# IPv6\n{six}")
    assert set(both) == {"IPv4", "IPv6"}
    assert "fd00::1" in both["IPv6"].chains["nat"]["KUBE-SVC-A"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-A X -j Y\n", "line 1 stands outside a table"),
        ("*nat\nnonsense\nCOMMIT\n", "line 2 is no rule: 'nonsense'"),
        ("*nat\n-A\nCOMMIT\n", "line 2 is no rule: '-A'"),
        ("*nat\n:\nCOMMIT\n", "line 2 names no chain"),
        ("*nat\n:X - [0:0]\n", "ends within a table, without COMMIT"),
    ],
)
def test_what_is_no_rule_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        tables_of(text)


def test_the_kernels_matches_show_in_its_rules():
    rules = Ruleset()
    assert shown_facts(Facts(), rules) == Facts()
    rules.chains["filter"]["KUBE-FORWARD"] = "-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT\n"
    found = shown_facts(Facts(nfacct=True), rules)
    assert (found.nfacct, found.comments, found.missing) == (False, False, frozenset(("conntrack",)))
