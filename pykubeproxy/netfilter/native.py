"""Look into nf_tables itself, for what iptables-nft does not print: tables with native rules, base chains of others.

Only names of chains, their hooks, and where a chain's rules jump to are read, through netlink. Nothing is written but
jumps taken away that iptables cannot. Used on the nft backend alone.

Format: include/uapi/linux/netfilter/nf_tables.h.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from pykubeproxy.errors import NetfilterError
from pykubeproxy.model.addresses import Family
from pykubeproxy.node.netlink import HEADER, NETLINK_NETFILTER, NetlinkSocket, attribute, attributes, nfgen
from pykubeproxy.rules.base import GUARD_COMMENT, known_by
from pykubeproxy.rules.names import HOOKS

_NFPROTO: dict[Family, int] = {"IPv4": 2, "IPv6": 10}
_SUBSYSTEM = 10 << 8
_NEWCHAIN, _GETCHAIN, _NEWRULE, _GETRULE = (_SUBSYSTEM | number for number in (3, 4, 6, 7))
_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_TYPE = 1, 3, 4, 7
_HOOK_NUMBER, _HOOK_PRIORITY = 1, 2
_RULE_CHAIN, _RULE_HANDLE, _RULE_EXPRESSIONS = 2, 3, 4
_DELRULE = 8
_EXPRESSION_DATA, _IMMEDIATE_DATA, _VERDICT, _VERDICT_CHAIN = 2, 2, 2, 2
_NFGEN_SIZE = 4


def chain_names(family: Family, table: str) -> list[str]:
    """Return the names of all chains of a table.

    Raises:
        NetfilterError: the kernel does not answer.

    """
    return [
        _text(buffer, *fields[_CHAIN_NAME])
        for buffer, fields in _dump(family, _GETCHAIN, _NEWCHAIN)
        if _CHAIN_NAME in fields and _text(buffer, *fields[_TABLE]) == table
    ]


class BaseChain(NamedTuple):
    """A chain that the kernel calls by itself."""

    name: str
    hook: str
    priority: int
    type: str
    """``filter``, ``nat`` or ``route``."""


def base_chains(family: Family, table: str) -> list[BaseChain]:
    """Return the base chains of a table, those of iptables and others, in no order.

    Raises:
        NetfilterError: the kernel does not answer.

    """
    found = []
    for buffer, fields in _dump(family, _GETCHAIN, _NEWCHAIN):
        if _CHAIN_HOOK not in fields or _text(buffer, *fields[_TABLE]) != table:
            continue
        hook = {
            kind: int.from_bytes(buffer[start:end], "big", signed=True)
            for kind, start, end in attributes(buffer, *fields[_CHAIN_HOOK])
            if kind in (_HOOK_NUMBER, _HOOK_PRIORITY)
        }
        number = hook[_HOOK_NUMBER]
        if number < len(HOOKS):
            name, kind = _text(buffer, *fields[_CHAIN_NAME]), _text(buffer, *fields[_CHAIN_TYPE])
            found.append(BaseChain(name, HOOKS[number], hook[_HOOK_PRIORITY], kind))
    return found


def existing(family: Family, table: str, chains: Sequence[str]) -> frozenset[str]:
    """Return those of some chains that exist.

    Raises:
        NetfilterError: the kernel does not answer.

    """
    head = nfgen(_NFPROTO[family]) + attribute(_TABLE, table.encode() + b"\0")
    bodies = [head + attribute(_CHAIN_NAME, chain.encode() + b"\0") for chain in chains]
    try:
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            codes = netlink.request(_GETCHAIN, 0, bodies)
    except OSError as error:
        raise NetfilterError(f"nf_tables does not answer: {error.strerror or error}") from error
    return frozenset(chain for chain, code in zip(chains, codes, strict=True) if code == 0)


def jumps(family: Family, table: str, chain: str) -> str:
    """Return the text of our rules in a chain that iptables cannot print.

    A jump is known by where it leads, the guard of KUBE-FIREWALL by its comment. Each is told once: of two rules that
    lead to the same place one may be somebody else's.

    Raises:
        NetfilterError: the kernel does not answer.

    """
    wanted = known_by(family, table, chain)
    found = []
    for _, targets in _rules(family, table, chain):
        found += [wanted.pop(target) for target in targets if target in wanted]
    return "".join(found)


def remove_jumps(family: Family, table: str, chain: str, targets: Collection[str]) -> None:
    """Take away the rules of a chain that lead to one of ``targets``, by handle; iptables would have to print them.

    Raises:
        NetfilterError: the kernel does not answer, or refuses.

    """
    head = nfgen(_NFPROTO[family]) + attribute(_TABLE, table.encode() + b"\0")
    head += attribute(_RULE_CHAIN, chain.encode() + b"\0")
    going = [handle for handle, found in _rules(family, table, chain) if not found.isdisjoint(targets)]
    for handle in going:
        try:
            with NetlinkSocket(NETLINK_NETFILTER) as netlink:
                code = netlink.change(_SUBSYSTEM >> 8, _DELRULE, head + attribute(_RULE_HANDLE, handle))
        except OSError as error:
            code = error.errno or errno.EIO
        if code:
            raise NetfilterError(f"a jump in {chain} of {table} cannot be removed: {os.strerror(code)}")


def _rules(family: Family, table: str, chain: str) -> Iterator[tuple[bytes, set[str]]]:
    """Yield the handle of each rule of a chain and where it leads to; the guard of KUBE-FIREWALL leads to DROP."""
    body = attribute(_TABLE, table.encode() + b"\0") + attribute(_RULE_CHAIN, chain.encode() + b"\0")
    for buffer, fields in _dump(family, _GETRULE, _NEWRULE, body):
        where = (_text(buffer, *fields[_TABLE]), _text(buffer, *fields[_RULE_CHAIN]))
        if where == (table, chain) and _RULE_EXPRESSIONS in fields:
            start, end = fields[_RULE_EXPRESSIONS]
            targets = set(_targets(buffer, start, end))
            if buffer.find(GUARD_COMMENT.encode(), start, end) >= 0:
                targets.add("DROP")
            yield bytes(buffer[slice(*fields[_RULE_HANDLE])]), targets


Fields = dict[int, tuple[int, int]]


def _dump(family: Family, ask: int, answer: int, body: bytes = b"") -> Iterator[tuple[bytearray, Fields]]:
    """Yield the attributes of each message of a dump, as offsets into the buffer."""
    try:
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            for buffer, filled in netlink.dump(ask, nfgen(_NFPROTO[family]) + body):
                offset = 0
                while offset + HEADER.size <= filled:
                    length, kind, *_ = HEADER.unpack_from(buffer, offset)
                    if kind == answer:
                        start = offset + HEADER.size + _NFGEN_SIZE
                        yield buffer, {k: (a, b) for k, a, b in attributes(buffer, start, offset + length)}
                    offset += (length + 3) & ~3
    except OSError as error:
        raise NetfilterError(f"nf_tables does not answer: {error.strerror or error}") from error


def _targets(buffer: bytearray, start: int, end: int) -> Iterator[str]:
    """Yield the chains that the verdicts of a rule's expressions lead to."""
    for _, first, last in attributes(buffer, start, end):
        place = (first, last)
        for kind in (_EXPRESSION_DATA, _IMMEDIATE_DATA, _VERDICT, _VERDICT_CHAIN):
            inside = next(((a, b) for k, a, b in attributes(buffer, *place) if k == kind), None)
            if inside is None:
                break
            place = inside
        else:
            yield _text(buffer, *place)


def _text(buffer: bytearray, start: int, end: int) -> str:
    return bytes(buffer[start:end]).rstrip(b"\0").decode("utf-8", "replace")
