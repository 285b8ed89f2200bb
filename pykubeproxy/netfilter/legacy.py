"""Reads through python-iptables (libiptc), for the legacy backend alone.

What it is good for: a quick look at chain names and at the presence and position of our jumps, in-process, without a
fork. What it must never do here, each measured: read match or target *parameters* (points the process's stdout at a
pipe), write or ``refresh()`` with autocommit on (commits), touch the nat table in the daemon (57 MB never given back
at 145,000 entries), or run on an nft host (opening a table creates it). libiptc is not thread-safe and takes no lock:
one lock of ours guards all.
"""

from __future__ import annotations

import threading
from typing import Any

from pykubeproxy.errors import EnvironmentProblem, NetfilterError
from pykubeproxy.model.addresses import Family
from pykubeproxy.rules.names import FILTER, MANGLE

_LOCK = threading.Lock()
SAFE_TABLES = (FILTER, MANGLE)


def jump_targets(family: Family, table: str, chain: str) -> list[str]:
    """Return the target names of a builtin chain's rules, in order ("" for a rule without a target).

    Raises:
        ValueError: the table may not be read this way.
        NetfilterError: the kernel refused.

    """
    with _LOCK:
        opened = _open(family, table)
        module = _module()
        try:
            return [rule.target.name if rule.target is not None else "" for rule in module.Chain(opened, chain).rules]
        except module.IPTCError as exc:
            raise NetfilterError(f"cannot read chain {chain} of {table}: {exc}") from exc
        finally:
            opened.close()


def chain_names(family: Family, table: str) -> list[str]:
    """Return the names of a table's chains, builtin ones too.

    Raises:
        ValueError: the table may not be read this way.
        NetfilterError: the kernel refused.

    """
    with _LOCK:
        opened = _open(family, table)
        module = _module()
        try:
            return [chain.name for chain in opened.chains]
        except module.IPTCError as exc:
            raise NetfilterError(f"cannot read table {table}: {exc}") from exc
        finally:
            opened.close()


def _module() -> Any:
    try:
        import iptc  # noqa: PLC0415 - loads libiptc; must not happen on an nft host
    except (ImportError, OSError) as exc:
        raise EnvironmentProblem(f"python-iptables does not load: {exc}") from exc
    return iptc


def _open(family: Family, table: str) -> Any:
    if table not in SAFE_TABLES:
        raise ValueError(f"table {table} is not read through libiptc in this process")
    module = _module()
    kind = module.Table6 if family == "IPv6" else module.Table
    try:
        opened = kind(table, autocommit=False)
        opened.refresh()
    except module.IPTCError as exc:
        raise NetfilterError(f"cannot open table {table}: {exc}") from exc
    return opened
