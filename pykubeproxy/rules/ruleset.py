"""Ruleset: table -> chain -> text. The one form in which desired and standing rules are compared.

A chain's text is its rules exactly as iptables-save prints them, one ``-A CHAIN …`` line each, newline-terminated; ""
for an empty chain. That text is also valid restore input. Being one string a chain costs one comparison and no
per-rule objects.

Two kinds of rules are not chains of ours and are handled by value: jumps in builtin chains, and the guard rule in
KUBE-FIREWALL, which kubelet shares. They are Ensured rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pykubeproxy.rules.names import NODEPORTS, TABLES, UNORDERED


class Ensured(NamedTuple):
    """A rule that must stand once in a chain that is not ours. ``rule`` is the text behind ``-A CHAIN ``."""

    table: str
    chain: str
    rule: str
    at_top: bool = True
    """Inserted as the first rule where it is missing (a jump), or appended (the guard)."""


@dataclass(slots=True)
class Ruleset:
    """Chains of ours by table, and the ensured rules. Shapes: ``chains[table][chain] = text``."""

    chains: dict[str, dict[str, str]] = field(default_factory=lambda: {table: {} for table in TABLES})
    ensured: tuple[Ensured, ...] = ()
    """In the order in which they are inserted: the last one ends up on top."""
    shared_chains: tuple[tuple[str, str], ...] = ()
    """(table, chain) that must exist but are not ours to flush: KUBE-FIREWALL."""

    def rule_count(self, table: str) -> int:
        """Count the rules of one table, ensured ones left out."""
        return sum(text.count("\n") for text in self.chains[table].values())


def chain_text(chain: str, rules: list[str] | tuple[str, ...]) -> str:
    """Join rules (texts behind ``-A CHAIN ``) into a chain's text."""
    return "".join([f"-A {chain} {rule}\n" for rule in rules])


def same_chain(chain: str, one: str, other: str) -> bool:
    """Tell whether two texts of one chain mean the same.

    In the dispatching chains only this counts: the set of rules, that the jumps to the node ports come last, and the
    order among rules with the same address and port that lead to different places.
    """
    if one == other:
        return True
    if chain not in UNORDERED or len(one) != len(other):
        return False
    return _unordered_key(one) == _unordered_key(other)


def _unordered_key(text: str) -> tuple[list[tuple[str, list[str]]], list[str]]:
    groups: dict[str, list[str]] = {}
    tail: list[str] = []
    for line in text.splitlines():
        if line.endswith("-j " + NODEPORTS):
            tail.append(line)
            continue
        if tail:
            # A rule behind the node ports jump is never equal to a text that has it in front.
            groups.setdefault("behind", []).append(line)
        groups.setdefault(destination_of(line), []).append(line)
    for key, lines in groups.items():
        # Several ports of a service have one health check port: which of these rules accepts a packet is no matter.
        if key != "behind" and len({line.rpartition(" -j ")[2] for line in lines}) == 1:
            lines.sort()
    return sorted(groups.items()), sorted(tail)


def destination_of(line: str) -> str:
    """Return the address, protocol and port that a rule is for, as one text."""
    words = line.split()
    words.append("")  # somebody else's rule may end with one of the words: a comment is printed without quotes

    def behind(word: str) -> str:
        return words[words.index(word) + 1] if word in words else ""

    return f"{behind('-d')} {behind('-p')} {behind('--dport')}"
