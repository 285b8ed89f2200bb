"""An Explanation as a tree that a person reads at 80 columns. Decides nothing.

Of many endpoints the first few are shown, and those that something is the matter with; the others are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.text import Text
from rich.tree import Tree

from pykubeproxy.insight.colours import BAD, GOOD, ODD, SHARE
from pykubeproxy.insight.explain import Address, Explanation, Port, Share, Spread, Unused
from pykubeproxy.insight.tracetext import percent_of
from pykubeproxy.model.addresses import with_port

T = TypeVar("T")

MANY, SHOWN = 20, 10
"""More endpoints (or oddities) than MANY are too many to read; then so many are shown."""


def tree(explanation: Explanation, *, is_whole: bool = False) -> Tree:
    """Return the tree of one service. ``is_whole``: every endpoint is shown."""
    on = f" on {explanation.node}" if explanation.node else ""
    top = Tree(Text.assemble((explanation.service, "bold"), f"{on}, {explanation.family}"))
    if explanation.kernel:
        top.add(_kernel(explanation.kernel, "the kernel holds the rules that it should", "the kernel's rules differ"))
    for told in _daemon(explanation):
        top.add(told)
    _oddities(top, explanation.differences, is_whole=is_whole)
    for port in explanation.ports:
        _port(top, port, is_whole=is_whole)
    _oddities(top, explanation.problems, is_whole=is_whole)
    return top


def _first(items: Sequence[T], *, is_whole: bool) -> Sequence[T]:
    return items if is_whole or len(items) <= MANY else items[:SHOWN]


def _oddities(top: Tree, lines: Sequence[str], *, is_whole: bool) -> None:
    shown = _first(lines, is_whole=is_whole)
    for line in shown:
        top.add(Text(line, style=ODD))
    if len(shown) < len(lines):
        top.add(Text(f"… and {len(lines) - len(shown):,} more like these", style=ODD))


def _daemon(explanation: Explanation) -> Iterable[Text]:
    daemon = explanation.daemon
    if daemon is not None:
        why = "; ".join(daemon.why)
        yield {
            "in sync": Text("the daemon follows the cluster", style=GOOD),
            "not in sync": Text(f"the daemon is not in sync: {why}", style=ODD),
            "silent": Text(f"the daemon cannot be asked ({why})", style=ODD),
            "absent": Text(f"no pykubeproxy runs here ({why}): nobody keeps the rules up to date", style=ODD),
        }[daemon.condition]
        yield from (Text(f"the daemon says: {note}", style=ODD) for note in daemon.notes)
        if daemon.node not in ("", explanation.node):
            yield Text(f"the daemon here calls its node {daemon.node}", style=ODD)
    if explanation.left_out:
        yield Text(f"left out by the daemon: {explanation.left_out}", style=BAD)


def _kernel(state: str, good: str, bad: str) -> Text:
    return Text(good, style=GOOD) if state == "agrees" else Text(bad, style=ODD)


def leaves_out(explanation: Explanation) -> bool:
    """Tell whether there are more endpoints, or more that is odd, than is shown."""
    lists: list[Sequence[object]] = [explanation.differences, explanation.problems]
    for port in explanation.ports:
        lists += [port.unused, port.differences, *(spread.endpoints for spread in port.spreads)]
    return any(len(found) > MANY for found in lists)


def _port(top: Tree, port: Port, *, is_whole: bool) -> None:
    used = {share.target for spread in port.spreads for share in spread.endpoints if share.share}
    name = port.name.partition(":")[2]
    count = f"{len(used):,} of {port.endpoint_count:,} endpoint{'s' if port.endpoint_count != 1 else ''} used"
    if not port.endpoint_count:
        count = "no endpoints"
    title = f"{port.protocol} {port.port}{f' ({name})' if name else ''}: {count}"
    node = top.add(Text(title, style="bold" if used else f"bold {BAD}"))
    for line in _facts(port):
        node.add(Text(line))
    _oddities(node, port.differences, is_whole=is_whole)
    for address in port.addresses:
        node.add(_address(address))
    for spread in port.spreads:
        _spread(node, port, spread, is_whole=is_whole)
    if port.unused:
        _unused(node.add(Text("not used")), port.unused, is_whole=is_whole)


def _unused(left: Tree, endpoints: Sequence[Unused], *, is_whole: bool) -> None:
    shown = _first(endpoints, is_whole=is_whole)
    for one in shown:
        left.add(Text.assemble(one.target, f" on {one.node}" if one.node else "", (f": {one.why}", ODD)))
    for why, count in Counter(one.why for one in endpoints[len(shown) :]).most_common():
        left.add(Text.assemble(f"… and {count:,} more: ", (why, ODD)))


def _facts(port: Port) -> list[str]:
    found = []
    if port.affinity_seconds:
        found.append(f"a client keeps its endpoint until {duration(port.affinity_seconds)} after its last connection")
    if port.hints:
        found.append(f"endpoints chosen by {port.hints} hints")
    if port.health_check_node_port:
        found.append(f"health checks answered on port {port.health_check_node_port}")
    return found


def duration(seconds: int) -> str:
    """Return ``3 h``, ``90 s``, ``10 min``."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _address(address: Address) -> Text:
    where = with_port(address.address, address.port) if address.address else f"port {address.port} of this node"
    text = Text.assemble((where, "bold"), f"  {address.kind}, policy {address.policy}")
    if address.connections is not None:
        text.append(f", {_count(address.connections, 'connection')}")
    if address.verdict != "served":
        word = "refused (REJECT)" if address.verdict == "REJECT" else "dropped"
        whom = " from outside" if address.chains else ""
        text.append(f"\n{word}{whom}: {address.why}", style=BAD)
    if address.chains:
        text.append(f"\n→ {' → '.join(address.chains)}", style="dim")
    if address.masquerades:
        text.append(f"\nmasquerades {address.masquerades}")
    if address.source_ranges:
        text.append(f"\nopen to {', '.join(address.source_ranges)} only")
    return text


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _spread(top: Tree, port: Port, spread: Spread, *, is_whole: bool) -> None:
    node = top.add(Text.assemble((spread.chain, ""), (f"  policy {spread.policy}", "dim")))
    left: list[Share] = []
    first = len(_first(spread.endpoints, is_whole=is_whole))
    for place, share in enumerate(spread.endpoints):
        if place < first or _is_notable(port, share):
            node.add(_share(port, share))
        else:
            left.append(share)
    if left:
        node.add(_rest(left))


def _is_notable(port: Port, share: Share) -> bool:
    return share.state != "ready" or share.in_kernel is False or _is_full(port, share)


def _is_full(port: Port, share: Share) -> bool:
    return share.clients is not None and port.affinity_limit is not None and share.clients >= port.affinity_limit


def _rest(shares: Sequence[Share]) -> Text:
    here = sum(share.is_on_this_node for share in shares)
    away = len(shares) - here
    where = f"{here:,} on this node, {away:,} on others" if here and away else "on this node" if here else "on others"
    text = Text.assemble(f"… and {len(shares):,} more endpoints ({where}), ", (_chances(shares), SHARE))
    counted = [share.connections for share in shares if share.connections is not None]
    if counted:
        text.append(f", {_count(sum(counted), 'connection')}")
    return text


def _chances(shares: Iterable[Share]) -> str:
    found = list(dict.fromkeys(percent_of(share) for share in sorted(one.share for one in shares)))
    return f"{found[0]} each" if len(found) == 1 else f"{found[0]} to {found[-1]} each"


def _share(port: Port, share: Share) -> Text:
    where = "this node" if share.is_on_this_node else share.node or "node not known"
    chance = f"{percent_of(share.share):<6}  "
    text = Text.assemble((chance, SHARE), (share.target, "bold"), f"  {where}")
    if share.state != "ready":
        text.append(f", {share.state}", style=ODD)
    if share.in_kernel is False:
        text.append(", not in the kernel", style=ODD)
    if share.connections is not None:
        text.append(f", {_count(share.connections, 'connection')}")
    text.append(f"\n{' ' * len(chance)}{share.chain}", style="dim")
    if share.clients is not None and port.affinity_limit is not None:
        is_full = _is_full(port, share)
        remembered = f"  {share.clients} of {port.affinity_limit} clients remembered{' (full)' if is_full else ''}"
        text.append(remembered, style=ODD if is_full else "")
    return text
