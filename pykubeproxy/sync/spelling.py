"""Rules that the kernel prints otherwise than they were written: remembered as equal, told once.

It exists so that no sync fights the kernel over spelling. It must not read or write: the engine reads back what it has
written over something that differed, and asks here what that means.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from pykubeproxy.model.addresses import Family
from pykubeproxy.netfilter.read import UNKNOWN
from pykubeproxy.rules.names import TABLES
from pykubeproxy.rules.ruleset import Ensured, Ruleset, same_chain
from pykubeproxy.serving.metrics import Metrics
from pykubeproxy.sync.desired import Chain

log = structlog.get_logger()


class Spelling:
    """What one family's kernel prints otherwise."""

    def __init__(self, family: Family, metrics: Metrics) -> None:
        self._family = family
        self._metrics = metrics
        self._unequal: dict[Chain, tuple[str, str]] = {}
        """The text that the kernel prints, and the one that was written."""
        self._alias: dict[Ensured, str] = {}

    def recognise(self, standing: Ruleset, wanted: Ruleset) -> None:
        """Put our words in the place of the kernel's where they are known to be equal, sharing equal strings."""
        for table in TABLES:
            have, want = standing.chains[table], wanted.chains[table]
            for chain, text in have.items():
                mine = want.get(chain)
                if mine is not None and (text == mine or self._unequal.get((table, chain)) == (text, mine)):
                    have[chain] = mine
        if self._alias:
            back = {(rule.table, rule.chain, text): rule.rule for rule, text in self._alias.items()}
            standing.ensured = tuple(
                rule._replace(rule=back.get((rule.table, rule.chain, rule.rule), rule.rule))
                for rule in standing.ensured
            )

    def learn(self, fresh: Ruleset, rewritten: Iterable[tuple[str, str, str]], inserted: Iterable[Ensured]) -> None:
        """Compare what was written (table, chain, text; and rules in chains that are not ours) with what stands now."""
        for table, chain, want in rewritten:
            text = fresh.chains[table].get(chain)
            if text is None or text == UNKNOWN or same_chain(chain, text, want):
                continue
            self._unequal[table, chain] = (text, want)
            self._metrics.unequal_rules_total.labels(ip_family=self._family).inc()
            ours, theirs = _first_difference(want, text)
            log.warning("rule printed otherwise", family=self._family, chain=chain, ours=ours, kernel=theirs)
        for rule in inserted:
            if _stands(rule, fresh):
                continue
            target = rule.rule[rule.rule.rindex("-j ") :]
            there = [
                r.rule
                for r in fresh.ensured
                if (r.table, r.chain) == (rule.table, rule.chain) and r.rule.endswith(target)
            ]
            if there:
                self._alias[rule] = there[0 if rule.at_top else -1]
                log.warning(
                    "rule printed otherwise",
                    family=self._family,
                    chain=rule.chain,
                    ours=rule.rule,
                    kernel=self._alias[rule],
                )


def _stands(rule: Ensured, ruleset: Ruleset) -> bool:
    return any((r.table, r.chain, r.rule) == (rule.table, rule.chain, rule.rule) for r in ruleset.ensured)


def _first_difference(ours: str, theirs: str) -> tuple[str, str]:
    one, other = ours.splitlines(), theirs.splitlines()
    for index in range(max(len(one), len(other))):
        left = one[index] if index < len(one) else ""
        right = other[index] if index < len(other) else ""
        if left != right:
            return left, right
    return "", ""
