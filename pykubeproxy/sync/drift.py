"""Drift: what differs from what we left, and how often to put it back. Pure but for the clock that is passed in.

A chain that another program changes again whenever we heal it must not become a war: after some heals in a row its next
ones are spaced, each time twice as far, up to the sync period. It is told once. All other chains are healed as ever.
What is lost altogether (a flushed chain, a missing jump) takes traffic with it, so it waits for a few seconds at most,
longer only where putting it back takes long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from pykubeproxy.netfilter.read import UNKNOWN
from pykubeproxy.netfilter.suspects import Suspects
from pykubeproxy.rules.names import TABLES
from pykubeproxy.rules.ruleset import Ensured, Ruleset, same_chain

HEALS_AT_ONCE = 5
"""Heals of the same place in a row that are not held back."""
LOST_CEILING = 3.0
"""Seconds that what is lost waits at most to be put back ..."""
LOST_SHARE = 5.0
"""... or this many times the time that putting it back took last, if that is longer."""
CALM = 10.0
"""Seconds without a change after which a place starts anew (or twice its delay, if that is longer)."""


class Place(NamedTuple):
    """Something that can drift: a chain of ours, or with ``rule`` a rule of ours in a chain that is not."""

    table: str
    chain: str
    rule: str = ""


def merged(old: Ruleset, fresh: Ruleset, read: Suspects, suspected: Suspects) -> Ruleset:
    """Return what stands, given what was known and a fresh reading of a part of it.

    A chain that could not be read is what it was, unless it was suspected.
    """
    whole = Ruleset()
    for table in TABLES:
        had, have = old.chains[table], fresh.chains[table]
        if table in read.tables:
            for chain in [c for c, text in have.items() if text == UNKNOWN and not suspected.covers(table, c)]:
                have[chain] = had.get(chain, UNKNOWN)
            whole.chains[table] = have
        else:
            again = {chain for where, chain in read.chains if where == table}
            whole.chains[table] = {chain: text for chain, text in had.items() if chain not in again} if again else had
            whole.chains[table] |= {chain: have[chain] for chain in again if chain in have}
    whole.ensured = tuple(r for r in old.ensured if not read.covers(r.table, r.chain)) + fresh.ensured
    whole.shared_chains = tuple(c for c in old.shared_chains if not read.covers(*c)) + fresh.shared_chains
    return whole


def moved(old: Ruleset, now: Ruleset, wanted: Ruleset, read: Suspects) -> list[Place]:
    """Return the chains that were read and are neither what they were nor what they should be."""
    found = []
    for table in TABLES:
        have, had, want = now.chains[table], old.chains[table], wanted.chains[table]
        if table in read.tables:
            names: Iterable[str] = {**have, **had}
        else:
            names = [chain for where, chain in read.chains if where == table]
        found += [
            Place(table, chain)
            for chain in names
            if have.get(chain) is not had.get(chain)
            and not _same(chain, have.get(chain), had.get(chain))
            and not _same(chain, have.get(chain), want.get(chain))
        ]
    return found


def missing(now: Ruleset, wanted: Ruleset, read: Suspects) -> list[Place]:
    """Return the rules of ours that do not stand in chains that are not ours and were read."""
    there = {(rule.table, rule.chain, rule.rule) for rule in now.ensured}
    return [
        Place(rule.table, rule.chain, rule.rule)
        for rule in wanted.ensured
        if read.covers(rule.table, rule.chain) and (rule.table, rule.chain, rule.rule) not in there
    ]


def is_lost(place: Place, now: Ruleset, wanted: Ruleset) -> bool:
    """Tell whether a place that should hold something holds nothing."""
    table, chain, rule = place
    return bool(rule) or bool(not now.chains[table].get(chain) and wanted.chains[table].get(chain))


def is_as_wanted(place: Place, now: Ruleset, wanted: Ruleset) -> bool:
    """Tell whether a place stands as it should."""
    table, chain, rule = place
    if rule:
        return any((r.table, r.chain, r.rule) == place for r in now.ensured)
    return _same(chain, now.chains[table].get(chain), wanted.chains[table].get(chain))


def _same(chain: str, one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return one is other
    return same_chain(chain, one, other)


@dataclass(slots=True)
class _Record:
    heals: int = 0
    healed_at: float = 0.0
    delay: float = 0.0
    is_told: bool = False


@dataclass(slots=True)
class Damper:
    """Decides what is healed now. Times are monotonic seconds; ``ceiling`` is the longest delay."""

    ceiling: float = 30.0
    heal_seconds: float = 0.0
    """What putting things back took last."""
    _records: dict[Place, _Record] = field(default_factory=dict)
    _held: dict[Place, float] = field(default_factory=dict)
    """Place -> when it may be healed."""

    def judge(
        self, places: Iterable[Place], now: float, *, lost: Callable[[Place], bool] = lambda _: False
    ) -> tuple[list[Place], list[Place]]:
        """Sort drifted places into those to heal now and those of which it must be told that they are fought over.

        ``lost`` tells whether a place that should hold something holds nothing.
        """
        heal, tell = [], []
        for place in places:
            if place in self._held:
                continue
            record = self._records.setdefault(place, _Record())
            if self._is_calm(record, now):
                record.heals, record.delay, record.is_told = 0, 0.0, False
            if record.heals >= HEALS_AT_ONCE:
                ceiling = self.ceiling
                if lost(place):
                    ceiling = min(ceiling, max(LOST_CEILING, LOST_SHARE * self.heal_seconds))
                record.delay = min(ceiling, max(1.0, 2 * record.delay))
                if not record.is_told:
                    record.is_told = True
                    tell.append(place)
                if now < record.healed_at + record.delay:
                    self._held[place] = record.healed_at + record.delay
                    continue
            self._heal(place, now)
            heal.append(place)
        self._forget(now)
        return heal, tell

    def release(self, now: float) -> list[Place]:
        """Return the places whose delay is over: they are to be healed now."""
        ready = [place for place, due in self._held.items() if due <= now]
        for place in ready:
            self._heal(place, now)
        return ready

    def drop(self, places: Iterable[Place]) -> None:
        """Note that these places are as they should be, or are written for another reason."""
        for place in places:
            self._held.pop(place, None)

    def holds(self, rule: Ensured) -> bool:
        """Tell whether a rule in a chain that is not ours is held back."""
        return Place(rule.table, rule.chain, rule.rule) in self._held

    @property
    def held(self) -> frozenset[Place]:
        """What is held back now."""
        return frozenset(self._held)

    def contested(self, now: float) -> list[Place]:
        """Return what is fought over; may be asked from any thread."""
        records = list(self._records.items())
        return [place for place, record in records if record.is_told and not self._is_calm(record, now)]

    def due(self) -> float | None:
        """Return when the next delay is over."""
        return min(self._held.values(), default=None)

    def _heal(self, place: Place, now: float) -> None:
        record = self._records.setdefault(place, _Record())
        record.heals += 1
        record.healed_at = now
        self._held.pop(place, None)

    def _forget(self, now: float) -> None:
        for place in [p for p, r in self._records.items() if p not in self._held and self._is_calm(r, now)]:
            del self._records[place]

    @staticmethod
    def _is_calm(record: _Record, now: float) -> bool:
        return now - record.healed_at > max(CALM, 2 * record.delay)
