"""From a rule as iptables-save prints it to something that can be asked. Pure.

A rule that is not understood in part is kept whole: its text is shown, and what of it cannot be judged is a Doubt.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from pykubeproxy.insight import match
from pykubeproxy.insight.match import Doubt, Match, View

Kind = Literal[
    "accept",
    "drop",
    "reject",
    "return",
    "jump",
    "goto",
    "mark",
    "dnat",
    "redirect",
    "masquerade",
    "snat",
    "continue",
    "unknown",
]


@dataclass(frozen=True, slots=True)
class Action:
    """What a rule does with a packet that it matches."""

    kind: Kind
    chain: str = ""
    """Of a jump or goto."""
    to: str = ""
    """Of a translation: ``ip:port``, ``ip`` or ``:port``. Of an unknown target: its words."""
    value: int = 0
    mask: int = 0
    """Of a mark: ``mark = (mark & ~mask) ^ value``."""


Way = tuple[Fraction, tuple[Action, ...]]
"""A chance, and what happens then."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. ``text`` is the line as printed, ``-A CHAIN`` included."""

    table: str
    chain: str
    number: int
    """Its place in the chain, from 1."""
    text: str
    judge: Callable[[View], list[Way] | Doubt] = field(compare=False)
    """Tells what the rule does with a packet: ways whose chances sum up to at most one; the rest does not match."""
    action: Action
    comment: str = ""
    chance: Fraction = Fraction(1)
    """With what chance a packet that fulfils all else is taken (``-m statistic``)."""

    @property
    def body(self) -> str:
        """The rule without ``-A CHAIN``."""
        return self.text.split(" ", 2)[2] if self.text.startswith("-A ") and self.text.count(" ") > 1 else self.text


@dataclass(slots=True)
class Chain:
    """Rules and, for a base chain, its policy."""

    rules: tuple[Rule, ...]
    policy: str = ""


@dataclass(frozen=True, slots=True)
class Base:
    """A chain that the kernel calls by itself."""

    hook: str
    priority: int
    table: str
    chain: str
    is_nat: bool = False


_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')
_ESCAPED = re.compile(r"\\(.)")
# fmt: off
# Targets that let the packet go on to the next rule, besides what they do.
_CONTINUING = frozenset((
    "LOG", "NFLOG", "ULOG", "TRACE", "AUDIT", "TCPMSS", "TCPOPTSTRIP", "DSCP", "TOS", "TTL", "HL", "CLASSIFY",
    "CHECKSUM", "RATEEST", "IDLETIMER", "LED", "SECMARK", "CONNSECMARK", "HMARK", "SET", "CT", "NOTRACK", "TEE", "ECN",
    "ACCOUNT",
))
# Targets whose effect is not known here.
_STRANGE = frozenset((
    "MARK", "CONNMARK", "QUEUE", "NFQUEUE", "TPROXY", "NETMAP", "SYNPROXY", "DNPT", "SNPT", "CLUSTERIP", "DNAT", "SNAT",
    "TARPIT", "MIRROR", "SAME", "ROUTE",
))
# fmt: on


def tokens(text: str) -> list[str]:
    """Split a rule into words; quoted ones lose their quotes."""
    if '"' not in text:
        return text.split()
    return [part[2] if part[1] is None else _ESCAPED.sub(r"\1", part[1]) for part in _TOKEN.finditer(text)]


def parse_rule(table: str, number: int, line: str) -> Rule:
    """Parse one ``-A CHAIN …`` line.

    Raises:
        ValueError: the line is no such line.

    """
    words = tokens(line)
    if len(words) < 2 or words[0] != "-A":
        raise ValueError(f"no rule as iptables-save prints them: {line[:120]!r}")
    groups, target, comment = _groups(words[2:])
    matches: list[Match] = []
    for name, options in groups:
        if name in ("comment", "nfacct"):
            continue
        try:
            matches += _MODULES.get(name, _unknown)(name, options)
        except (ValueError, IndexError, KeyError, OSError):
            matches.append(match.doubt(f"-m {name} {' '.join(options)}".strip()))
    try:
        action = _action(target)
    except (ValueError, IndexError, OSError):
        action = Action("unknown", to=" ".join(target))
    chance = Fraction(1)
    for one in matches:
        answer = getattr(one, "share", None)
        if isinstance(answer, Fraction):
            chance *= answer
    return Rule(table, words[1], number, line, _judge(tuple(matches), action), action, comment, chance)


def _judge(matches: tuple[Match, ...], action: Action) -> Callable[[View], list[Way] | Doubt]:
    certain: list[Way] = [(Fraction(1), (action,))]

    def judge(view: View) -> list[Way] | Doubt:
        answer = match.together(matches, view)
        if isinstance(answer, Doubt):
            return answer
        if isinstance(answer, Fraction):
            return [(answer, (action,))]
        return certain if answer else []

    return judge


def _groups(words: list[str]) -> tuple[list[tuple[str, list[str]]], list[str], str]:
    """Cut a rule into its matches by module ("" for the plain ones), its target, and its comment."""
    groups: list[tuple[str, list[str]]] = [("", [])]
    comment = ""
    at = 0
    while at < len(words):
        word = words[at]
        if word in ("-j", "-g"):
            return groups, words[at:], comment
        if word == "-m":
            groups.append((words[at + 1] if at + 1 < len(words) else "", []))
            at += 2
        elif word == "--comment":
            comment = words[at + 1] if at + 1 < len(words) else ""
            at += 2
        else:
            groups[-1][1].append(word)
            at += 1
    return groups, [], comment


def _action(words: list[str]) -> Action:  # noqa: PLR0911 - one line a target
    if not words:
        return Action("continue")
    if words[0] == "-g":
        return Action("goto", chain=words[1])
    name, rest = words[1], words[2:]
    match name:
        case "ACCEPT" | "DROP" | "RETURN" | "REJECT":
            return Action(name.lower())  # type: ignore[arg-type]
        case "MARK" if rest[:1] == ["--set-xmark"]:
            value, _, mask = rest[1].partition("/")
            return Action("mark", value=int(value, 0), mask=int(mask, 0) if mask else 0xFFFFFFFF)
        case "DNAT" if rest[:1] == ["--to-destination"]:
            return Action("dnat", to=rest[1])
        case "REDIRECT":
            return Action("redirect", to=":" + rest[1] if rest[:1] == ["--to-ports"] else "")
        case "MASQUERADE":
            return Action("masquerade")
        case "SNAT" if rest[:1] == ["--to-source"]:
            return Action("snat", to=rest[1])
        case _ if name in _CONTINUING:
            return Action("continue")
        case _ if name in _STRANGE:
            return Action("unknown", to=" ".join([name, *rest]))
        case _:
            return Action("jump", chain=name)


def _options(words: list[str]) -> list[tuple[bool, str, str]]:
    """Return (negated, option, value) of one module; value "" where there is none."""
    found: list[tuple[bool, str, str]] = []
    negative = False
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "!":
            negative = True
            continue
        if not word.startswith("-"):
            raise ValueError(word)
        value = []
        while at < len(words) and words[at] != "!" and not words[at].startswith("-"):
            value.append(words[at])
            at += 1
        found.append((negative, word, " ".join(value)))
        negative = False
    return found


_SINGLE: dict[str, Callable[[str], Match]] = {
    "-s": match.source_in,
    "-d": match.destination_in,
    "-p": match.protocol_is,
    "-i": lambda name: match.interface_is(name, out=False),
    "-o": lambda name: match.interface_is(name, out=True),
    "--dport": match.port_in,
    "--dports": match.port_in,
    "--sport": lambda text: match.port_in(text, source=True),
    "--sports": lambda text: match.port_in(text, source=True),
    "--ports": match.any_port_in,
    "--dst-type": lambda kind: match.address_type(kind, source=False),
    "--src-type": lambda kind: match.address_type(kind, source=True),
    "--ctstate": match.state_in,
    "--state": match.state_in,
    "--ctorigdst": match.original_destination,
    "--ctorigdstport": match.original_port,
    "--mark": match.mark_is,
    "--src-range": lambda text: match.address_range(text, source=True),
    "--dst-range": lambda text: match.address_range(text, source=False),
}
_BY_MODULE: dict[str, frozenset[str]] = {
    "": frozenset(("-s", "-d", "-p", "-i", "-o")),
    "tcp": frozenset(("--dport", "--sport")),
    "udp": frozenset(("--dport", "--sport")),
    "sctp": frozenset(("--dport", "--sport")),
    "multiport": frozenset(("--dports", "--sports", "--ports")),
    "addrtype": frozenset(("--dst-type", "--src-type")),
    "conntrack": frozenset(("--ctstate", "--ctorigdst", "--ctorigdstport")),
    "state": frozenset(("--state",)),
    "mark": frozenset(("--mark",)),
    "iprange": frozenset(("--src-range", "--dst-range")),
}


def _plain(name: str, words: list[str]) -> list[Match]:
    """Parse the modules whose options are single matches, each with or without a negation."""
    found: list[Match] = []
    for negative, option, value in _options(words):
        one: Match
        if option == "--tcp-flags" and name == "tcp":
            one = _tcp_flags(value)
        elif option in _BY_MODULE[name]:
            one = _SINGLE[option](value)
        else:
            one = match.doubt(f"-m {name} {option} {value}".strip() if name else f"{option} {value}".strip())
        found.append(match.negated(one) if negative else one)
    return found


def _tcp_flags(value: str) -> Match:
    """The first packet of a TCP connection carries SYN alone."""
    mask, wanted = value.split()
    names = frozenset(("FIN", "SYN", "RST", "PSH", "ACK", "URG")) if mask == "ALL" else frozenset(mask.split(","))
    flags = frozenset() if wanted == "NONE" else frozenset(wanted.split(","))
    answer = names & {"SYN"} == flags
    unsure = match.Doubt(f"--tcp-flags {value}")
    return lambda view: answer if view.packet.state == "NEW" else unsure


def _statistic(_: str, words: list[str]) -> list[Match]:
    options = _options(words)
    values = {option: value for _, option, value in options}
    return [match.statistic(values, is_negated=any(negative for negative, _, _ in options))]


def _recent(_: str, words: list[str]) -> list[Match]:
    options = _options(words)
    values = {option: value for _, option, value in options}
    action = next(name for name in ("--set", "--rcheck", "--update", "--remove") if name in values)
    one: Match = match.Recent(
        values.get("--name", "DEFAULT"),
        action[2:],
        int(values.get("--seconds", "0")),
        int(values.get("--hitcount", "0")),
        values.get("--mask", ""),
        "--rdest" in values,
    )
    if "--rttl" in values:
        one = match.doubt("-m recent --rttl")
    return [match.negated(one) if any(negative for negative, _, _ in options) else one]


def _unknown(name: str, words: list[str]) -> list[Match]:
    return [match.doubt(f"-m {name} {' '.join(words)}".strip())]


_MODULES: dict[str, Callable[[str, list[str]], list[Match]]] = {
    **dict.fromkeys(_BY_MODULE, _plain),
    "statistic": _statistic,
    "recent": _recent,
}
