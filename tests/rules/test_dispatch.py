"""The trees: they hold every portal under its address or port, look the same after any history, and change little."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.model.addresses import to_int
from pykubeproxy.model.service import ServicePortName
from pykubeproxy.rules.dispatch import (
    LEAF_SIZE,
    PORT_LEAF_SIZE,
    AddressSpace,
    FlatDispatch,
    PortSpace,
    Rank,
    TreeDispatch,
)
from pykubeproxy.rules.names import DISPATCH_PREFIX, DISPATCH_PREFIXES, MAX_LENGTH, NAT, NODEPORTS, SERVICES, is_ours
from pykubeproxy.rules.service import Portal
from pykubeproxy.sync.desired import TREE_PORTALS, Desired
from tests.support.builders import endpoint_slice, port, service, settings, state

TAIL = ("-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS",)
POOLS = {
    "IPv4": [
        "10.96.0.1",
        "10.96.0.2",
        "10.96.0.17",
        "10.96.1.1",
        "10.96.16.1",
        "10.97.0.1",
        "203.0.113.1",
        "0.0.0.1",
        "255.255.255.255",
    ],
    "IPv6": [
        "fd00:96::1",
        "fd00:96::2",
        "fd00:96::11",
        "fd00:96::101",
        "fd00:96::1:1",
        "fd00:97::1",
        "2001:db8::1",
        "::1:0",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    ],
    "ports": [
        "tcp/30000",
        "tcp/30001",
        "tcp/30016",
        "tcp/30100",
        "tcp/32767",
        "udp/30000",
        "sctp/65535",
        "tcp/1",
        "udp/30001",
    ],
}


def space_of(kind):
    return PortSpace() if kind == "ports" else AddressSpace(kind)


def trees(kind, leaf=None):
    """An empty tree."""
    space = space_of(kind)
    if leaf is not None:
        space.leaf_size = leaf
    return Kept(TreeDispatch(space))


def flats(kind):
    """An empty flat form."""
    return Kept(FlatDispatch(space_of(kind).root))


def rank(number, created=""):
    return Rank(created, ServicePortName("ns", f"s{number}", "", "TCP"))


def portal(address, note):
    if "/" in address:
        protocol, _, number = address.partition("/")
        match = f'-p {protocol} -m comment --comment "{note}" -m {protocol} --dport {number}'
        return Portal(address, f"{match} -j KUBE-SVC-X")
    length = 128 if ":" in address else 32
    return Portal(
        address, f'-d {address}/{length} -p tcp -m comment --comment "{note}" -m tcp --dport 80 -j KUBE-SVC-X'
    )


def covers(words, address):
    """Tell whether a rule, given as words, takes packets to an address or a port."""
    if "/" in address:
        protocol, _, number = address.partition("/")
        first, _, last = words[words.index("--dport") + 1].partition(":")
        return words[words.index("-p") + 1] == protocol and int(first) <= int(number) <= int(last or first)
    network, _, length = words[words.index("-d") + 1].partition("/")
    shift = (128 if ":" in address else 32) - int(length)
    return (":" in network) == (":" in address) and to_int(network) >> shift == to_int(address) >> shift


def walked(chains, address):
    """Return the rules that a packet to an address or port meets in the tree, and how many it walks past."""
    met, steps = [], 0

    def walk(chain):
        nonlocal steps
        for line in chains[chain].splitlines():
            steps += 1
            words = line.split()
            target = words[words.index("-j") + 1]
            if target != NODEPORTS and covers(words, address):
                if target.startswith(DISPATCH_PREFIXES):
                    walk(target)
                else:
                    met.append(line.split(" ", 2)[2])

    walk(NODEPORTS if "/" in address else SERVICES)
    return met, steps


class Kept:
    """A dispatch and what its changes add up to."""

    def __init__(self, dispatch):
        self.dispatch = dispatch
        self.chains = {}
        self.portals = {}
        dispatch.set_tail(TAIL)
        self.take()

    def take(self):
        changes = self.dispatch.take_changes()
        for chain, text in changes.items():
            if text is None:
                self.chains.pop(chain, None)
            else:
                self.chains[chain] = text
        return changes

    def put(self, key, portals):
        self.dispatch.update(key, self.portals.get(key, ()), portals)
        self.portals[key] = portals
        return self.take()


OPERATIONS = st.lists(
    st.tuples(st.integers(0, 11), st.lists(st.integers(0, 8), max_size=3), st.sampled_from(("", "2024", "2025"))),
    max_size=40,
)
KINDS = pytest.mark.parametrize("kind", ["IPv4", "IPv6", "ports"])


def happen(operations, pool, *forms):
    """Let portals come, change and go in all forms; return what is left, by service."""
    ages, left = {}, {}
    for number, addresses, age in operations:
        old = ages.get(number, "")
        ages[number] = age
        left[number] = (rank(number, age), tuple(portal(pool[a], f"{number} {i}") for i, a in enumerate(addresses)))
        for kept in forms:
            if old != age:
                kept.put(rank(number, old), ())
            kept.put(*left[number])
    return left


@pytest.mark.parametrize("leaf", [1, 2, 8])
@KINDS
@given(operations=OPERATIONS)
def test_any_updates_leave_every_portal_under_its_address_in_order(kind, leaf, operations):
    pool = POOLS[kind]
    tree, flat = trees(kind, leaf), flats(kind)
    happen(operations, pool, tree, flat)
    root = space_of(kind).root
    assert set(tree.chains) == set(tree.dispatch.chains())
    assert all(len(chain) <= MAX_LENGTH and is_ours(NAT, chain) for chain in tree.chains)
    assert sum(text.count("KUBE-SVC-X") for text in tree.chains.values()) == flat.chains[root].count("KUBE-SVC-X")
    for address in pool:
        assert walked(tree.chains, address)[0] == walked(flat.chains, address)[0]
    for chains in (tree.chains, flat.chains):
        assert chains[root].endswith(f"-A {root} {TAIL[0]}\n")
    jumps = {line.rpartition(" ")[2] for text in tree.chains.values() for line in text.splitlines()}
    assert {chain for chain in jumps if chain.startswith(DISPATCH_PREFIXES)} == set(tree.chains) - {root}
    assert all(text for chain, text in tree.chains.items() if chain != root)


@pytest.mark.parametrize("leaf", [1, 2, 4, 8])
@KINDS
@given(operations=OPERATIONS, data=st.data())
def test_the_shape_does_not_depend_on_what_was_before(kind, leaf, operations, data):
    lived = trees(kind, leaf)
    left = happen(operations, POOLS[kind], lived)
    fresh = trees(kind, leaf)
    for number in data.draw(st.permutations(sorted(left))):
        fresh.put(*left[number])
    assert lived.chains == fresh.chains


@pytest.mark.parametrize("leaf", [1, 2, 8])
@KINDS
@given(numbers=st.lists(st.tuples(st.integers(0, 8), st.integers(1, 4)), max_size=12))
def test_a_range_is_divided_where_too_much_is_in_it_and_only_there(kind, leaf, numbers):
    """The definition of the shape, without any steps to get there."""
    space, pool = space_of(kind), POOLS[kind]
    tree = trees(kind, leaf)
    for place, (number, count) in enumerate(numbers):
        tree.put(rank(place), tuple(portal(pool[number], f"{place} {i}") for i in range(count)))
    rules = [pool[number] for number, count in numbers for _ in range(count)]
    expected = set()

    def divide(chain, there, level):
        expected.add(chain)
        if len(there) > leaf and len(set(there)) > 1 and level < space.depth:
            for part in {space.part(key, level) for key in there}:
                divide(space.chain(part, level), [k for k in there if space.part(k, level) == part], level + 1)

    divide(space.root, rules, 0)
    assert set(tree.chains) == expected


@KINDS
def test_an_empty_tree_is_its_tail(kind):
    root = space_of(kind).root
    assert trees(kind).chains == {root: f"-A {root} {TAIL[0]}\n"}


def full(count):
    kept = trees("IPv4")
    for number in range(count):
        kept.put(rank(number), (portal(f"10.96.{number // 256}.{number % 256}", number),))
    return kept


def full_ports(count):
    kept = trees("ports")
    for number in range(count):
        kept.put(rank(number), (portal(f"tcp/{30000 + number}", number),))
    return kept


def test_one_service_of_ten_thousand_rewrites_few_chains_and_is_found_in_tens_of_rules():
    kept = full(10_000)
    for number in (0, 255, 5000, 9999):
        address = f"10.96.{number // 256}.{number % 256}"
        changes = kept.put(rank(number), (portal(address, "changed"),))
        assert len(changes) <= 1
        assert sum((text or "").count("\n") for text in changes.values()) <= 40
        met, steps = walked(kept.chains, address)
        assert len(met) == 1
        assert steps <= 60
        assert len(kept.put(rank(number), ())) <= 2
        assert len(kept.put(rank(number), (portal(address, "back"),))) <= 3
    assert walked(kept.chains, "8.8.8.8")[1] <= 20


def test_all_node_ports_that_there_are_take_few_rules_each_and_hardly_one_for_other_ports():
    kept = full_ports(2768)
    for number in (30000, 31111, 32767):
        met, steps = walked(kept.chains, f"tcp/{number}")
        assert len(met) == 1
        assert steps <= 1 + len(TAIL) + 6 + 8 + 4 + 16
        assert len(kept.put(rank(number - 30000), (portal(f"tcp/{number}", "changed"),))) == 1
    assert walked(kept.chains, "tcp/22")[1] == 1 + len(TAIL)
    assert len(kept.chains) <= 240


def test_few_portals_stay_in_one_chain():
    assert set(full(LEAF_SIZE).chains) == {SERVICES}
    assert set(full_ports(PORT_LEAF_SIZE).chains) == {NODEPORTS}


def test_an_address_that_comes_and_goes_rewrites_no_more_than_a_leaf():
    kept = full(LEAF_SIZE + 1)
    flat, divided = set(full(LEAF_SIZE).chains), set(kept.chains)
    assert len(divided) > 1
    for _ in range(3):
        assert set(kept.put(rank(LEAF_SIZE), ())) == divided
        assert set(kept.chains) == flat
        assert set(kept.put(rank(LEAF_SIZE), (portal(f"10.96.0.{LEAF_SIZE}", LEAF_SIZE),))) == divided
        assert set(kept.chains) == divided


def test_a_tree_that_empties_becomes_one_chain_again():
    kept = full(2000)
    for number in range(2000):
        kept.put(rank(number), ())
    assert kept.chains == {SERVICES: f"-A {SERVICES} {TAIL[0]}\n"}


def test_nothing_new_is_no_change():
    for kept in (full(20), flats("IPv4")):
        old = kept.portals.get(rank(3), ())
        assert kept.put(rank(3), old) == {}


def test_a_rule_that_changes_its_target_rewrites_its_chain_only_even_where_one_more_would_divide_it():
    for count in (LEAF_SIZE, LEAF_SIZE + 1):
        kept = full(count)
        assert len(kept.put(rank(3), (portal("10.96.0.3", "changed"),))) == 1


# -- auto: flat while small


def grown(count):
    """A state with this many services, each with one portal."""
    services = [service(f"s{n}", ip=f"10.96.{n // 250}.{n % 250 + 1}") for n in range(count)]
    slices = [endpoint_slice(f"s{n}", ["10.244.0.1"]) for n in range(count)]
    return state(*services, *slices)


def test_auto_turns_to_the_tree_at_its_size_and_back_at_half_of_it():
    held = grown(TREE_PORTALS)
    wanted = Desired(settings(), dispatch="auto")
    keys = held.take_dirty()
    wanted.update(held, keys[:-1])
    assert not wanted.uses_tree
    wanted.update(held, keys[-1:])
    assert wanted.uses_tree
    for number in range(TREE_PORTALS // 2):
        held.delete_service("default", f"s{number}")
    wanted.update(held, held.take_dirty())
    assert wanted.uses_tree
    wanted.take_changed()
    held.delete_service("default", f"s{TREE_PORTALS - 1}")
    wanted.update(held, held.take_dirty())
    assert not wanted.uses_tree
    gone = {chain for table, chain in wanted.take_changed() if chain not in wanted.ruleset.chains[table]}
    assert gone >= {chain for chain in gone if chain.startswith(DISPATCH_PREFIX)}
    assert not any(chain.startswith(DISPATCH_PREFIXES) for chain in wanted.ruleset.chains[NAT])


def test_one_endpoint_more_touches_its_service_only():
    held = grown(600)
    wanted = Desired(settings(), dispatch="auto")
    wanted.update(held, held.take_dirty())
    wanted.take_changed()
    held.set_slice(endpoint_slice("s77", ["10.244.0.1", "10.244.0.2"]))
    wanted.update(held, held.take_dirty())
    changed = wanted.take_changed()
    assert {wanted.owner[chain].name for _, chain in changed} == {"s77"}
    assert len(changed) == 2


def test_a_first_or_last_endpoint_touches_its_leaf_as_well():
    held = grown(600)
    wanted = Desired(settings(), dispatch="auto")
    wanted.update(held, held.take_dirty())
    wanted.take_changed()
    for endpoints in ([], ["10.244.0.9"]):
        held.set_slice(endpoint_slice("s77", endpoints))
        wanted.update(held, held.take_dirty())
        foreign = [
            chain for _, chain in wanted.take_changed() if wanted.owner.get(chain, held.keys()[77]).name != "s77"
        ]
        assert len([chain for chain in foreign if chain.startswith((DISPATCH_PREFIX, SERVICES))]) <= 2


# -- auto: what stands decides where both forms are allowed


def rendered(held, **more):
    wanted = Desired(settings(), dispatch="auto", **more)
    with held.lock:
        wanted.update(held, held.keys())
    return wanted


@pytest.mark.parametrize(
    ("count", "standing", "form"),
    [
        (TREE_PORTALS // 2 - 1, True, False),
        (TREE_PORTALS // 2, True, True),
        (TREE_PORTALS // 2, False, False),
        (TREE_PORTALS - 1, True, True),
        (TREE_PORTALS - 1, False, False),
        (TREE_PORTALS, False, True),
    ],
)
def test_auto_begins_in_the_form_that_stands_where_it_may(count, standing, form):
    held = grown(count)
    assert rendered(held, stands_as_tree=standing).uses_tree == form
    late = rendered(held, stands_as_tree=not standing)
    late.take_changed()
    late.take_form(stands_as_tree=standing)
    assert late.uses_tree == form
    assert late.ruleset.chains == rendered(held, stands_as_tree=standing).ruleset.chains


@pytest.mark.parametrize("dispatch", ["flat", "tree"])
def test_a_form_that_was_asked_for_stays_whatever_stands(dispatch):
    held = grown(TREE_PORTALS - 1)
    wanted = Desired(settings(), dispatch=dispatch, stands_as_tree=dispatch == "flat")
    wanted.update(held, held.take_dirty())
    wanted.take_form(stands_as_tree=dispatch == "flat")
    assert wanted.uses_tree == (dispatch == "tree")


# -- node ports of services


def test_node_ports_become_ranges_with_the_tree_and_keep_the_rule_that_counts_localhost():
    count = PORT_LEAF_SIZE
    services = [
        service(f"s{n}", ip=f"10.96.0.{n + 1}", ports=[port(80, node_port=30000 + n * 64)]) for n in range(count)
    ]
    slices = [endpoint_slice(f"s{n}", ["10.244.0.1"]) for n in range(count)]
    held = state(*services, *slices)
    wanted = Desired(settings(nfacct=True), dispatch="tree")
    wanted.update(held, held.take_dirty())
    chains = wanted.ruleset.chains[NAT]
    assert chains[NODEPORTS] == (f"-A {NODEPORTS} -p tcp -m tcp --dport 28672:32767 -j KUBE-SVC-NP-TCP-28672-32767\n")
    first, second = chains["KUBE-SVC-NP-TCP-29696-30207"].splitlines()[0:2]
    assert first.startswith("-A KUBE-SVC-NP-TCP-29696-30207 -d 127.0.0.0/8 -p tcp ")
    assert "--nfacct-name" in first
    assert second == first.replace("-d 127.0.0.0/8 ", "").replace(
        "-m nfacct --nfacct-name  localhost_nps_accepted_pkts ", ""
    )
    assert not any(chain.startswith("KUBE-SVC-NP-") for chain in wanted.ruleset.chains["filter"])
