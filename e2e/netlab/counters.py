"""Read ``iptables-save -c`` and tell which way packets went from the counters before and after.

Pure. Counters are compared by the text of a rule within its chain, so rules that came or went in between do no harm. In
the nat table only the first packet of a connection is counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

_RULE = re.compile(r"\[(\d+):(\d+)\] -A (\S+) ?(.*)")
_CHAIN = re.compile(r":(\S+) (\S+) \[(\d+):(\d+)\]")
_TARGET = re.compile(r"(?:^| )-[jg] (\S+)(.*)$")
_INCOMPATIBLE = re.compile(r"# Table `(\S+)' is incompatible")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule with its counters. ``text`` is what follows ``-A CHAIN``."""

    text: str
    packets: int
    octets: int

    @property
    def target(self) -> str:
        """Return the target or chain that the rule leads to, "" for a rule that only counts."""
        found = _TARGET.search(self.text)
        return found[1] if found else ""

    @property
    def destination(self) -> str:
        """Return the address of a DNAT rule, "" for others."""
        return self.text.rpartition("--to-destination ")[2] if self.target == "DNAT" else ""


@dataclass(slots=True)
class Snapshot:
    """All tables of one family and backend at one moment."""

    tables: dict[str, dict[str, list[Rule]]] = field(default_factory=dict)
    policies: dict[tuple[str, str], Rule] = field(default_factory=dict)
    """Of builtin chains: the policy as text, and its counters."""
    unreadable: list[str] = field(default_factory=list)
    """Tables that iptables-nft-save refuses to print because of native rules in them."""
    text: str = ""

    def chain(self, table: str, name: str) -> list[Rule]:
        """Return the rules of a chain; a chain that does not exist has none."""
        return self.tables.get(table, {}).get(name, [])

    def has(self, table: str, chain: str) -> bool:
        """Tell whether a chain exists."""
        return chain in self.tables.get(table, {})

    def rules(self) -> Iterator[tuple[str, str, Rule]]:
        """Give (table, chain, rule) of everything."""
        for table, chains in self.tables.items():
            for chain, rules in chains.items():
                for rule in rules:
                    yield table, chain, rule

    def find(self, *parts: str, table: str = "nat") -> list[tuple[str, Rule]]:
        """Return (chain, rule) of the rules whose text holds all the parts."""
        return [(c, r) for t, c, r in self.rules() if t == table and all(part in r.text for part in parts)]

    def canonical(self) -> list[str]:
        """Return chains and rules as text without counters: equal lists mean equal rules."""
        lines = [f"{table} {chain}" for table, chains in self.tables.items() for chain in chains]
        lines += [f"{table} {chain} policy {rule.text}" for (table, chain), rule in self.policies.items()]
        grouped = [(table, chain, rules) for table, chains in self.tables.items() for chain, rules in chains.items()]
        for table, chain, rules in sorted(grouped, key=lambda entry: entry[:2]):
            lines += [f"{table} {chain} {number:05} {rule.text}" for number, rule in enumerate(rules)]
        return sorted(lines)

    def since(self, before: Snapshot) -> Way:
        """Tell which way the packets went between ``before`` and this."""
        old: Counter[tuple[str, str, str]] = Counter()
        for table, chain, rule in before.rules():
            old[table, chain, rule.text] += rule.packets
        steps: list[Step] = []
        for table, chain, rule in self.rules():
            # The same text twice in a chain: the first of them takes the whole of what was known.
            known = min(old[table, chain, rule.text], rule.packets)
            old[table, chain, rule.text] -= known
            if rule.packets > known:
                steps.append(Step(table, chain, rule, rule.packets - known))
        return Way(steps, frozenset((table, chain) for table, chains in self.tables.items() for chain in chains))


@dataclass(frozen=True, slots=True)
class Step:
    """A rule that matched, and how many packets."""

    table: str
    chain: str
    rule: Rule
    packets: int


@dataclass(frozen=True, slots=True)
class Way:
    """The rules that matched in some time, in the order of the save."""

    steps: list[Step]
    known: frozenset[tuple[str, str]] = frozenset()
    """(table, name) of every chain there was: tells a jump from a target such as DNAT."""

    def through(self, chain: str, table: str = "nat") -> int:
        """Count the packets that were led into a chain by a rule."""
        return sum(step.packets for step in self.steps if step.table == table and step.rule.target == chain)

    def matched(self, *parts: str, table: str = "nat") -> int:
        """Count the packets that matched rules whose text holds all the parts."""
        return sum(s.packets for s in self.steps if s.table == table and all(part in s.rule.text for part in parts))

    def path(self, hook: str, table: str = "nat") -> list[Step]:
        """Walk from a builtin chain through the jumps that were taken, each chain once; the steps in walking order."""
        by_chain: dict[str, list[Step]] = {}
        for step in self.steps:
            if step.table == table:
                by_chain.setdefault(step.chain, []).append(step)
        walked: list[Step] = []
        entered = {hook}

        def walk(chain: str) -> None:
            for step in by_chain.get(chain, []):
                walked.append(step)
                if step.rule.target in by_chain and step.rule.target not in entered:
                    entered.add(step.rule.target)
                    walk(step.rule.target)

        walk(hook)
        return walked

    def chains(self, hook: str, table: str = "nat") -> list[str]:
        """Name the chains of the walk from ``hook``, side ways such as KUBE-MARK-MASQ included, in walking order."""
        targets = [step.rule.target for step in self.path(hook, table)]
        return list(dict.fromkeys([hook, *(name for name in targets if (table, name) in self.known)]))

    def destinations(self) -> Counter[str]:
        """Count the connections by the address that they were led to."""
        found: Counter[str] = Counter()
        for step in self.steps:
            if step.rule.destination:
                found[step.rule.destination] += step.packets
        return found


def parse(text: str) -> Snapshot:
    """Read the output of ``iptables-save -c``."""
    snapshot = Snapshot(text=text)
    table = ""
    for line in text.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
            snapshot.tables[table] = {}
        elif found := _CHAIN.match(line):
            snapshot.tables[table][found[1]] = []
            if found[2] != "-":
                snapshot.policies[table, found[1]] = Rule(found[2], int(found[3]), int(found[4]))
        elif found := _RULE.match(line):
            snapshot.tables[table][found[3]].append(Rule(found[4], int(found[1]), int(found[2])))
        elif found := _INCOMPATIBLE.match(line):
            snapshot.unreadable.append(found[1])
    return snapshot
