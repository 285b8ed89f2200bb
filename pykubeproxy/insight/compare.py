"""Two rulesets as a unified diff by chain, each chain with the Service that it belongs to. Pure.

What is no difference to the engine (``rules.ruleset.same_chain``) is none here: in the chains that dispatch, lines are
shown in one order on both sides.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from pykubeproxy.rules.names import DISPATCH_PREFIXES, FILTER, FORWARD, SERVICE_PREFIXES, TABLES, UNORDERED, is_ours
from pykubeproxy.rules.naming import service_of
from pykubeproxy.rules.ruleset import Ruleset, same_chain
from pykubeproxy.sync.derive import Facts


def shown_facts(facts: Facts, standing: Ruleset) -> Facts:
    """Return the facts with what standing rules show of the kernel's matches; the daemon would try them out."""
    forward = standing.chains[FILTER].get(FORWARD, "")
    if not forward:
        return facts
    texts = [text for chains in standing.chains.values() for text in chains.values()]
    return replace(
        facts,
        nfacct=any("-m nfacct " in text for text in texts),
        comments="-m comment " in forward,
        missing=facts.missing if "-m conntrack " in forward else facts.missing | {"conntrack"},
    )


class ChainDiff(NamedTuple):
    """One chain that differs."""

    table: str
    chain: str
    service: str
    """``namespace/name[:port]`` that the chain belongs to; "" for chains that all share."""
    lines: tuple[str, ...]
    """A unified diff: two headers, then hunks."""

    @property
    def services(self) -> frozenset[str]:
        """The service ports that the change is about: the owner, or those that changed lines of a shared chain name."""
        if self.service:
            return frozenset((self.service,))
        changed = (line for line in self.lines[2:] if line[:1] in "+-")
        return frozenset(name for line in changed if (name := service_of(line)))


def compare(
    old: Ruleset, new: Ruleset, *, names: tuple[str, str], owner: Callable[[str, str], str] = lambda _t, _c: ""
) -> Iterator[ChainDiff]:
    """Yield the chains that differ, table by table.

    ``names`` head the two sides; ``owner`` names the service of a chain by (table, chain), else comments tell.
    """
    for table in TABLES:
        have, want = old.chains[table], new.chains[table]
        services = {
            chain: owner(table, chain) or _owner(chain, have.get(chain), want.get(chain)) for chain in {**have, **want}
        }
        for chain in sorted(services, key=lambda chain: (services[chain], chain)):
            before, after = have.get(chain), want.get(chain)
            if before is None or after is None or not same_chain(chain, before, after):
                title = f"{table} {chain}" + (f" ({services[chain]})" if services[chain] else "")
                lines = tuple(_unified(title, chain, (before, after), names))
                yield ChainDiff(table, chain, services[chain], lines)
    yield from _jumps(old, new, names)


def _owner(chain: str, before: str | None, after: str | None) -> str:
    if not chain.startswith(SERVICE_PREFIXES) or chain.startswith(DISPATCH_PREFIXES):
        return ""
    return service_of(after or before or "")


def _unified(title: str, chain: str, texts: tuple[str | None, str | None], names: tuple[str, str]) -> Iterator[str]:
    before, after = texts
    one, other = _lines(before), _lines(after)
    if chain in UNORDERED:
        one = _aligned(one, other)
    yield f"--- {names[0]}: {title}" if before is not None else f"--- {names[0]}: nothing"
    yield f"+++ {names[1]}: {title}" if after is not None else f"+++ {names[1]}: nothing"
    if not one and not other:
        yield f"@@ {title} @@"
        yield "-(an empty chain)" if after is None else "+(an empty chain)"
        return
    yield from list(difflib.unified_diff(one, other, lineterm="", n=2))[2:]


def _lines(text: str | None) -> list[str]:
    return text.splitlines() if text else []


def _aligned(one: list[str], other: list[str]) -> list[str]:
    """Return the lines of ``one``, those that are in ``other`` too in its order: order alone is no difference."""
    common = [line for line in other if line in set(one)]
    left = list(one)
    for line in common:
        left.remove(line)
    # What only the old side has stands where it stood, as far as that can be told: before the tail.
    tail = [line for line in common if line.endswith("-j KUBE-NODEPORTS")]
    return [*(line for line in common if line not in tail), *left, *tail]


def _jumps(old: Ruleset, new: Ruleset, names: tuple[str, str]) -> Iterator[ChainDiff]:
    """Compare the rules that stand in chains of others: jumps, and the guard in KUBE-FIREWALL."""
    wanted = {(one.table, one.chain, one.rule) for one in new.ensured}
    # Of what stands in chains of others only the jumps to our chains are ours to speak of.
    have = {
        (one.table, one.chain, one.rule)
        for one in old.ensured
        if (one.table, one.chain, one.rule) in wanted or is_ours(one.table, one.rule.rpartition("-j ")[2])
    }
    ours = {(table, chain) for table, chain, _ in wanted | have}
    for table, chain in sorted(ours):
        gone = sorted(rule for t, c, rule in have - wanted if (t, c) == (table, chain))
        came = sorted(rule for t, c, rule in wanted - have if (t, c) == (table, chain))
        if gone or came:
            head = (f"--- {names[0]}: {table} {chain}", f"+++ {names[1]}: {table} {chain}", "@@ jumps @@")
            lines = [f"--A {chain} {rule}" for rule in gone] + [f"+-A {chain} {rule}" for rule in came]
            yield ChainDiff(table, chain, "", (*head, *lines))
