"""The way of one packet through rules, computed: where it may end, with what exact chance, and by which rules.

Model. A Tracer holds chain texts by table and parses a chain when a packet first comes to it. ``trace`` walks one
packet through the hooks in the kernel's order; at every rule that matches by chance the walk splits in two, so that the
result is the whole distribution: Outcomes whose probabilities sum up to one. They are exact: the kernel's are multiples
of 2**-31.

What the kernel does that rules do not say, and is done here too:
* only the first packet of a connection walks nat; a packet for a local address goes to INPUT, any other one to FORWARD;
* what the node sends to itself leaves by OUTPUT and POSTROUTING and comes in again by INPUT (not by nat PREROUTING);
* what a process of this node receives from outside never sees POSTROUTING, so it is not masqueraded, marked or not.

A match that is not understood is taken as not matching, and the Outcome says so. Pure; no kernel is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, NamedTuple

from pykubeproxy.insight.match import Doubt, View, together
from pykubeproxy.insight.packet import Packet
from pykubeproxy.insight.parse import Action, Rule, parse_rule
from pykubeproxy.model.addresses import with_port
from pykubeproxy.netfilter.read import parse
from pykubeproxy.rules.names import BUILTIN
from pykubeproxy.rules.ruleset import Ruleset

HOOK_TABLES: dict[str, tuple[str, ...]] = {
    "PREROUTING": ("raw", "mangle", "nat"),
    "INPUT": ("mangle", "filter", "security", "nat"),
    "FORWARD": ("mangle", "filter", "security"),
    "OUTPUT": ("raw", "mangle", "nat", "filter", "security"),
    "POSTROUTING": ("mangle", "nat"),
}
"""Tables of each hook by the kernel's priorities (enum nf_ip_hook_priorities; nat INPUT and POSTROUTING come last)."""

MAX_DEPTH = 64
"""Jumps deeper than this are a loop, which no kernel loads."""

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
class Chain:
    """Rules and, for a builtin chain, its policy."""

    rules: tuple[Rule, ...]
    policy: str = ""


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
    path: tuple[Hit, ...] = ()
    noted: tuple[tuple[str, str], ...] = ()
    uncertain: tuple[Uncertainty, ...] = ()
    verdict: str = ""
    """DROP or REJECT once that is decided; "stop" at the end of a chain walk."""
    frames: tuple[tuple[str, int], ...] = ()
    """(chain, index of the next rule), innermost last."""


@dataclass(slots=True)
class Tracer:
    """Rules to walk through. Build one with ``from_save`` or ``from_ruleset``; not thread-safe (it parses lazily)."""

    texts: Mapping[str, Mapping[str, str]]
    """table -> chain -> ``-A`` lines"""
    policies: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    _chains: dict[tuple[str, str], Chain] = field(default_factory=dict)

    @classmethod
    def from_save(cls, text: str) -> Tracer:
        """Read what iptables-save prints (any tables, with or without counters).

        Raises:
            UnreadableTable: the text says that a table holds native nft rules.
            ValueError: a line that iptables-save does not print.

        """
        tables = parse(text)
        return cls(
            {name: table.chains for name, table in tables.items()},
            {name: table.policies for name, table in tables.items()},
        )

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
        return cls(texts)

    def chain(self, table: str, name: str) -> Chain | None:
        """Return a parsed chain, or None where there is none.

        Raises:
            ValueError: a line of it is no rule.

        """
        known = self._chains.get((table, name))
        if known is None:
            text = self.texts.get(table, {}).get(name)
            if text is None:
                return None
            lines = [line for line in text.splitlines() if line and not line.startswith("#")]
            policy = self.policies.get(table, {}).get(name, "ACCEPT" if name in BUILTIN else "")
            known = Chain(tuple(parse_rule(table, at, line) for at, line in enumerate(lines, 1)), policy)
            self._chains[table, name] = known
        return known

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
            arrived = self._hook(packet, "INPUT", back, done, without=("nat",), incoming="lo")
            done += away + arrived
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
        without: tuple[str, ...] = (),
        incoming: str = "",
    ) -> list[_Walk]:
        """Walk all tables of a hook; return the walks that go on, and put the others into ``done``."""
        for table in HOOK_TABLES[hook]:
            if table in without or (table == "nat" and packet.state != "NEW"):
                continue
            if not walks or self.chain(table, hook) is None:
                continue
            going: list[_Walk] = []
            for walk in walks:
                walk.frames = ((hook, 0),)
                walk.verdict = ""
                for end in self._table(packet, hook, table, walk, incoming):
                    (done if end.verdict in ("DROP", "REJECT") else going).append(end)
            walks = going
        return walks

    def _table(self, packet: Packet, hook: str, table: str, walk: _Walk, incoming: str) -> Iterable[_Walk]:
        """Walk one table from its builtin chain on; yield every way that it may end."""
        waiting = [walk]
        while waiting:
            walk = waiting.pop()
            while not walk.verdict:
                if not walk.frames:
                    raise AssertionError("a walk without a chain")
                name, index = walk.frames[-1]
                chain = self.chain(table, name)
                if chain is None:
                    raise ValueError(f"a rule of table {table} jumps to chain {name}, which does not exist")
                if index >= len(chain.rules):
                    self._end_of_chain(hook, table, walk)
                    continue
                rule = chain.rules[index]
                walk.frames = (*walk.frames[:-1], (name, index + 1))
                view = _view(packet, hook, walk, incoming)
                answer = together(rule.matches, view)
                if answer is False:
                    continue
                if isinstance(answer, Doubt):
                    walk.uncertain = (
                        *walk.uncertain,
                        Uncertainty(hook, table, name, rule.number, rule.text, answer.what),
                    )
                    continue
                share = answer if isinstance(answer, Fraction) else Fraction(1)
                if share != 1:
                    other = replace(walk, probability=walk.probability * (1 - share))
                    waiting.append(other)
                    walk.probability *= share
                walk.path = (
                    *walk.path,
                    Hit(hook, table, name, rule.number, rule.text, rule.action, share, len(walk.frames) - 1),
                )
                walk.noted = (*walk.noted, *view.noting)
                self._act(hook, rule, walk)
            yield walk

    def _end_of_chain(self, hook: str, table: str, walk: _Walk) -> None:
        """Return to the calling chain, or let the policy decide."""
        walk.frames = walk.frames[:-1]
        if walk.frames:
            return
        chain = self.chain(table, hook)
        policy = (chain.policy if chain is not None else "") or "ACCEPT"
        walk.path = (
            *walk.path,
            Hit(hook, table, hook, 0, f"policy {policy}", Action("drop" if policy == "DROP" else "accept")),
        )
        walk.verdict = "DROP" if policy == "DROP" else "stop"

    def _act(self, hook: str, rule: Rule, walk: _Walk) -> None:
        action = rule.action
        match action.kind:
            case "accept":
                walk.verdict = "stop"
            case "drop" | "reject":
                walk.verdict = action.kind.upper()
            case "return":
                # The policy of a builtin chain is applied where the loop finds the chain at its end.
                name = walk.frames[-1][0]
                chain = self.chain(rule.table, name)
                walk.frames = (*walk.frames[:-1], (name, len(chain.rules) if chain is not None else 0))
            case "jump":
                if len(walk.frames) > MAX_DEPTH:
                    raise ValueError(f"the rules of table {rule.table} jump in a circle through {action.chain}")
                walk.frames = (*walk.frames, (action.chain, 0))
            case "goto":
                walk.frames = _go_to(walk.frames, action.chain, self.chain(rule.table, walk.frames[-1][0]))
            case "mark":
                walk.mark = (walk.mark & ~action.mask & 0xFFFFFFFF) ^ action.value
            case "dnat":
                walk.destination, walk.port = _destination(action.to, walk)
                walk.target = with_port(walk.destination, walk.port)
                walk.verdict = "stop"
            case "redirect":
                walk.port = int(action.to[1:].partition("-")[0]) if action.to else walk.port
                walk.target = f"this node:{walk.port}"
                walk.is_redirected = True
                walk.verdict = "stop"
            case "masquerade" | "snat":
                walk.is_masqueraded = True
                walk.verdict = "stop"
            case "unknown":
                where = (rule.chain, rule.number, rule.text)
                walk.uncertain = (*walk.uncertain, Uncertainty(hook, rule.table, *where, f"-j {action.to}"))
            case "continue":
                pass


def _go_to(frames: tuple[tuple[str, int], ...], name: str, here: Chain | None) -> tuple[tuple[str, int], ...]:
    """Enter a chain without coming back; from a builtin chain one comes back to its policy."""
    if len(frames) > MAX_DEPTH:
        raise ValueError(f"the rules go in a circle through {name}")
    if len(frames) == 1:
        return ((frames[0][0], len(here.rules) if here is not None else 0), (name, 0))
    return (*frames[:-1], (name, 0))


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
