"""Templates: Markdown in which some fences are commands to run, and some comments things to wait for. Pure.

    ```run curl                     type these lines in pod curl and show what comes out
    ```mermaid node                 the same, but what comes out is a picture
    ```stop node, ```start node     stop or start the proxy; the lines are only shown
    <!-- await default/web 3 -->    wait until the kernel leads the service to 3 endpoints
    <!-- await-rule TEXT -->        wait until a rule with this text stands; await-no-rule: until none does; with a 6
                                    behind "rule": in IPv6

Templates of one document in several languages must ask for the same things in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_PART = re.compile(
    r"^```(?P<kind>run|mermaid|stop|start) (?P<where>[\w-]+)\n(?P<lines>.*?)^```$"
    r"|^<!-- (?P<wait>await[\w-]*) (?P<what>.*?) -->\n",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Typed:
    """Lines that somebody types somewhere. ``kind``: run, mermaid, stop, start."""

    kind: str
    where: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Something to wait for; nothing of it is shown."""

    kind: str
    what: str


Part = str | Typed | Wait


def parse(text: str) -> list[Part]:
    """Cut a template into prose and things to do."""
    parts: list[Part] = []
    at = 0
    for found in _PART.finditer(text):
        parts.append(text[at : found.start()])
        at = found.end()
        if found["kind"]:
            parts.append(Typed(found["kind"], found["where"], tuple(found["lines"].splitlines())))
        else:
            parts.append(Wait(found["wait"], found["what"]))
    parts.append(text[at:])
    return parts


def things_to_do(parts: Sequence[Part]) -> list[Typed | Wait]:
    """Leave the prose out."""
    return [part for part in parts if not isinstance(part, str)]


def render(parts: Sequence[Part], outputs: Sequence[Sequence[str]]) -> str:
    """Put outputs in: for each thing to do, one for each of its lines (none for a Wait)."""
    text = ""
    left = iter(outputs)
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        shown = next(left)
        if isinstance(part, Typed):
            text += _fence(part, shown)
    return text


def _fence(typed: Typed, shown: Sequence[str]) -> str:
    if typed.kind == "mermaid":
        return f"```mermaid\n{shown[0]}```"
    blocks = [f"{typed.where}# {line}\n{output}" for line, output in zip(typed.lines, shown, strict=True)]
    return f"```console\n{''.join(blocks)}```"


_VOLATILE = (
    # The node as a pod sees it: the bridge or the outer link, as chance chose a pod here or elsewhere.
    (re.compile(r'"source": "(10\.244\.2\.1|192\.168\.78\.1)"'), '"source": "the node"'),
    (re.compile(r"/run/pkp-lab/\w+"), "/run/pkp-lab/…"),
    (re.compile(r'"port": \d+'), '"port": N'),
    (re.compile(r"^ +\d+ nginx-\d", re.MULTILINE), "N nginx-N"),
    (re.compile(r'^ +\d+ "nginx', re.MULTILINE), 'N "nginx'),
    (re.compile(r"\b\d+ connections?\b"), "N connections"),
    (re.compile(r"\b\d+ of 100 clients"), "N of 100 clients"),
    (re.compile(r"^(tcp|udp) +(\d+) +\d+ (TIME_WAIT|CLOSE|LAST_ACK)?", re.MULTILINE), r"\1 \2 N STATE"),
    (re.compile(r"\b(sport|dport)=\d{4,5}\b"), r"\1=N"),
    (re.compile(r"\b(last_seen|oldest_pkt): \d+"), r"\1: N"),
    (re.compile(r"(last_seen: N oldest_pkt: N)[ \d,]*"), r"\1"),
    (re.compile(r"after \d+ (ms|milliseconds)"), "after N ms"),
    (re.compile(r"iptables-nft [\d.]+"), "iptables-nft N"),
)


def settled(text: str) -> str:
    """Blank out what differs from run to run, so that what is left can be compared."""
    for pattern, instead in _VOLATILE:
        text = pattern.sub(instead, text)
    return text
