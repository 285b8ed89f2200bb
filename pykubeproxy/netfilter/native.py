"""Look into nf_tables itself, for tables that iptables-nft cannot print because native rules stand in them.

Only names of chains and the jumps of a chain are read, through netlink; nothing is written. Used on the nft backend
alone, and only when iptables-nft-save said "incompatible".
"""

from __future__ import annotations

from typing import Any

from pykubeproxy.model.addresses import Family
from pykubeproxy.rules.base import ensured_rules
from pykubeproxy.rules.settings import RuleSettings

_NFPROTO = {"IPv4": 2, "IPv6": 10}


def chain_names(family: Family, table: str) -> list[str]:
    """Return the names of all chains of a table."""
    with _socket(family) as nft:
        return [
            name
            for message in nft.get_chains()
            if message.get_attr("NFTA_CHAIN_TABLE") == table and message["nfgen_family"] == _NFPROTO[family]
            for name in [message.get_attr("NFTA_CHAIN_NAME")]
        ]


def jumps(family: Family, table: str, chain: str) -> str:
    """Return the text of our jumps in a builtin chain that iptables cannot print, judged by where they lead."""
    wanted = {
        rule.rule.rpartition(" ")[2]: f"-A {chain} {rule.rule}\n"
        for rule in ensured_rules(RuleSettings(family))
        if rule.table == table and rule.chain == chain
    }
    found = []
    with _socket(family) as nft:
        for message in nft.get_rules():
            if (
                message.get_attr("NFTA_RULE_TABLE") == table
                and message.get_attr("NFTA_RULE_CHAIN") == chain
                and message["nfgen_family"] == _NFPROTO[family]
            ):
                found += [wanted[target] for target in _targets(message) if target in wanted]
    return "".join(found)


def _targets(message: Any) -> list[str]:
    targets = []
    for expression in message.get_attr("NFTA_RULE_EXPRESSIONS") or ():
        data = expression.get_attr("NFTA_EXPR_DATA")
        inner = data.get_attr("NFTA_IMMEDIATE_DATA") if data is not None and hasattr(data, "get_attr") else None
        verdict = inner.get_attr("NFTA_DATA_VERDICT") if inner is not None else None
        target = verdict.get_attr("NFTA_VERDICT_CHAIN") if verdict is not None else None
        if target:
            targets.append(target)
    return targets


def _socket(family: Family) -> Any:
    from pyroute2.netlink.nfnetlink.nftsocket import NFTSocket  # noqa: PLC0415 - 0.2 s and some MB, rarely needed

    return NFTSocket(nfgen_family=_NFPROTO[family])
