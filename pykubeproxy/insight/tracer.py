"""The way of one packet through rules, computed: where it may end, with what exact chance, and by which rules.

Model. A Tracer holds chain texts by table and parses a chain when a packet first comes to it. ``trace`` walks one
packet through the hooks in the kernel's order; at every rule that matches by chance the walk splits in two, so that the
result is the whole distribution: Outcomes whose probabilities sum up to one. They are exact: the kernel's are multiples
of 2**-31.

What the kernel does that rules do not say, and is done here too:
* only the first packet of a connection walks nat; a packet for a local address goes to INPUT, any other one to FORWARD;
* what the node sends to itself leaves by OUTPUT and POSTROUTING and comes in again, past nat, by PREROUTING and INPUT;
* what a process of this node receives from outside never sees POSTROUTING, so it is not masqueraded, marked or not.

A match that is not understood is taken as not matching, and the Outcome says so. Pure; no kernel is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, NamedTuple, Protocol

from pykubeproxy.insight.match import Doubt, View
from pykubeproxy.insight.packet import Packet
from pykubeproxy.insight.parse import Action, Base, Chain, Rule, Way, parse_rule
from pykubeproxy.model.addresses import with_port
from pykubeproxy.netfilter.read import parse
from pykubeproxy.rules.names import BUILTIN
from pykubeproxy.rules.ruleset import Ruleset

PRIORITIES: dict[str, dict[str, int]] = {
    "PREROUTING": {"raw": -300, "mangle": -150, "nat": -100},
    "INPUT": {"mangle": -150, "filter": 0, "security": 50, "nat": 100},
    "FORWARD": {"mangle": -150, "filter": 0, "security": 50},
    "OUTPUT": {"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50},
    "POSTROUTING": {"mangle": -150, "nat": 100},
}
"""Where the tables of iptables stand in each hook (enum nf_ip_hook_priorities in the kernel's netfilter_ipv4.h)."""

MAX_DEPTH = 64
"""Jumps deeper than this are a loop, which no kernel loads."""

MAX_PATH = 10000
"""More rules than this match only in a circle."""

Verdict = Literal["DNAT", "DROP", "REJECT", "ACCEPT"]


class Hit(NamedTuple):
    """One rule that a packet matched, or (with number 0) the policy at the end of a builtin chain."""

    hook: str
    table: str
    chain: str
    number: int
    text: str
    action: Action
    chance: Fraction = Fraction(1)
    """With what chance the rule matched this packet once it came here."""
    depth: int = 0
    """How many jumps deep the chain was called."""

    @property
    def is_policy(self) -> bool:
        """Whether this is the end of a builtin chain rather than a rule."""
        return self.number == 0


class End(NamedTuple):
    """Where a packet ends, in a form to compare: ``ip:port`` of an endpoint, or DROP, REJECT or ACCEPT."""

    target: str
    is_masqueraded: bool = False

    def __str__(self) -> str:
        return self.target + (" masqueraded" if self.is_masqueraded else "")


class Uncertainty(NamedTuple):
    """A rule that could not be judged and was taken as not matching."""

    hook: str
    table: str
    chain: str
    number: int
    text: str
    what: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """One end that the packet may meet."""

    probability: Fraction
    verdict: Verdict
    target: str
    """``ip:port`` of a translated destination, else ""."""
    destination: str
    port: int
    """Where the packet is going in the end."""
    is_local: bool
    """Delivered to a process of this node (if one listens)."""
    is_masqueraded: bool
    path: tuple[Hit, ...]
    noted: tuple[tuple[str, str], ...] = ()
    """(list, address) that ``-m recent`` remembers from now on."""
    uncertain: tuple[Uncertainty, ...] = ()

    @property
    def end(self) -> End:
        """The outcome in a form to compare; a packet that is refused is not masqueraded."""
        if self.verdict in ("DROP", "REJECT"):
            return End(self.verdict)
        return End(self.target or "ACCEPT", self.is_masqueraded)

    @property
    def rules(self) -> tuple[Hit, ...]:
        """The rules that matched, in order, without policies."""
        return tuple(hit for hit in self.path if not hit.is_policy)


@dataclass(frozen=True, slots=True)
class Trace:
    """All outcomes of one packet."""

    packet: Packet
    outcomes: tuple[Outcome, ...]

    def ends(self) -> dict[End, Fraction]:
        """Return the distribution of ends; the values sum up to one."""
        found: dict[End, Fraction] = {}
        for outcome in self.outcomes:
            found[outcome.end] = found.get(outcome.end, Fraction(0)) + outcome.probability
        return found

    @property
    def uncertain(self) -> tuple[Uncertainty, ...]:
        """Everything that could not be judged on any way."""
        return tuple(dict.fromkeys(one for outcome in self.outcomes for one in outcome.uncertain))


@dataclass(slots=True)
class _Walk:
    """One way through the rules, as far as it has come."""

    probability: Fraction
    destination: str
    port: int
    mark: int
    target: str = ""
    is_masqueraded: bool = False
    is_redirected: bool = False
    is_bound: bool = False
    """Whether a nat chain of this hook has translated it."""
    path: tuple[Hit, ...] = ()
    noted: tuple[tuple[str, str], ...] = ()
    uncertain: tuple[Uncertainty, ...] = ()
    verdict: str = ""
    """DROP or REJECT once that is decided; "stop" at the end of a chain walk."""
    frames: tuple[tuple[str, int], ...] = ()
    """(chain, index of the next rule), innermost last."""


class Table(Protocol):
    """Chains by name, and those that the kernel calls by itself."""

    @property
    def name(self) -> str:
        """What the table is called: ``nat``, or ``inet firewalld`` of a native nft one."""

    @property
    def bases(self) -> Iterable[Base]:
        """The chains that hang on hooks."""

    def chain(self, name: str) -> Chain | None:
        """Return a chain, or None where there is none."""


class TextTable:
    """A table as iptables-save prints it. Chains are parsed when first asked for, so it is cheap to make."""

    def __init__(self, name: str, texts: Mapping[str, str], policies: Mapping[str, str], *, shown_as: str = "") -> None:
        """Make a table of ``-A`` lines by chain; ``shown_as`` tells apart two tables of one name."""
        self.name = shown_as or name
        self._texts = texts
        self._policies = policies
        self._chains: dict[str, Chain] = {}
        self.bases = [
            Base(hook, tables[name], self.name, hook, is_nat=name == "nat")
            for hook, tables in PRIORITIES.items()
            if name in tables
        ]

    def chain(self, name: str) -> Chain | None:
        """Return a parsed chain, or None where there is none.

        Raises:
            ValueError: a line of it is no rule.

        """
        known = self._chains.get(name)
        if known is None:
            text = self._texts.get(name)
            if text is None:
                return None
            lines = [line for line in text.splitlines() if line and not line.startswith("#")]
            policy = self._policies.get(name, "ACCEPT" if name in BUILTIN else "")
            rules = tuple(parse_rule(self.name, at, line) for at, line in enumerate(lines, 1))
            known = self._chains[name] = Chain(rules, policy)
        return known


class Tracer:
    """Rules to walk through. Build one with ``from_save`` or ``from_ruleset``; not thread-safe (it parses lazily)."""

    def __init__(self, tables: Iterable[Table]) -> None:
        """Take tables of one IP family."""
        self.tables = {table.name: table for table in tables}
        self._bases: dict[str, list[Base]] = {hook: [] for hook in PRIORITIES}
        for table in self.tables.values():
            for base in table.bases:
                self._bases.setdefault(base.hook, []).append(base)
        for bases in self._bases.values():
            bases.sort(key=_place)

    @classmethod
    def from_save(cls, text: str) -> Tracer:
        """Read what iptables-save prints (any tables, with or without counters).

        Raises:
            UnreadableTable: the text says that a table holds native nft rules.
            ValueError: a line that iptables-save does not print.

        """
        return cls(TextTable(name, table.chains, table.policies) for name, table in parse(text).items())

    @classmethod
    def from_ruleset(cls, ruleset: Ruleset) -> Tracer:
        """Take rules as they would stand in otherwise empty tables, jumps from the builtin chains included."""
        texts = {table: dict(chains) for table, chains in ruleset.chains.items()}
        for table, chain in ruleset.shared_chains:
            texts[table].setdefault(chain, "")
        for rule in ruleset.ensured:
            known = texts[rule.table].get(rule.chain, "")
            line = f"-A {rule.chain} {rule.rule}\n"
            texts[rule.table][rule.chain] = line + known if rule.at_top else known + line
        return cls(TextTable(table, chains, {}) for table, chains in texts.items())

    def chain(self, table: str, name: str) -> Chain | None:
        """Return a chain, or None where there is none."""
        found = self.tables.get(table)
        return found.chain(name) if found is not None else None

    def trace(self, packet: Packet) -> Trace:
        """Walk a packet through the rules.

        Raises:
            ValueError: a rule jumps to a chain that does not exist, or in a circle.

        """
        done: list[_Walk] = []
        start = _Walk(Fraction(1), packet.destination, packet.port, packet.mark)
        if packet.origin == "node":
            out = self._hook(packet, "OUTPUT", [start], done)
            sent = self._hook(packet, "POSTROUTING", out, done)
            back, away = _apart(packet, sent)
            # What the node sends to itself comes back by lo; conntrack has seen it, so nat has nothing new to say.
            back = self._hook(packet, "PREROUTING", back, done, without_nat=True, incoming="lo")
            done += away + self._hook(packet, "INPUT", back, done, without_nat=True, incoming="lo")
        else:
            come = self._hook(packet, "PREROUTING", [start], done)
            here, on = _apart(packet, come)
            arrived = self._hook(packet, "INPUT", here, done)
            passed = self._hook(packet, "FORWARD", on, done)
            done += arrived + self._hook(packet, "POSTROUTING", passed, done)
        return Trace(packet, tuple(_outcome(packet, walk) for walk in done))

    # -- inside

    def _hook(
        self,
        packet: Packet,
        hook: str,
        walks: list[_Walk],
        done: list[_Walk],
        *,
        without_nat: bool = False,
        incoming: str = "",
    ) -> list[_Walk]:
        """Walk all base chains of a hook; return the walks that go on, and put the others into ``done``."""
        for walk in walks:
            walk.is_bound = False
        for base in self._bases[hook]:
            if base.is_nat and (without_nat or packet.state != "NEW"):
                continue
            if not walks or self.chain(base.table, base.chain) is None:
                continue
            going: list[_Walk] = []
            for walk in walks:
                if base.is_nat and walk.is_bound:
                    # The first translation of a hook binds the connection: later nat chains are not asked.
                    going.append(walk)
                    continue
                walk.frames = ((base.chain, 0),)
                walk.verdict = ""
                for end in self._base(packet, base, walk, incoming):
                    (done if end.verdict in ("DROP", "REJECT") else going).append(end)
            walks = going
        return walks

    def _base(self, packet: Packet, base: Base, walk: _Walk, incoming: str) -> Iterable[_Walk]:
        """Walk one base chain and all that it calls; yield every way that this may end."""
        hook, table = base.hook, base.table
        waiting = [walk]
        while waiting:
            walk = waiting.pop()
            while not walk.verdict:
                name, index = walk.frames[-1]
                chain = self.chain(table, name)
                if chain is None:
                    raise ValueError(f"a rule of table {table} jumps to chain {name}, which does not exist")
                if index >= len(chain.rules):
                    self._end_of_chain(base, walk)
                    continue
                rule = chain.rules[index]
                walk.frames = (*walk.frames[:-1], (name, index + 1))
                view = _view(packet, hook, walk, incoming)
                ways = rule.judge(view)
                if isinstance(ways, Doubt):
                    walk.uncertain = (*walk.uncertain, _uncertain(hook, rule, ways.what))
                    continue
                if not ways:
                    continue
                parts = [bounded(walk.probability * share) for share, _ in ways]
                if sum((share for share, _ in ways), Fraction(0)) < 1:
                    waiting.append(replace(walk, probability=walk.probability - sum(parts, Fraction(0))))
                for other, part in zip(ways[1:], parts[1:], strict=True):
                    another = replace(walk, probability=part)
                    self._take(hook, rule, another, view, other)
                    waiting.append(another)
                walk.probability = parts[0]
                self._take(hook, rule, walk, view, ways[0])
            yield walk

    def _take(self, hook: str, rule: Rule, walk: _Walk, view: View, way: Way) -> None:
        """Go one way that a rule offers."""
        share, actions = way
        depth = len(walk.frames) - 1
        for action in actions[:-1]:
            self._act(hook, rule, action, walk)
        walk.path = (*walk.path, Hit(hook, rule.table, rule.chain, rule.number, rule.text, actions[-1], share, depth))
        walk.noted = (*walk.noted, *view.noting)
        self._act(hook, rule, actions[-1], walk)

    def _end_of_chain(self, base: Base, walk: _Walk) -> None:
        """Return to the calling chain, or let the policy decide."""
        walk.frames = walk.frames[:-1]
        if walk.frames:
            return
        chain = self.chain(base.table, base.chain)
        policy = (chain.policy if chain is not None else "") or "ACCEPT"
        action = Action("drop" if policy == "DROP" else "accept")
        walk.path = (*walk.path, Hit(base.hook, base.table, base.chain, 0, f"policy {policy}", action))
        walk.verdict = "DROP" if policy == "DROP" else "stop"

    def _act(self, hook: str, rule: Rule, action: Action, walk: _Walk) -> None:
        match action.kind:
            case "accept":
                walk.verdict = "stop"
            case "drop" | "reject":
                walk.verdict = action.kind.upper()
            case "return":
                # The policy of a base chain is applied where the loop finds the chain at its end.
                walk.frames = (*walk.frames[:-1], (walk.frames[-1][0], _END))
            case "jump":
                if len(walk.frames) > MAX_DEPTH:
                    raise ValueError(f"the rules of table {rule.table} jump in a circle through {action.chain}")
                walk.frames = (*walk.frames, (action.chain, 0))
            case "goto":
                # From a base chain one comes back to its policy, from any other to nothing.
                if len(walk.path) > MAX_PATH:
                    raise ValueError(f"the rules of table {rule.table} go in a circle through {action.chain}")
                if len(walk.frames) == 1:
                    walk.frames = ((walk.frames[0][0], _END), (action.chain, 0))
                else:
                    walk.frames = (*walk.frames[:-1], (action.chain, 0))
            case "mark":
                walk.mark = (walk.mark & ~action.mask & 0xFFFFFFFF) ^ action.value
            case "dnat":
                walk.destination, walk.port = _destination(action.to, walk)
                walk.target = with_port(walk.destination, walk.port)
                walk.is_bound, walk.verdict = True, "stop"
            case "redirect":
                walk.port = int(action.to[1:].partition("-")[0]) if action.to else walk.port
                walk.target = f"this node:{walk.port}"
                walk.is_redirected = walk.is_bound = True
                walk.verdict = "stop"
            case "masquerade" | "snat":
                walk.is_masqueraded = walk.is_bound = True
                walk.verdict = "stop"
            case "unknown":
                walk.uncertain = (*walk.uncertain, _uncertain(hook, rule, f"-j {action.to}"))
            case "continue":
                pass


_END = 1 << 60
_EXACT_BITS, _KEPT_BITS = 256, 192


def bounded(chance: Fraction) -> Fraction:
    """Return a chance, rounded to 192 binary digits once it has more than 256.

    Each random match adds 31 of them: with thousands of endpoints the chances would otherwise be numbers of a hundred
    thousand digits. What is left over is reckoned from the rounded ones, so that the sum stays 1.
    """
    if chance.denominator.bit_length() <= _EXACT_BITS:
        return chance
    return Fraction((chance.numerator << _KEPT_BITS) // chance.denominator, 1 << _KEPT_BITS)


def _place(base: Base) -> tuple[int, int]:
    """Sort base chains of a hook; all nat ones are called where the nat core stands, by their priorities."""
    if base.is_nat:
        return (-100 if base.hook in ("PREROUTING", "OUTPUT") else 100), base.priority
    return base.priority, base.priority


def _uncertain(hook: str, rule: Rule, what: str) -> Uncertainty:
    return Uncertainty(hook, rule.table, rule.chain, rule.number, rule.text, what)


def _destination(to: str, walk: _Walk) -> tuple[str, int]:
    """Return where ``--to-destination`` leads; of a range the first address stands for all."""
    if to.startswith("["):
        address, _, rest = to[1:].partition("]")
        port = rest[1:]
    elif to.count(":") > 1:
        address, port = to, ""
    else:
        address, _, port = to.partition(":")
    return address.partition("-")[0] or walk.destination, int(port.partition("-")[0]) if port else walk.port


def _apart(packet: Packet, walks: list[_Walk]) -> tuple[list[_Walk], list[_Walk]]:
    """Make the routing decision: (to this node, elsewhere)."""
    here = [walk for walk in walks if walk.is_redirected or packet.is_local(walk.destination)]
    return here, [walk for walk in walks if not (walk.is_redirected or packet.is_local(walk.destination))]


_COMES_IN = frozenset(("PREROUTING", "INPUT", "FORWARD"))
_GOES_OUT = frozenset(("FORWARD", "OUTPUT", "POSTROUTING"))


def _view(packet: Packet, hook: str, walk: _Walk, incoming: str) -> View:
    out: str | None = None
    if hook in _GOES_OUT:
        if packet.is_local(walk.destination) or walk.is_redirected:
            out = "lo"
        else:
            out = packet.interface_to(walk.destination) if packet.interface_to is not None else ""
    return View(
        packet,
        hook,
        walk.destination,
        walk.port,
        walk.mark,
        (incoming or packet.in_interface) if hook in _COMES_IN else None,
        out,
        bool(walk.target),
        walk.noted,
    )


def _outcome(packet: Packet, walk: _Walk) -> Outcome:
    verdict: Verdict = walk.verdict if walk.verdict in ("DROP", "REJECT") else "DNAT" if walk.target else "ACCEPT"  # type: ignore[assignment]
    return Outcome(
        walk.probability,
        verdict,
        walk.target,
        walk.destination,
        walk.port,
        walk.is_redirected or packet.is_local(walk.destination),
        walk.is_masqueraded,
        walk.path,
        walk.noted,
        walk.uncertain,
    )
