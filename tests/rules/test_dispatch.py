"""The tree of address prefixes: it holds every portal under its address, and an update rewrites few chains."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.model.addresses import to_int
from pykubeproxy.model.service import ServicePortName
from pykubeproxy.rules.dispatch import FlatDispatch, Rank, TreeDispatch
from pykubeproxy.rules.names import DISPATCH_PREFIX, MAX_LENGTH, NAT, SERVICES, is_ours
from pykubeproxy.rules.service import Portal
from pykubeproxy.sync.desired import TREE_PORTALS, Desired
from tests.support.builders import endpoint_slice, service, settings, state

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
}


def rank(number, created=""):
    return Rank(created, ServicePortName("ns", f"s{number}", "", "TCP"))


def portal(address, note):
    length = 128 if ":" in address else 32
    return Portal(
        address, f'-d {address}/{length} -p tcp -m comment --comment "{note}" -m tcp --dport 80 -j KUBE-SVC-X'
    )


def walked(chains, address):
    """Return the rules that a packet to an address meets in KUBE-SERVICES and below, and how many it walks past."""
    met, steps = [], 0

    def walk(chain):
        nonlocal steps
        for line in chains[chain].splitlines():
            steps += 1
            words = line.split()
            target = words[words.index("-j") + 1]
            if "-d" not in words:
                continue
            network, _, length = words[words.index("-d") + 1].partition("/")
            bits = 128 if ":" in address else 32
            shift = bits - int(length)
            if (":" in network) == (":" in address) and to_int(network) >> shift == to_int(address) >> shift:
                if target.startswith(DISPATCH_PREFIX):
                    walk(target)
                else:
                    met.append(line.split(" ", 2)[2])

    walk(SERVICES)
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


@pytest.mark.parametrize("leaf", [1, 2, 8])
@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
@given(operations=OPERATIONS)
def test_any_updates_leave_every_portal_under_its_address_in_order(family, leaf, operations):
    pool = POOLS[family]
    tree, flat = Kept(TreeDispatch(family, leaf_size=leaf)), Kept(FlatDispatch())
    ages = {}
    for number, addresses, age in operations:
        old = ages.get(number, "")
        ages[number] = age
        for kept in (tree, flat):
            if old != age:
                kept.put(rank(number, old), ())
            kept.put(rank(number, age), tuple(portal(pool[a], f"{number} {i}") for i, a in enumerate(addresses)))
    assert set(tree.chains) == set(tree.dispatch.chains())
    assert all(len(chain) <= MAX_LENGTH and is_ours(NAT, chain) for chain in tree.chains)
    assert sum(text.count("KUBE-SVC-X") for text in tree.chains.values()) == flat.chains[SERVICES].count("KUBE-SVC-X")
    for address in pool:
        assert walked(tree.chains, address)[0] == walked(flat.chains, address)[0]
    for chains in (tree.chains, flat.chains):
        assert chains[SERVICES].endswith(f"-A {SERVICES} {TAIL[0]}\n")
    jumps = {line.rpartition(" ")[2] for text in tree.chains.values() for line in text.splitlines()}
    assert {chain for chain in jumps if chain.startswith(DISPATCH_PREFIX)} == set(tree.chains) - {SERVICES}
    assert all(text for chain, text in tree.chains.items() if chain != SERVICES)


def test_an_empty_tree_is_its_tail():
    assert Kept(TreeDispatch("IPv4")).chains == {SERVICES: f"-A {SERVICES} {TAIL[0]}\n"}


def full(count):
    kept = Kept(TreeDispatch("IPv4"))
    for number in range(count):
        kept.put(rank(number), (portal(f"10.96.{number // 256}.{number % 256}", number),))
    return kept


def test_one_service_of_ten_thousand_rewrites_few_chains_and_is_found_in_tens_of_rules():
    kept = full(10_000)
    for number in (0, 255, 5000, 9999):
        address = f"10.96.{number // 256}.{number % 256}"
        changes = kept.put(rank(number), (portal(address, "changed"),))
        assert len(changes) <= 2
        assert sum((text or "").count("\n") for text in changes.values()) <= 40
        met, steps = walked(kept.chains, address)
        assert len(met) == 1
        assert steps <= 60
        assert len(kept.put(rank(number), ())) <= 2
        assert len(kept.put(rank(number), (portal(address, "back"),))) <= 3
    assert walked(kept.chains, "8.8.8.8")[1] <= 20


def test_an_address_that_comes_and_goes_makes_no_chain_flap():
    kept = full(9)
    assert len(kept.chains) > 1
    for _ in range(3):
        assert set(kept.put(rank(8), ())) <= set(kept.chains)
        before = set(kept.chains)
        kept.put(rank(8), (portal("10.96.0.8", 8),))
        assert set(kept.chains) == before


def test_a_tree_that_empties_becomes_one_chain_again():
    kept = full(2000)
    for number in range(2000):
        kept.put(rank(number), ())
    assert kept.chains == {SERVICES: f"-A {SERVICES} {TAIL[0]}\n"}


def test_nothing_new_is_no_change():
    for kept in (full(20), Kept(FlatDispatch())):
        old = kept.portals.get(rank(3), ())
        assert kept.put(rank(3), old) == {}


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
    assert not any(chain.startswith(DISPATCH_PREFIX) for chain in wanted.ruleset.chains[NAT])


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
