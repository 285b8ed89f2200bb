"""The order of a plan, how it is cut into inputs, and what it prints."""

import re

import pytest

from pykubeproxy.insight.packet import Packet
from pykubeproxy.insight.tracer import Tracer
from pykubeproxy.netfilter.read import parse, standing
from pykubeproxy.rules.dispatch import AddressSpace
from pykubeproxy.rules.names import FILTER, NAT, TABLES, callers_first
from pykubeproxy.rules.ruleset import Ensured, Ruleset
from pykubeproxy.sync.diff import difference
from pykubeproxy.sync.plan import Difference, Plan, Section, make_plan
from tests.support.builders import desired, endpoint_slice, port, service, settings
from tests.support.fake_kernel import FakeKernel, target_of


def cluster_objects(number, endpoints):
    there = [f"10.244.{number}.{k}" for k in range(endpoints)]
    return [
        service(f"s{number}", ip=f"10.96.0.{number + 1}", ports=[port(80, "a"), port(81, "b")]),
        endpoint_slice(f"s{number}", there, ports=[{"name": n, "port": 8080, "protocol": "TCP"} for n in "ab"]),
    ]


def cluster(count, endpoints=3):
    return desired(*(one for number in range(count) for one in cluster_objects(number, endpoints)))


def way(old, new, *, batch=None):
    stood = (
        Ruleset(
            {table: dict(old.ruleset.chains[table]) for table in TABLES}, old.ruleset.ensured, old.ruleset.shared_chains
        )
        if old is not None
        else Ruleset()
    )
    return make_plan(difference(stood, new.ruleset, None), new.owner.get, batch=batch)


def tables(plan):
    return [section.table for step in plan.steps for section in step.sections]


def test_no_difference_is_no_step():
    plan = way(cluster(2), cluster(2))
    assert not plan
    assert plan == Plan()
    assert plan.text() == ""


def test_a_small_plan_is_one_input():
    plan = way(None, cluster(2))
    assert [step.stage for step in plan.steps] == ["all"]
    assert tables(plan) == ["mangle", "filter", "nat"]


def test_a_service_that_appears_is_reachable_in_nat_before_filter_stops_refusing():
    without, with_it = desired(service()), desired(service(), endpoint_slice(endpoints=["10.244.0.1"]))
    plan = way(without, with_it)
    assert tables(plan) == ["nat", "filter"]


def test_a_service_that_goes_is_refused_by_filter_before_nat_lets_go():
    without, with_it = desired(service()), desired(service(), endpoint_slice(endpoints=["10.244.0.1"]))
    assert tables(way(with_it, without)) == ["filter", "nat"]


def test_when_one_comes_and_one_goes_filter_is_written_twice():
    a = [service("a", ip="10.96.0.1"), service("b", ip="10.96.0.2")]
    old = desired(*a, endpoint_slice("a", ["10.244.0.1"]))
    new = desired(*a, endpoint_slice("b", ["10.244.0.1"]))
    plan = way(old, new)
    assert tables(plan) == ["filter", "nat", "filter"]
    first, last = (section for step in plan.steps for section in step.sections if section.table == FILTER)
    (_, during), (_, after) = first.chains[0], last.chains[0]
    assert during.count("REJECT") == 2
    assert after == new.ruleset.chains[FILTER]["KUBE-SERVICES"]


@pytest.mark.parametrize("batch", [1, 10, 25, 100, 1000])
def test_a_commit_never_splits_a_service_port_that_fits_and_none_is_larger_than_it_must(batch):
    new = cluster(12)
    chains_of = {}
    for chain, owner in new.owner.items():
        chains_of.setdefault(owner, {})[chain] = new.ruleset.chains[NAT][chain].count("\n") + 1
    commits = [section for step in way(None, new, batch=batch).steps for section in step.sections]
    seen = set()
    for section in commits:
        here = {chain: new.owner[chain] for chain, _ in section.chains if chain in new.owner}
        assert not here.keys() & seen, "a chain in two commits"
        seen |= here.keys()
        for owner in set(here.values()):
            fits = sum(chains_of[owner].values()) <= batch
            assert not fits or chains_of[owner].keys() <= here.keys(), "a service port in two commits"
        if here:
            assert section.rules <= batch or len(section.chains) == 1
    assert seen == set(new.owner)


@pytest.mark.parametrize("batch", [1, 7, 40])
def test_stages_come_in_order(batch):
    stages = [step.stage for step in way(cluster(9), desired(service("z", ip="10.96.9.9")), batch=batch).steps]
    order = ["prepare", "stage", "switch", "finish", "sweep"]
    assert stages == sorted(stages, key=order.index)


@pytest.mark.parametrize("batch", [None, 1, 7, 40])
@pytest.mark.parametrize(("old", "new"), [(0, 9), (9, 0), (9, 4), (4, 9), (1, 1)])
def test_a_kernel_takes_every_step_and_ends_where_it_should(old, new, batch):
    kernel = FakeKernel()
    for plan in (way(None, cluster(old)), way(cluster(old), cluster(new, 2), batch=batch)):
        for step in plan.steps:
            kernel.edit(step.text())
    wanted = cluster(new, 2).ruleset
    for table in TABLES:
        found = {
            c: "".join(f"-A {c} {r}\n" for r in rules)
            for c, rules in kernel.tables[table].chains.items()
            if c.startswith("KUBE-") and c != "KUBE-FIREWALL"
        }
        assert found == wanted.chains[table]


CLIENT = "192.0.2.1"


@pytest.mark.parametrize("batch", [None, 1, 8])
@pytest.mark.parametrize("dispatch", ["flat", "tree"])
@pytest.mark.parametrize(
    "change",
    [{"ports": [port(81)]}, {"ip": "10.96.0.99"}, {"internalTrafficPolicy": "Local", "externalIPs": ["203.0.113.1"]}],
)
def test_who_is_masqueraded_is_while_the_address_or_the_port_changes(change, dispatch, batch, monkeypatch):
    # Each address has a range of its own, which goes with it.
    monkeypatch.setattr(AddressSpace, "leaf_size", 1)
    there = endpoint_slice("web", ["10.244.0.1", "10.244.0.2"])
    stays = [service("other", ip="10.96.0.77"), endpoint_slice("other", ["10.244.0.9"])]
    before = service(externalIPs=change.get("externalIPs", []))
    old, new = (desired(one, there, *stays, dispatch=dispatch) for one in (before, service(**change)))
    kernel = FakeKernel()
    for step in way(None, old).steps:
        kernel.edit(step.text())
    asked = [
        Packet(source=CLIENT, destination=address, port=number)
        for address in ("10.96.0.10", "10.96.0.99", "10.96.0.77")
        for number in (80, 81)
    ]
    first, last = Tracer.from_ruleset(old.ruleset), Tracer.from_ruleset(new.ruleset)
    for step in (plan := way(old, new, batch=batch)).steps:
        for section in step.sections:
            kernel.edit(section.text())
            now = Tracer.from_save(kernel.save())
            for packet in asked:
                assert set(now.trace(packet).ends()) <= {*first.trace(packet).ends(), *last.trace(packet).ends()}
    assert not difference(standing(parse(kernel.save())), new.ruleset, None)
    assert all(chain not in new.owner or new.owner[chain].name == "web" for step in plan.steps
               for section in step.sections for chain, _ in section.chains)  # fmt: skip


def test_no_chain_is_written_twice_where_no_address_goes():
    old = cluster(9)
    at = settings(local_detector=None)
    new = desired(*(one for number in range(9) for one in cluster_objects(number, 3)), at=at)
    written = [chain for step in way(old, new, batch=10).steps for part in step.sections for chain, _ in part.chains]
    assert written
    assert len(written) == len(set(written))


def test_callers_are_deleted_before_callees():
    names = [
        "KUBE-SEP-A",
        "KUBE-SVC-A",
        "KUBE-SVL-A",
        "KUBE-EXT-A",
        "KUBE-FW-A",
        "KUBE-SVC-IP-0A600000-16",
        "KUBE-SVC-IP-0A600000-20",
        "KUBE-SVC-IP-0A600010-28",
        "KUBE-SVC-NP-TCP-28672-32767",
        "KUBE-SVC-NP-TCP-29696-30207",
        "KUBE-SVC-NP-TCP-30016-30079",
        "KUBE-NODEPORTS",
        "KUBE-MARK-MASQ",
        "KUBE-SERVICES",
    ]
    order = sorted(names, key=callers_first)
    for caller, callee in [
        ("KUBE-SERVICES", "KUBE-SVC-IP-0A600000-16"),
        ("KUBE-SVC-IP-0A600000-16", "KUBE-SVC-IP-0A600000-20"),
        ("KUBE-SVC-IP-0A600000-20", "KUBE-SVC-IP-0A600010-28"),
        ("KUBE-SVC-IP-0A600010-28", "KUBE-FW-A"),
        ("KUBE-SERVICES", "KUBE-NODEPORTS"),
        ("KUBE-NODEPORTS", "KUBE-SVC-NP-TCP-28672-32767"),
        ("KUBE-SVC-NP-TCP-28672-32767", "KUBE-SVC-NP-TCP-29696-30207"),
        ("KUBE-SVC-NP-TCP-29696-30207", "KUBE-SVC-NP-TCP-30016-30079"),
        ("KUBE-SVC-NP-TCP-30016-30079", "KUBE-EXT-A"),
        ("KUBE-FW-A", "KUBE-EXT-A"),
        ("KUBE-EXT-A", "KUBE-SVL-A"),
        ("KUBE-EXT-A", "KUBE-SVC-A"),
        ("KUBE-SVC-A", "KUBE-SEP-A"),
        ("KUBE-SEP-A", "KUBE-MARK-MASQ"),
    ]:
        assert order.index(caller) < order.index(callee)


def test_an_input_names_chains_first_then_rules_then_jumps_then_deletions():
    section = Section(
        NAT,
        (("KUBE-SVC-A", "-A KUBE-SVC-A -j RETURN\n"),),
        ("KUBE-FIREWALL",),
        (Ensured(NAT, "OUTPUT", "-j KUBE-SERVICES"), Ensured(NAT, "KUBE-FIREWALL", "-j DROP", at_top=False)),
        (Ensured(NAT, "OUTPUT", "-j OLD"),),
        ("KUBE-SVC-B",),
    )
    assert section.text().splitlines() == [
        "*nat",
        ":KUBE-FIREWALL - [0:0]",
        ":KUBE-SVC-A - [0:0]",
        ":KUBE-SVC-B - [0:0]",
        "-A KUBE-SVC-A -j RETURN",
        "-I OUTPUT 1 -j KUBE-SERVICES",
        "-A KUBE-FIREWALL -j DROP",
        "-D OUTPUT -j OLD",
        "-X KUBE-SVC-B",
        "COMMIT",
    ]
    assert "-X" not in section.without_deletes().text()
    assert ":KUBE-SVC-B - [0:0]" in section.without_deletes().text()


def test_a_plan_never_touches_what_is_not_ours():
    text = way(None, cluster(3)).text() + way(cluster(3), cluster(0)).text()
    chains = set(re.findall(r"^:(\S+)", text, re.MULTILINE))
    assert all(chain.startswith("KUBE-") for chain in chains)
    assert "-F" not in text.split()
    assert not re.search(r"^-[AXD] (INPUT|OUTPUT|FORWARD|PREROUTING|POSTROUTING) (?!.*KUBE-)", text, re.MULTILINE)
    assert not re.search(r"^:(INPUT|OUTPUT|FORWARD|PREROUTING|POSTROUTING)", text, re.MULTILINE)


def test_callees_are_staged_in_the_input_of_their_callers_or_before():
    new = cluster(9)
    known = {"ACCEPT", "DROP", "RETURN", "REJECT", "MARK", "DNAT", "MASQUERADE", ""}
    for step in way(None, new, batch=10).steps:
        for section in step.sections:
            known |= {f"{section.table} {chain}" for chain, _ in section.chains} | {
                f"{section.table} {c}" for c in section.create
            }
            for chain, text in section.chains:
                for line in text.splitlines():
                    target = target_of(line)
                    assert target in known or f"{section.table} {target}" in known, (
                        f"{chain} jumps to {target} too early"
                    )


def test_nothing_to_do_is_falsy():
    assert not Difference({}, {})
    assert not make_plan(Difference({}, {}), lambda _: None, batch=None)
