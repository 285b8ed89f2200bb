"""How a packet finds its service: KUBE-SERVICES in nat, flat as in kube-proxy or as a tree of address prefixes.

Both forms keep the portals of all service ports and tell, after an update, which chains have another text. The flat
form is one chain with a rule for every portal. The tree sends a destination address through KUBE-SERVICES to a chain
of its prefix, and so on, until at most LEAF_SIZE portals or the 16 addresses of the last level are left: a new
connection walks tens of rules, not thousands, and a new service rewrites one small chain. Chains of the tree begin as
kube-proxy's service chains do, so that a returning kube-proxy removes them as stale.

Among portals with the same address the order is by age, then name: the older object wins (kube-proxy lets a map
decide).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple, Protocol

from pykubeproxy.model.addresses import Family, prefix_of
from pykubeproxy.model.service import ServicePortName
from pykubeproxy.rules.names import DISPATCH_PREFIX, SERVICES, short_hash
from pykubeproxy.rules.ruleset import chain_text
from pykubeproxy.rules.service import Portal

LEVELS: dict[Family, tuple[int, ...]] = {"IPv4": (16, 20, 24, 28), "IPv6": (64, 112, 116, 120, 124)}
"""Prefix lengths of the tree: four bits a step, so that no chain has more than 16 branches below the first."""

LEAF_SIZE = 8
"""Up to this many portals stand in one chain without being split further."""


class Rank(NamedTuple):
    """Sorts portals that claim the same address."""

    created: str
    id: ServicePortName


class Dispatch(Protocol):
    """The way from an address to a service's chain."""

    def update(self, rank: Rank, old: tuple[Portal, ...], new: tuple[Portal, ...]) -> None:
        """Replace the portals of one service port."""

    def set_tail(self, rules: tuple[str, ...]) -> None:
        """Set the rules that end KUBE-SERVICES: the jumps to the node ports."""

    def take_changes(self) -> dict[str, str | None]:
        """Return the chains whose text is new, and None for chains that are gone; then forget them."""


class FlatDispatch:
    """One chain, one rule a portal."""

    def __init__(self) -> None:
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
        """Set the rules that end KUBE-SERVICES."""
        self._changed = self._changed or rules != self._tail
        self._tail = rules

    def take_changes(self) -> dict[str, str | None]:
        """Return the new text of KUBE-SERVICES if it changed."""
        if not self._changed:
            return {}
        self._changed = False
        rules = [portal.rule for rank in sorted(self._portals) for portal in self._portals[rank]]
        return {SERVICES: chain_text(SERVICES, [*rules, *self._tail])}


class _Node:
    """One prefix: the portals below it while they are few, else a child for each longer prefix."""

    __slots__ = ("chain", "children", "count", "network", "portals")

    def __init__(self, chain: str, network: str) -> None:
        self.chain = chain
        self.network = network
        self.portals: dict[str, list[tuple[Rank, int, str]]] | None = {}
        self.children: dict[str, _Node] = {}
        self.count = 0


class TreeDispatch:
    """A tree of address prefixes. See the module's docstring."""

    def __init__(self, family: Family, *, leaf_size: int = LEAF_SIZE) -> None:
        self._family = family
        self._levels = LEVELS[family]
        self._leaf_size = leaf_size
        self._root = _Node(SERVICES, "")
        self._tail: tuple[str, ...] = ()
        self._changed: dict[str, _Node | None] = {SERVICES: self._root}

    def update(self, rank: Rank, old: tuple[Portal, ...], new: tuple[Portal, ...]) -> None:
        """Replace the portals of one service port."""
        if old == new:
            return
        for index, portal in enumerate(old):
            self._remove(portal.address, (rank, index, portal.rule))
        for index, portal in enumerate(new):
            self._insert(self._root, 0, portal.address, (rank, index, portal.rule))

    def set_tail(self, rules: tuple[str, ...]) -> None:
        """Set the rules that end KUBE-SERVICES."""
        if rules != self._tail:
            self._tail = rules
            self._changed[SERVICES] = self._root

    def take_changes(self) -> dict[str, str | None]:
        """Return the chains whose text is new, and None for chains that are gone."""
        changes = {chain: None if node is None else self._text(node) for chain, node in self._changed.items()}
        self._changed = {}
        return changes

    def chains(self) -> list[str]:
        """Return the names of all chains of the tree, KUBE-SERVICES first."""
        found, waiting = [], [self._root]
        while waiting:
            node = waiting.pop()
            found.append(node.chain)
            waiting += node.children.values()
        return found

    def _insert(self, node: _Node, level: int, address: str, entry: tuple[Rank, int, str]) -> None:
        while True:
            node.count += 1
            if node.portals is not None:
                entries = node.portals.setdefault(address, [])
                entries.append(entry)
                entries.sort()
                self._changed[node.chain] = node
                if node.count > self._leaf_size and level < len(self._levels) and len(node.portals) > 1:
                    self._split(node, level)
                return
            prefix = prefix_of(address, self._levels[level])
            child = node.children.get(prefix)
            if child is None:
                child = node.children[prefix] = self._make(prefix, level)
                self._changed[node.chain] = node
            node, level = child, level + 1

    def _split(self, node: _Node, level: int) -> None:
        portals, node.portals = node.portals, None
        assert portals is not None
        for address, entries in portals.items():
            prefix = prefix_of(address, self._levels[level])
            child = node.children.get(prefix)
            if child is None:
                child = node.children[prefix] = self._make(prefix, level)
            for entry in entries:
                self._insert(child, level + 1, address, entry)
        self._changed[node.chain] = node

    def _remove(self, address: str, entry: tuple[Rank, int, str]) -> None:
        path = [self._root]
        for prefix in self._levels:
            if path[-1].portals is not None:
                break
            path.append(path[-1].children[prefix_of(address, prefix)])
        leaf = path[-1]
        assert leaf.portals is not None
        entries = leaf.portals[address]
        entries.remove(entry)
        if not entries:
            del leaf.portals[address]
        self._changed[leaf.chain] = leaf
        for node in path:
            node.count -= 1
        for parent, node in reversed(list(pairwise(path))):
            if node.count == 0:
                del parent.children[node.network]
                self._changed[node.chain] = None
                self._changed[parent.chain] = parent
        # Half the size at which a chain is split: an address that comes and goes does not make it flap.
        for node in path:
            if node.portals is None and node.count <= max(1, self._leaf_size // 2):
                self._collapse(node)
                break

    def _collapse(self, node: _Node) -> None:
        portals: dict[str, list[tuple[Rank, int, str]]] = {}
        waiting = list(node.children.values())
        while waiting:
            child = waiting.pop()
            self._changed[child.chain] = None
            waiting += child.children.values()
            portals.update(child.portals or {})
        node.children, node.portals = {}, portals
        self._changed[node.chain] = node

    def _make(self, network: str, level: int) -> _Node:
        node = _Node(chain_name(network, self._levels[level]), network)
        self._changed[node.chain] = node
        return node

    def _text(self, node: _Node) -> str:
        if node.portals is not None:
            rules = [rule for address in sorted(node.portals) for _, _, rule in node.portals[address]]
        else:
            rules = [self._jump(node.children[network]) for network in sorted(node.children)]
        tail: Iterable[str] = self._tail if node is self._root else ()
        return chain_text(node.chain, [*rules, *tail])

    def _jump(self, child: _Node) -> str:
        length = int(child.chain.rpartition("-")[2])
        return f"-d {child.network}/{length} -j {child.chain}"


def chain_name(network: str, length: int) -> str:
    """Return the chain of a prefix: at most 28 characters, ending in the prefix length."""
    if ":" in network:
        return f"{DISPATCH_PREFIX}{short_hash(network)[:12]}-{length}"
    return f"{DISPATCH_PREFIX}{_hex(network)}-{length}"


def _hex(network: str) -> str:
    return "".join(f"{int(octet):02X}" for octet in network.split("."))
