"""How a packet finds its service: KUBE-SERVICES and KUBE-NODEPORTS in nat, flat as in kube-proxy or as trees.

Both forms keep the portals of all service ports and tell, after an update, which chains have another text. The flat
form is one chain with a rule for every portal. A tree branches by address prefixes (KUBE-SERVICES) or by port ranges
(KUBE-NODEPORTS): a packet goes through a chain of ever smaller ranges until few portals are left, so a new connection
walks tens of rules, not thousands, and a new service rewrites one small chain. Chains of the trees begin as
kube-proxy's service chains do, so that a returning kube-proxy removes them as stale.

The shape of a tree depends on nothing but the portals in it: a range is divided if it holds more than so many portals
with more than one address (or port), and smaller ranges are left. So it does not matter which portals came and went
before: a restarted daemon wants the very chains that stand.

Among portals with the same address or port the order is by age, then name: the older object wins (kube-proxy lets a
map decide).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import NamedTuple, Protocol

from pykubeproxy.model.addresses import Family, prefix_of
from pykubeproxy.model.service import ServicePortName
from pykubeproxy.rules.names import DISPATCH_PREFIX, NODEPORTS, PORT_DISPATCH_PREFIX, SERVICES, short_hash
from pykubeproxy.rules.ruleset import chain_text
from pykubeproxy.rules.service import Portal

LEVELS: dict[Family, tuple[int, ...]] = {"IPv4": (16, 20, 24, 28), "IPv6": (64, 112, 116, 120, 124)}
"""Prefix lengths of the tree: four bits a step, so that no chain has more than 16 branches below the first."""

LEAF_SIZE = 8
"""Up to this many portals stand in one chain without being divided further."""

PORT_LEVELS = (4096, 512, 64, 16)
"""Sizes of port ranges: all node ports of a usual cluster (30000 to 32767) are in one range of the first size, so what
is no node port passes by with a single rule for each protocol."""

PORT_LEAF_SIZE = 16
"""Up to this many node port rules stand in one chain: 64 cost a packet 2.9 µs, 16 cost 1.5 µs, and 8 cost 1.1 µs but
take nearly twice as many chains (docs/benchmarks.md)."""


class Rank(NamedTuple):
    """Sorts portals that claim the same address."""

    created: str
    id: ServicePortName


class Dispatch(Protocol):
    """The way from an address or a port to a service's chain."""

    def update(self, rank: Rank, old: tuple[Portal, ...], new: tuple[Portal, ...]) -> None:
        """Replace the portals of one service port."""

    def set_tail(self, rules: tuple[str, ...]) -> None:
        """Set the rules that end the first chain: in KUBE-SERVICES the jumps to the node ports."""

    def take_changes(self) -> dict[str, str | None]:
        """Return the chains whose text is new, and None for chains that are gone; then forget them."""


class Space(Protocol):
    """What a tree branches over."""

    root: str
    """The chain that packets enter."""
    leaf_size: int
    depth: int
    """How often a range can be divided."""

    def part(self, key: str, level: int) -> str:
        """Return the name of the range of this level that an address or port is in."""

    def chain(self, part: str, level: int) -> str:
        """Return the chain of a range."""

    def match(self, part: str, level: int) -> str:
        """Return the match for all that is in a range."""


class AddressSpace:
    """Addresses of one family, by prefix."""

    root = SERVICES
    leaf_size = LEAF_SIZE

    def __init__(self, family: Family) -> None:
        self._levels = LEVELS[family]
        self.depth = len(self._levels)

    def part(self, key: str, level: int) -> str:
        """Return the network address."""
        return prefix_of(key, self._levels[level])

    def chain(self, part: str, level: int) -> str:
        """Return the chain of a prefix, ending in the prefix length."""
        return chain_name(part, self._levels[level])

    def match(self, part: str, level: int) -> str:
        """Return the match on the destination."""
        return f"-d {part}/{self._levels[level]}"


class PortSpace:
    """Ports of all protocols, by ranges that begin at a multiple of their size. A key is ``tcp/30080``."""

    root = NODEPORTS
    leaf_size = PORT_LEAF_SIZE
    depth = len(PORT_LEVELS)

    def part(self, key: str, level: int) -> str:
        """Return the protocol and the first port of the range, as a key has them."""
        protocol, _, number = key.partition("/")
        return f"{protocol}/{int(number) // PORT_LEVELS[level] * PORT_LEVELS[level]}"

    def chain(self, part: str, level: int) -> str:
        """Return the chain of a range; for SCTP and five digits that is as long as a name may be."""
        protocol, _, first = part.partition("/")
        return f"{PORT_DISPATCH_PREFIX}{protocol.upper()}-{first}-{int(first) + PORT_LEVELS[level] - 1}"

    def match(self, part: str, level: int) -> str:
        """Return the match on protocol and port."""
        protocol, _, first = part.partition("/")
        return f"-p {protocol} -m {protocol} --dport {first}:{int(first) + PORT_LEVELS[level] - 1}"


class FlatDispatch:
    """One chain, one rule a portal."""

    def __init__(self, chain: str) -> None:
        self._chain = chain
        self._portals: dict[Rank, tuple[Portal, ...]] = {}
        self._tail: tuple[str, ...] = ()
        self._changed = True

    def update(self, rank: Rank, old: tuple[Portal, ...], new: tuple[Portal, ...]) -> None:
        """Replace the portals of one service port."""
        if old == new and (rank in self._portals) == bool(new):
            return
        if new:
            self._portals[rank] = new
        else:
            self._portals.pop(rank, None)
        self._changed = True

    def set_tail(self, rules: tuple[str, ...]) -> None:
        """Set the rules that end the chain."""
        self._changed = self._changed or rules != self._tail
        self._tail = rules

    def take_changes(self) -> dict[str, str | None]:
        """Return the new text of the chain if it changed."""
        if not self._changed:
            return {}
        self._changed = False
        rules = [portal.rule for rank in sorted(self._portals) for portal in self._portals[rank]]
        return {self._chain: chain_text(self._chain, [*rules, *self._tail])}


_Entry = tuple[Rank, int, str]
"""Whose portal, which of its portals, and the rule."""


class _Node:
    """One range: the portals in it while they are few, else a child for each smaller range."""

    __slots__ = ("chain", "children", "count", "jump", "keys", "portals")

    def __init__(self, chain: str, jump: str) -> None:
        self.chain = chain
        self.jump = jump
        """The rule that leads here from the larger range."""
        self.portals: dict[str, list[_Entry]] | None = {}
        self.children: dict[str, _Node] = {}
        self.count = 0
        """How many portals there are here and below."""
        self.keys = 0
        """How many addresses or ports they have."""


class TreeDispatch:
    """A tree of ranges. See the module's docstring."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._root = _Node(space.root, "")
        self._tail: tuple[str, ...] = ()
        self._changed: dict[str, _Node | None] = {space.root: self._root}

    def update(self, rank: Rank, old: tuple[Portal, ...], new: tuple[Portal, ...]) -> None:
        """Replace the portals of one service port."""
        for index, (was, now) in enumerate(zip_longest(old, new)):
            if was == now:
                continue
            if was is not None and now is not None and was.key == now.key:
                self._replace(now.key, (rank, index, was.rule), (rank, index, now.rule))
                continue
            if was is not None:
                self._remove(was.key, (rank, index, was.rule))
            if now is not None:
                self._insert(now.key, (rank, index, now.rule))

    def set_tail(self, rules: tuple[str, ...]) -> None:
        """Set the rules that end the first chain."""
        if rules != self._tail:
            self._tail = rules
            self._changed[self._root.chain] = self._root

    def take_changes(self) -> dict[str, str | None]:
        """Return the chains whose text is new, and None for chains that are gone."""
        changes = {chain: None if node is None else self._text(node) for chain, node in self._changed.items()}
        self._changed = {}
        return changes

    def chains(self) -> list[str]:
        """Return the names of all chains of the tree, the first one first."""
        found, waiting = [], [self._root]
        while waiting:
            node = waiting.pop()
            found.append(node.chain)
            waiting += node.children.values()
        return found

    def _is_divided(self, node: _Node, level: int) -> bool:
        """Tell whether a node of this level has children: the one place that gives the tree its shape."""
        return node.count > self._space.leaf_size and node.keys > 1 and level < self._space.depth

    def _path(self, key: str) -> list[_Node]:
        """Return the nodes from the first one to the leaf of a key, which is made where there is none."""
        path = [self._root]
        while path[-1].portals is None:
            path.append(self._child(path[-1], len(path) - 1, key))
        return path

    def _child(self, node: _Node, level: int, key: str) -> _Node:
        part = self._space.part(key, level)
        child = node.children.get(part)
        if child is None:
            chain = self._space.chain(part, level)
            child = node.children[part] = _Node(chain, f"{self._space.match(part, level)} -j {chain}")
            self._changed[chain] = child
            self._changed[node.chain] = node
        return child

    def _insert(self, key: str, entry: _Entry) -> None:
        path = self._path(key)
        leaf = path[-1]
        assert leaf.portals is not None
        is_new = key not in leaf.portals
        insort(leaf.portals.setdefault(key, []), entry)
        for node in path:
            node.count += 1
            node.keys += is_new
        self._changed[leaf.chain] = leaf
        self._divide(leaf, len(path) - 1)

    def _divide(self, node: _Node, level: int) -> None:
        """Give a leaf children, and those in turn, where there is too much in it."""
        if not self._is_divided(node, level):
            return
        portals, node.portals = node.portals or {}, None
        for key, entries in portals.items():
            child = self._child(node, level, key)
            assert child.portals is not None
            child.portals[key] = entries
            child.count += len(entries)
            child.keys += 1
        for child in node.children.values():
            self._divide(child, level + 1)
        self._changed[node.chain] = node

    def _replace(self, key: str, old: _Entry, new: _Entry) -> None:
        leaf = self._path(key)[-1]
        assert leaf.portals is not None
        entries = leaf.portals[key]
        entries[entries.index(old)] = new
        self._changed[leaf.chain] = leaf

    def _remove(self, key: str, entry: _Entry) -> None:
        path = self._path(key)
        leaf = path[-1]
        assert leaf.portals is not None
        leaf.portals[key].remove(entry)
        is_gone = not leaf.portals[key]
        if is_gone:
            del leaf.portals[key]
        self._changed[leaf.chain] = leaf
        for node in path:
            node.count -= 1
            node.keys -= is_gone
        for level, node in enumerate(path[:-1]):
            if not self._is_divided(node, level):
                self._join(node)
                return
        if not leaf.count and leaf is not self._root:
            # What is above it is still divided, so it is not empty.
            parent = path[-2]
            del parent.children[self._space.part(key, len(path) - 2)]
            self._changed[leaf.chain] = None
            self._changed[parent.chain] = parent

    def _join(self, node: _Node) -> None:
        """Take back what is below a node: no more than one chain holds, or a single address's."""
        portals: dict[str, list[_Entry]] = {}
        waiting = list(node.children.values())
        while waiting:
            child = waiting.pop()
            self._changed[child.chain] = None
            waiting += child.children.values()
            portals.update(child.portals or {})
        node.children, node.portals = {}, portals
        self._changed[node.chain] = node

    def _text(self, node: _Node) -> str:
        if node.portals is not None:
            rules = [rule for key in sorted(node.portals) for _, _, rule in node.portals[key]]
        else:
            rules = [node.children[part].jump for part in sorted(node.children)]
        tail: Iterable[str] = self._tail if node is self._root else ()
        return chain_text(node.chain, [*rules, *tail])


def leads_to_tree(chains: Mapping[str, str]) -> bool | None:
    """Tell whether these chains of nat have KUBE-SERVICES as a tree; None where it is not there."""
    text = chains.get(SERVICES)
    return None if text is None else f" -j {DISPATCH_PREFIX}" in text


def chain_name(network: str, length: int) -> str:
    """Return the chain of a prefix: at most 28 characters, ending in the prefix length."""
    if ":" in network:
        return f"{DISPATCH_PREFIX}{short_hash(network)[:12]}-{length}"
    return f"{DISPATCH_PREFIX}{_hex(network)}-{length}"


def _hex(network: str) -> str:
    return "".join(f"{int(octet):02X}" for octet in network.split("."))
