"""What somebody else may have changed: whole tables, or single chains.

The word between those who notice writers (nftwatch, legacywatch) and the engine, which reads the suspected parts again
and nothing else. A suspicion may be wrong; it must never be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pykubeproxy.rules.base import ensured_rules
from pykubeproxy.rules.names import FILTER, FIREWALL, TABLES, is_ours
from pykubeproxy.rules.settings import RuleSettings

Chain = tuple[str, str]
"""(table, chain name)"""

MOST_CHAINS = 24
"""Up to this many suspected chains of one table are read one by one (3 ms each); beyond, the whole table is."""

JUMP_PLACES: frozenset[Chain] = frozenset((rule.table, rule.chain) for rule in ensured_rules(RuleSettings("IPv4")))
"""The chains that are not ours but hold rules of ours."""


@dataclass(frozen=True, slots=True)
class Suspects:
    """Parts of one family's rules that are to be read again; falsy when there are none."""

    tables: frozenset[str] = frozenset()
    chains: frozenset[Chain] = frozenset()
    """Chains of tables that are not in ``tables``."""

    def __bool__(self) -> bool:
        return bool(self.tables or self.chains)

    def __or__(self, other: Suspects) -> Suspects:
        return suspects(self.tables | other.tables, self.chains | other.chains)

    def covers(self, table: str, chain: str) -> bool:
        """Tell whether a chain is among them."""
        return table in self.tables or (table, chain) in self.chains


EVERYTHING = Suspects(frozenset(TABLES))
NOTHING = Suspects()

Look = Callable[[], Suspects]
"""Returns what others may have changed since the last look. What it names is the caller's to read from then on."""


def suspects(tables: Iterable[str] = (), chains: Iterable[Chain] = ()) -> Suspects:
    """Make Suspects; a table with too many suspected chains is suspected as a whole."""
    whole = set(tables)
    rest = {chain for chain in chains if chain[0] not in whole}
    for table in TABLES:
        if sum(where == table for where, _ in rest) > MOST_CHAINS:
            whole.add(table)
    return Suspects(frozenset(whole), frozenset(chain for chain in rest if chain[0] not in whole))


def concerns_us(table: str, chain: str) -> bool:
    """Tell whether a change of this chain can be a change of our rules."""
    return (table, chain) in JUMP_PLACES or is_ours(table, chain) or (table, chain) == (FILTER, FIREWALL)
