"""What stands in the kernel, read at one time, with the counters of its rules: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pykubeproxy.rules.ruleset import Ruleset


class Counted(NamedTuple):
    """A rule (text behind ``-A CHAIN ``) and what it has counted."""

    rule: str
    packets: int
    bytes: int


@dataclass(slots=True)
class Standing:
    """What stands, read at one time."""

    ruleset: Ruleset
    counted: dict[tuple[str, str], list[Counted]] = field(default_factory=dict)
    """(table, chain) -> its rules with counters; nat only, and not where iptables cannot print it."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Tables that iptables-save cannot print, and its words."""
    memory: dict[str, dict[str, float]] = field(default_factory=dict)
    """What ``-m recent`` remembers: list -> address -> seconds ago."""
    recent_limit: int | None = None
    """How many addresses such a list holds."""

    def packets(self, table: str, chain: str, rule: str) -> int | None:
        """Return how many packets a rule has matched; in nat these are new connections. None: no such rule."""
        return next((one.packets for one in self.counted.get((table, chain), ()) if one.rule == rule), None)
