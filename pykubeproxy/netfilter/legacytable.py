"""Look into a legacy table itself, where iptables-legacy cannot print it: it knows no library for some foreign match.

Only names of chains and where a chain's rules jump to are told, from the kernel's own entries; nothing is written. The
counterpart of native.py. It must not be asked of a table that is not in use, because asking creates it.

Source: include/uapi/linux/netfilter/x_tables.h (struct xt_entry_target, XT_ERROR_TARGET) and contents.py's.
"""

from __future__ import annotations

import struct

from pykubeproxy.model.addresses import Family
from pykubeproxy.netfilter.contents import Entries, entries
from pykubeproxy.rules.base import GUARD_COMMENT, known_by
from pykubeproxy.rules.names import HOOKS

_TARGET_HEAD = 32
"""struct xt_entry_target: size, name, revision; what the target takes follows."""
_NAME = slice(2, 31)
_verdict = struct.Struct("=i").unpack_from
_DROP = -1
"""-NF_DROP - 1"""


def chain_names(family: Family, table: str) -> list[str]:
    """Return the names of all chains of a table, builtin ones too.

    Raises:
        NetfilterError: the kernel refused.

    """
    return list(_heads(entries(family, table)).values())


def jumps(family: Family, table: str, chain: str) -> str:
    """Return the text of our rules in a chain that iptables cannot print.

    They are known as in native.py, and told once each.

    Raises:
        NetfilterError: the kernel refused.

    """
    wanted = known_by(family, table, chain)
    found = entries(family, table)
    heads = _heads(found)
    inside = ""
    texts = []
    for start, target, end in found.walk():
        inside = heads.get(start, inside)
        if inside != chain or found.data[target : target + _TARGET_HEAD][_NAME].strip(b"\0"):
            continue
        (verdict,) = _verdict(found.data, target + _TARGET_HEAD)
        where = heads.get(verdict, "")
        if verdict == _DROP and found.data.find(GUARD_COMMENT.encode(), start, end) >= 0:
            where = "DROP"
        if where in wanted:
            texts.append(wanted.pop(where))
    return "".join(texts)


def _heads(found: Entries) -> dict[int, str]:
    """Return the offset of each chain's first entry, and the chain's name."""
    heads = {offset: HOOKS[hook] for hook, offset in found.hooks.items()}
    for _, target, end in found.walk():
        name = bytes(found.data[target : target + _TARGET_HEAD][_NAME]).rstrip(b"\0")
        if name == b"ERROR" and end < len(found.data):  # the last one ends the table
            text = bytes(found.data[target + _TARGET_HEAD : end]).split(b"\0")[0]
            heads[end] = text.decode("utf-8", "surrogateescape")
    return heads
