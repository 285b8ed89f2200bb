"""What session affinity does to a client's next connections, read off the rules that a packet walked. Pure.

Without it a trace misleads: its chances are those of a client that is new, and a client that is known has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pykubeproxy.insight.explaintext import duration
from pykubeproxy.insight.tracer import Trace, Tracer

_ASKED = re.compile(r" -m recent --rcheck --seconds (?P<seconds>\d+) (?:.* )?--name (?P<name>\S+) ")
_SPREADING = ("KUBE-SVC-", "KUBE-SVL-")
"""What the chains that choose an endpoint begin with."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """An endpoint at which the kernel remembers the packet's sender."""

    endpoint: str
    seconds_ago: int | None
    """Since it was last seen there; None where the kernel does not tell."""


@dataclass(frozen=True, slots=True)
class Affinity:
    """The affinity of the service that a packet met."""

    client: str
    seconds: int
    remembered: tuple[Remembered, ...] | None
    """None: nobody looked."""


def affinity_of(trace: Trace, tracer: Tracer, *, has_memory: bool, has_ages: bool) -> Affinity | None:
    """Return the affinity that the rules on a packet's way keep; None where they keep none.

    ``has_memory``: the packet knows what the kernel remembers; ``has_ages``: and since when.
    """
    packet = trace.packet
    for table, chain in dict.fromkeys((hit.table, hit.chain) for one in trace.outcomes for hit in one.path):
        lists = dict(_lists(tracer, table, chain))
        if not lists:
            continue
        found = [
            Remembered(_endpoint(tracer, table, name), round(seen[packet.source]) if has_ages else None)
            for name in lists
            if packet.source in (seen := packet.recent.get(name, {}))
        ]
        return Affinity(packet.source, max(lists.values()), tuple(found) if has_memory else None)
    return None


def _lists(tracer: Tracer, table: str, chain: str) -> Iterator[tuple[str, int]]:
    """Yield the lists of clients that a chain asks before it chooses an endpoint, and for how long they count."""
    found = tracer.chain(table, chain) if chain.startswith(_SPREADING) else None
    for rule in found.rules if found is not None else ():
        asked = _ASKED.search(rule.text)
        if asked is not None:
            yield asked["name"], int(asked["seconds"])


def _endpoint(tracer: Tracer, table: str, chain: str) -> str:
    found = tracer.chain(table, chain)
    rules = found.rules if found is not None else ()
    return next((rule.action.to for rule in rules if rule.action.kind == "dnat"), chain)


def told(affinity: Affinity) -> str:
    """Return it in words."""
    kept = f"affinity: a client keeps its endpoint until {duration(affinity.seconds)} after its last connection"
    if affinity.remembered is None:
        return f"{kept}; the chances are those of a client that is new"
    if not affinity.remembered:
        return f"{kept}; {affinity.client} is not remembered"
    return (
        f"{kept}; {affinity.client} is remembered at {', '.join(_seen(affinity, one) for one in affinity.remembered)}"
    )


def _seen(affinity: Affinity, one: Remembered) -> str:
    if one.seconds_ago is None:
        return one.endpoint
    ago = f"{duration(one.seconds_ago)} ago" if one.seconds_ago else "just now"
    return f"{one.endpoint} ({ago}{', which is too long' if one.seconds_ago > affinity.seconds else ''})"


def plain(affinity: Affinity | None) -> dict[str, Any] | None:
    """Return it as plain data, for JSON and YAML; ``remembered`` is null where nobody looked."""
    if affinity is None:
        return None
    remembered = affinity.remembered
    return {
        "seconds": affinity.seconds,
        "remembered": None
        if remembered is None
        else [{"endpoint": one.endpoint, "secondsAgo": one.seconds_ago} for one in remembered],
    }
