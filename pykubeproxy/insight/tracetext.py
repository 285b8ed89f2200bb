"""A Trace as a tree that a person reads, and as plain data. Decides nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from rich.text import Text
from rich.tree import Tree

from pykubeproxy.insight.owners import program_of, service_of
from pykubeproxy.insight.packet import Packet
from pykubeproxy.insight.parse import tokens
from pykubeproxy.insight.tracer import Hit, Outcome, Trace
from pykubeproxy.model.addresses import with_port

_COMMENT = re.compile(r'-m comment --comment (?:"(?:[^"\\]|\\.)*"|\S+) ?')
_IMPLIED = re.compile(r"-m (?:tcp|udp|sctp) (?=(?:! )?--[ds]port)")
_FINAL = frozenset(("drop", "reject", "dnat", "redirect", "masquerade", "snat"))


def percent(share: Fraction) -> str:
    """Return ``33.3 %``, ``100 %`` or ``0.01 %``."""
    value = float(share) * 100
    if value == 100:
        return "100 %"
    text = f"{value:.1f}" if value >= 1 else f"{value:.2g}"
    return f"{'> 99.9' if text == '100.0' else text} %"


def short(text: str) -> str:
    """Return a rule without ``-A CHAIN``, its comment, and matches that its options imply."""
    body = text.split(" ", 2)[2] if text.startswith("-A ") and text.count(" ") > 1 else text
    return _IMPLIED.sub("", _COMMENT.sub("", body)).strip()


def comment_of(text: str) -> str:
    """Return a rule's comment."""
    if "--comment" not in text:
        return ""
    words = tokens(text)
    at = words.index("--comment") + 1
    return words[at] if at < len(words) else ""


def heading(packet: Packet) -> str:
    """Return one line that names the packet."""
    origin = {"outside": "from outside", "node": "from this node", "pod": "from a pod"}[packet.origin]
    state = "" if packet.state == "NEW" else f"{packet.state} "
    to = with_port(packet.destination, packet.port)
    return f"{state}{packet.protocol.upper()} {packet.source} ({origin}) → {to}"


def ending(outcome: Outcome, owner: Callable[[str], str] = lambda _: "") -> str:
    """Return where an outcome ends, in words; ``owner`` names the service port that a chain belongs to."""
    if outcome.verdict in ("DROP", "REJECT"):
        word = "dropped" if outcome.verdict == "DROP" else "refused"
        last = outcome.path[-1]
        where = f"{last.table} {last.chain}"
        rule = "policy" if last.is_policy else f"rule {last.number}"
        other = "" if last.is_policy else program_of(last.table, last.chain, last.text)
        note = comment_of(last.text)
        return f"{word} by {where} {rule}" + (f" of {other}" if other else "") + (f" ({note})" if note else "")
    masqueraded = ", masqueraded" if outcome.is_masqueraded else ""
    if outcome.verdict == "DNAT":
        name = service(outcome, owner)
        here = " on this node" if outcome.is_local else ""
        return f"{outcome.target}{here}{f' for {name}' if name else ''}{masqueraded}"
    to = with_port(outcome.destination, outcome.port)
    if outcome.is_local:
        return f"{to}: a process of this node, if one listens{masqueraded}"
    return f"{to}: routed on unchanged{masqueraded}"


def service(outcome: Outcome, owner: Callable[[str], str]) -> str:
    """Return the service port that translated an outcome: the owner of its chains, else what comments name."""
    ways = [hit for hit in reversed(outcome.rules) if "POSTROUTING" not in hit.hook]
    return next((name for hit in ways if (name := owner(hit.chain))), "") or next(
        (name for hit in ways if (name := service_of(hit.text))), ""
    )


class _Step(NamedTuple):
    hits: tuple[Hit, ...]
    outcome: Outcome


def tree(trace: Trace, title: str = "", owner: Callable[[str], str] = lambda _: "") -> list[Tree | Text]:
    """Return what to print, top to bottom: a tree for each hook, then the ends, then what could not be judged."""
    shown: list[Tree | Text] = [Text(heading(trace.packet), style="bold")]
    if title:
        shown.append(Text(title, style="dim"))
    sections: dict[str, dict[str, list[_Step]]] = {}
    for outcome in trace.outcomes:
        own: dict[tuple[str, str], list[Hit]] = {}
        for hit in outcome.path:
            own.setdefault((hit.hook, hit.table), []).append(hit)
        for (hook, base), hits in own.items():
            sections.setdefault(hook, {}).setdefault(base, []).append(_Step(tuple(hits), outcome))
    for hook, bases in sections.items():
        shown.append(_hook(hook, bases))
    shown += [_ends(trace, owner)]
    if trace.uncertain:
        doubts = Tree(Text("Cannot judge, taken as not matching", style="yellow"))
        for one in trace.uncertain:
            doubts.add(Text(f"{one.what}\n{one.table} {one.chain} rule {one.number}: {short(one.text)}"))
        shown.append(doubts)
    return shown


def _hook(hook: str, bases: dict[str, list[_Step]]) -> Tree:
    top = Tree(Text(hook, style="bold"))
    idle = [table for table, steps in bases.items() if all(_is_idle(step.hits) for step in steps)]
    if idle:
        top.add(Text(f"{', '.join(idle)}: no rule matches", style="dim"))
    for table, steps in bases.items():
        if table not in idle:
            for label, group in _apart(table, steps):
                _grow([top.add(Text(label))], group, 0)
    return top


def _apart(table: str, steps: list[_Step]) -> list[tuple[str, list[_Step]]]:
    """Return what to draw of one table: all in one tree where chance alone parts the ways, else a tree for each way."""
    name = f"{table} {steps[0].hits[0].chain}"
    if any(hit.chance != 1 for step in steps for hit in step.hits):
        return [(name, steps)]
    groups: dict[tuple[Hit, ...], list[_Step]] = {}
    for step in steps:
        groups.setdefault(step.hits, []).append(step)
    if len(groups) == 1:
        return [(name, steps)]
    return [(f"{name}, for {_whom(group)}", group) for group in groups.values()]


def _is_idle(hits: Sequence[Hit]) -> bool:
    return len(hits) == 1 and hits[0].is_policy and hits[0].action.kind == "accept"


def _grow(stack: list[Tree], steps: list[_Step], at: int) -> None:
    """Add the hits from position ``at`` on; where the ways part, each gets a branch of its own."""
    steps = [step for step in steps if at < len(step.hits)]
    groups: dict[Hit, list[_Step]] = {}
    for step in steps:
        groups.setdefault(step.hits[at], []).append(step)
    total = sum((step.outcome.probability for step in steps), Fraction(0))
    for hit, group in groups.items():
        if hit.is_policy and hit.action.kind == "accept" and len(groups) == 1 and at > 0:
            continue
        label = _label(hit) if _leads_on(hit, group, at) else _passing(hit)
        if len(groups) > 1:
            share = sum((step.outcome.probability for step in group), Fraction(0)) / total
            label = Text.assemble((f"{percent(share)}  ", "cyan"), label)
        own = stack[: hit.depth + 1]
        node = own[-1].add(label)
        _grow([*own, node], group, at + 1)


def _leads_on(hit: Hit, group: Sequence[_Step], at: int) -> bool:
    """Tell whether anything matches in the chain that a rule jumps to."""
    if hit.action.kind not in ("jump", "goto"):
        return True
    return any(at + 1 < len(step.hits) and step.hits[at + 1].depth > hit.depth for step in group)


def _passing(hit: Hit) -> Text:
    other = program_of(hit.table, hit.chain, hit.text)
    of = f" of {other}" if other else ""
    return Text(f"{hit.number}. to {hit.action.chain}{of}, where nothing matches", style="dim")


def _whom(group: Sequence[_Step]) -> str:
    targets = list(dict.fromkeys(step.outcome.end.target for step in group))
    return ", ".join(targets[:3]) + (f" and {len(targets) - 3} more" if len(targets) > 3 else "")


def _label(hit: Hit) -> Text:
    if hit.is_policy:
        return Text(hit.text, style="bold" if hit.action.kind == "drop" else "dim")
    style = "bold" if hit.action.kind in _FINAL else ""
    text = Text.assemble((f"{hit.number}. ", "dim"), (short(hit.text) or "every packet", style))
    note = comment_of(hit.text)
    other = program_of(hit.table, hit.chain, hit.text)
    if other:
        text.append(f"\n{other}", style="magenta")
    if note:
        text.append(f"\n{note}" if not other else f": {note}", style="dim")
    return text


def _ends(trace: Trace, owner: Callable[[str], str]) -> Tree:
    merged: dict[str, Fraction] = {}
    for outcome in trace.outcomes:
        words = ending(outcome, owner)
        merged[words] = merged.get(words, Fraction(0)) + outcome.probability
    top = Tree(Text("Ends at", style="bold"))
    for words, share in sorted(merged.items(), key=lambda item: -item[1]):
        style = "red" if words.startswith(("dropped", "refused")) else "green"
        top.add(Text.assemble((f"{percent(share)}  ", "cyan"), (words, style)))
    return top


def plain(trace: Trace, notes: Sequence[str] = (), owner: Callable[[str], str] = lambda _: "") -> dict[str, Any]:
    """Return a trace as plain data, for JSON and YAML."""
    packet = trace.packet
    return {
        "packet": {
            "source": packet.source,
            "origin": packet.origin,
            "destination": packet.destination,
            "port": packet.port,
            "protocol": packet.protocol,
            "family": packet.family,
        },
        "outcomes": [
            {
                "probability": float(outcome.probability),
                "verdict": outcome.verdict,
                "target": outcome.target,
                "service": service(outcome, owner) if outcome.target else "",
                "masqueraded": outcome.is_masqueraded,
                "local": outcome.is_local,
                "destination": with_port(outcome.destination, outcome.port),
                "path": [
                    {
                        "hook": hit.hook,
                        "table": hit.table,
                        "chain": hit.chain,
                        "rule": hit.number,
                        "text": hit.text,
                        "chance": float(hit.chance),
                        "program": "" if hit.is_policy else program_of(hit.table, hit.chain, hit.text),
                    }
                    for hit in outcome.path
                ],
            }
            for outcome in trace.outcomes
        ],
        "cannotJudge": [one._asdict() for one in trace.uncertain],
        "notes": list(notes),
    }
