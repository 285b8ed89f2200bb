"""Glances through python-iptables (libiptc), for the legacy backend alone.

What it is good for: chain names, and which targets the rules of a chain lead to and in which order, in-process, without
a fork (0.3 ms). The drift watch takes such a glance at filter and mangle after each writer, before anything dearer.

What it must never do here, each measured: read match or target *parameters* (points the process's stdout at a pipe),
write or ``refresh()`` with autocommit on (commits), touch the nat table in the daemon (57 MB never given back at
145,000 entries), or run on an nft host (opening a table creates it). So the library is imported at the first glance
only. Its low-level calls are used, not its Rule objects, which load the extension of every match. libiptc is not
thread-safe and takes no lock: one lock of ours guards all, and a reader needs none of the kernel's.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pykubeproxy.errors import EnvironmentProblem, NetfilterError
from pykubeproxy.model.addresses import Family
from pykubeproxy.netfilter.contents import tables_in_use
from pykubeproxy.rules.base import ensured_rules
from pykubeproxy.rules.names import FILTER, FIREWALL, MANGLE, STATIC_CHAINS
from pykubeproxy.rules.settings import RuleSettings

_LOCK = threading.Lock()
SAFE_TABLES = (FILTER, MANGLE)


@dataclass(frozen=True, slots=True)
class Glance:
    """What was seen of one table."""

    chains: frozenset[str]
    """The names of all chains, builtin ones too."""
    targets: dict[str, tuple[str, ...]]
    """Chain -> the names of its rules' targets, in order ("" for a rule without one)."""


def glance(family: Family, table: str, chains: Iterable[str] = ()) -> Glance:
    """Look at a table's chain names and at the targets of some chains; one that does not exist has none.

    Raises:
        ValueError: the table may not be read this way.
        EnvironmentProblem: python-iptables does not load.
        NetfilterError: the kernel refused, or there is no such table (it is not created).

    """
    if table not in SAFE_TABLES:
        raise ValueError(f"table {table} is not read through libiptc in this process")
    if table not in tables_in_use(family):
        raise NetfilterError(f"there is no legacy table {table} of {family}")
    module = _module()
    with _LOCK:
        opened = None
        try:
            opened = (module.Table6 if family == "IPv6" else module.Table)(table, autocommit=False)
            opened.refresh()
            names = frozenset(chain.name for chain in opened.chains)
            return Glance(names, {chain: _targets(opened, chain) for chain in chains if chain in names})
        except module.IPTCError as exc:
            raise NetfilterError(f"cannot look at table {table} of {family}: {exc}") from exc
        finally:
            if opened is not None:
                opened.close()


def missing(family: Family, settings: RuleSettings | None = None) -> list[str]:
    """Return what of ours is missing in filter and mangle at a glance: chains, and jumps as ``BUILTIN -> CHAIN``.

    An empty list does not say that all is well: rules of ours may have been edited, and nat was not looked at.

    Raises:
        EnvironmentProblem, NetfilterError: as glance.

    """
    jumps = [rule for rule in ensured_rules(settings or RuleSettings(family)) if rule.at_top]
    found: list[str] = []
    for table in SAFE_TABLES:
        here = [(rule.chain, rule.rule.rpartition(" ")[2]) for rule in jumps if rule.table == table]
        seen = glance(family, table, {chain for chain, _ in here})
        wanted = (*STATIC_CHAINS[table], FIREWALL) if table == FILTER else STATIC_CHAINS[table]
        found += [f"{table} {chain}" for chain in wanted if chain not in seen.chains]
        found += [f"{table} {chain} -> {target}" for chain, target in here if target not in seen.targets.get(chain, ())]
    return found


def _targets(opened: Any, chain: str) -> tuple[str, ...]:
    found = []
    rule = opened.first_rule(chain)
    while rule:
        target = opened.get_target(rule)
        found.append(target.decode("utf-8", "replace") if target else "")
        rule = opened.next_rule(rule)
    return tuple(found)


def _module() -> Any:
    try:
        with warnings.catch_warnings():
            # Its source has escape sequences that newer Pythons warn of when they compile it.
            warnings.simplefilter("ignore")
            import iptc  # noqa: PLC0415 - loads libiptc; must not happen on an nft host
    except (ImportError, OSError) as exc:
        raise EnvironmentProblem(f"python-iptables does not load: {exc}") from exc
    return iptc
