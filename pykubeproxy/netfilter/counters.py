"""Read what rules have counted.

The listing that prints counters behind the matches (``iptables -S -v``) is asked, not iptables-save: on legacy it takes
the lock. A restore there exchanges the whole table and adds the old counters afterwards; whoever reads in between,
which iptables-save does, sees zeros.

In nat a packet counts only while its connection is new, so a rule's packets are connections.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from pykubeproxy.errors import EnvironmentProblem, LockBusyError, NetfilterError, UnreadableTable
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.process import Runner
from pykubeproxy.netfilter.read import is_unprintable
from pykubeproxy.netfilter.restore import failure

_RULE = re.compile(rb"^-A (\S+) (?:(.*?) )??-c (\d+) (\d+)(?: (-[jg] .*))?$", re.MULTILINE)
_CHAIN = re.compile(rb"^-(?:N (\S+)|P (\S+) \S+ -c \d+ \d+)$", re.MULTILINE)
_DNAT = re.compile(rb"^-A (KUBE-SEP-\S+) .*-c (\d+) \d+ -j DNAT --to-destination (\S+)$", re.MULTILINE)


class CountedRule(NamedTuple):
    """A rule, its text as in a ruleset (behind ``-A CHAIN ``), and what it has counted."""

    chain: str
    rule: str
    packets: int
    bytes: int


def listing(backend: Backend, runner: Runner, table: str, *chain: str) -> bytes:
    """Return the rules with counters of a table, or of one chain, as iptables prints them.

    Raises:
        UnreadableTable: the table holds native nft rules (a single chain may still be printed).
        LockBusyError, EnvironmentProblem, NetfilterError: as restore, or there is no such chain.

    """
    finished = runner.run(backend.tool(table, "-S", *chain, "-v"), timeout=120.0)
    if finished.status != 0:
        problem = failure(finished, "")
        if isinstance(problem, LockBusyError | EnvironmentProblem):
            raise problem
        if is_unprintable(finished.complaint):
            raise UnreadableTable(f"table {table} holds rules that iptables cannot print")
        raise NetfilterError(f"iptables -t {table} -S failed with status {finished.status}: {finished.complaint}")
    return finished.stdout


def rules(text: bytes) -> Iterator[CountedRule]:
    """Yield the rules of a listing. Pure."""
    for chain, matches, packets, octets, action in _RULE.findall(text):
        rule = b" ".join(part for part in (matches, action) if part)
        yield CountedRule(chain.decode(), rule.decode("utf-8", "surrogateescape"), int(packets), int(octets))


def chains(text: bytes) -> list[str]:
    """Return the names of the chains of a listing, those without rules among them. Pure."""
    return [(own or builtin).decode() for own, builtin in _CHAIN.findall(text)]


def translations(text: bytes) -> dict[str, tuple[str, int]]:
    """Return what the endpoint chains of a listing have translated: chain -> (target, connections). Pure."""
    return {chain.decode(): (target.decode(), int(packets)) for chain, packets, target in _DNAT.findall(text)}
