"""A Trace as a tree that a person reads, and as plain data. Decides nothing.

Endpoints that meet the same fate (the same rules but for the endpoint's own chain, the same chance, the same end) are
shown for the first few, and counted: a service of thousands would otherwise take ten thousand lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar

from rich.text import Text
from rich.tree import Tree

from pykubeproxy.insight.colours import BAD, GOOD, ODD, OTHERS, SHARE
from pykubeproxy.insight.owners import program_of
from pykubeproxy.insight.packet import Packet
from pykubeproxy.insight.parse import tokens
from pykubeproxy.insight.tracer import Hit, Outcome, Trace, Uncertainty
from pykubeproxy.model.addresses import with_port
from pykubeproxy.rules.naming import service_of

T = TypeVar("T")

FEW, LISTED = 3, 10
"""So many of those that meet the same fate are shown with their rules, and so many are listed where they end."""
_OWN = "KUBE-SEP-"
"""What the chains of single endpoints begin with."""
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


def percent_of(share: float) -> str:
    """Return the same of a share that was computed: ``33.3 %`` also of 0.33333333331."""
    return percent(Fraction(share).limit_denominator(2**31))


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


class _Branch(NamedTuple):
    """A rule by which some ways go on."""

    hit: Hit
    steps: list[_Step]
    share: Fraction


class _End(NamedTuple):
    """Where some ways end."""

    words: str
    outcome: Outcome
    share: Fraction

    @property
    def kind(self) -> str:
        """What is said of it besides its address."""
        return self.words.removeprefix(self.outcome.target) if self.outcome.verdict == "DNAT" else self.words


def few(items: Sequence[T], fate: Callable[[T], Hashable], limit: int) -> tuple[list[T], list[list[T]]]:
    """Return those to show, in order, and for each fate those that are left; one alone is not left. 0: no limit."""
    groups: dict[Hashable, list[int]] = {}
    for place, item in enumerate(items):
        groups.setdefault(fate(item), []).append(place)
    left = [places[limit:] for places in groups.values() if limit and len(places) > limit + 1]
    hidden = {place for places in left for place in places}
    shown = [item for place, item in enumerate(items) if place not in hidden]
    return shown, [[items[place] for place in places] for places in left]


def tree(
    trace: Trace, title: str = "", owner: Callable[[str], str] = lambda _: "", *, is_whole: bool = False
) -> list[Tree | Text]:
    """Return what to print, top to bottom: a tree for each hook, then the ends, then what could not be judged.

    ``is_whole``: every endpoint is shown.
    """
    drawing = _Drawing(is_whole=is_whole)
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
        shown.append(drawing.hook(hook, bases))
    shown.append(drawing.ends(trace, owner))
    if trace.uncertain:
        shown.append(drawing.doubts(trace.uncertain))
    if drawing.has_left_out:
        shown.append(Text("note: --all shows every endpoint"))
    return shown


class _Drawing:
    """Makes the trees, and remembers whether something was left out of them."""

    def __init__(self, *, is_whole: bool) -> None:
        self._few, self._listed = (0, 0) if is_whole else (FEW, LISTED)
        self.has_left_out = False

    def hook(self, hook: str, bases: dict[str, list[_Step]]) -> Tree:
        """Draw the tables of one hook."""
        top = Tree(Text(hook, style="bold"))
        idle = [table for table, steps in bases.items() if all(_is_idle(step.hits) for step in steps)]
        if idle:
            top.add(Text(f"{', '.join(idle)}: no rule matches", style="dim"))
        for table, steps in bases.items():
            if table in idle:
                continue
            shown, left = self._pick(_apart(table, steps), lambda way: _fate(way[1], 0), self._few)
            for label, group in shown:
                self._grow([top.add(Text(label))], group, 0)
            for ways in left:
                whom = _whom([step for _, group in ways for step in group])
                top.add(Text(f"… and likewise for {whom}"))
        return top

    def _grow(self, stack: list[Tree], steps: list[_Step], at: int) -> None:
        """Add the hits from position ``at`` on; where the ways part, each gets a branch of its own."""
        steps = [step for step in steps if at < len(step.hits)]
        groups: dict[Hit, list[_Step]] = {}
        for step in steps:
            groups.setdefault(step.hits[at], []).append(step)
        total = _sum(steps)
        branches = [_Branch(hit, group, _sum(group) / total) for hit, group in groups.items()]
        shown, left = self._pick(branches, lambda branch: (percent(branch.share), _fate(branch.steps, at)), self._few)
        for hit, group, share in shown:
            if hit.is_policy and hit.action.kind == "accept" and len(groups) == 1 and at > 0:
                continue
            label = _label(hit) if _leads_on(hit, group, at) else _passing(hit)
            if len(groups) > 1:
                label = Text.assemble((f"{percent(share)}  ", SHARE), label)
            own = stack[: hit.depth + 1]
            node = own[-1].add(label)
            self._grow([*own, node], group, at + 1)
        for alike in left:
            more = _more([step for branch in alike for step in branch.steps])
            stack[: alike[0].hit.depth + 1][-1].add(_each(more, alike[0].share))

    def ends(self, trace: Trace, owner: Callable[[str], str]) -> Tree:
        """Draw where the ways end, the likeliest first."""
        merged: dict[str, list[Outcome]] = {}
        for outcome in trace.outcomes:
            merged.setdefault(ending(outcome, owner), []).append(outcome)
        found = [
            _End(words, outcomes[0], sum((one.probability for one in outcomes), Fraction(0)))
            for words, outcomes in merged.items()
        ]
        # Shares that differ by how the kernel rounds are the same to a reader.
        found.sort(key=lambda end: -round(end.share, 7))
        top = Tree(Text("Ends at", style="bold"))
        shown, left = self._pick(found, lambda end: (percent(end.share), end.kind), self._listed)
        for words, _, share in shown:
            style = BAD if words.startswith(("dropped", "refused")) else GOOD
            top.add(Text.assemble((f"{percent(share)}  ", SHARE), (words, style)))
        for alike in left:
            top.add(_each(f"{_more(alike)}{alike[0].kind}", alike[0].share))
        return top

    def doubts(self, uncertain: Sequence[Uncertainty]) -> Tree:
        """Draw what could not be judged."""
        top = Tree(Text("Cannot judge, taken as not matching", style=ODD))
        shown, left = self._pick(uncertain, lambda one: (one.hook, one.what), self._few)
        for one in shown:
            top.add(Text(f"{one.what}\n{one.table} {one.chain} rule {one.number}: {short(one.text)}"))
        for alike in left:
            top.add(Text(f"… and {alike[0].what} in {len(alike):,} more rules"))
        return top

    def _pick(self, items: Sequence[T], fate: Callable[[T], Hashable], limit: int) -> tuple[list[T], list[list[T]]]:
        shown, left = few(items, fate, limit)
        self.has_left_out |= bool(left)
        return shown, left


def _sum(steps: Iterable[_Step]) -> Fraction:
    return sum((step.outcome.probability for step in steps), Fraction(0))


def _fate(steps: Iterable[_Step], at: int) -> Hashable:
    """Return what becomes of these ways from position ``at`` on: the same for endpoints that differ in name only."""
    return tuple(
        (
            step.outcome.verdict,
            step.outcome.is_masqueraded,
            step.outcome.is_local,
            tuple(
                (hit.table, hit.depth, _kind(hit.chain), hit.action.kind, _kind(hit.action.chain))
                for hit in step.hits[at:]
            ),
        )
        for step in steps
    )


def _kind(chain: str) -> str:
    return _OWN if chain.startswith(_OWN) else chain


def _more(ways: Sequence[_Step] | Sequence[_End]) -> str:
    is_dnat = all(way.outcome.verdict == "DNAT" for way in ways)
    count = len({way.outcome.target for way in ways}) if is_dnat else len(ways)
    return f"… and {count:,} more {'endpoints' if is_dnat else 'ways'}"


def _each(more: str, share: Fraction) -> Text:
    return Text.assemble(f"{more}, ", (f"{percent(share)} each", SHARE))


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
    return ", ".join(targets[:3]) + (f" and {len(targets) - 3:,} more" if len(targets) > 3 else "")


def _label(hit: Hit) -> Text:
    if hit.is_policy:
        return Text(hit.text, style="bold" if hit.action.kind == "drop" else "dim")
    style = "bold" if hit.action.kind in _FINAL else ""
    text = Text.assemble((f"{hit.number}. ", "dim"), (short(hit.text) or "every packet", style))
    note = comment_of(hit.text)
    other = program_of(hit.table, hit.chain, hit.text)
    if other:
        text.append(f"\n{other}", style=OTHERS)
    if note:
        text.append(f"\n{note}" if not other else f": {note}", style="dim")
    return text


def plain(
    trace: Trace,
    notes: Sequence[str] = (),
    owner: Callable[[str], str] = lambda _: "",
    affinity: dict[str, Any] | None = None,
) -> dict[str, Any]:
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
        "affinity": affinity,
        "cannotJudge": [one._asdict() for one in trace.uncertain],
        "notes": list(notes),
    }
