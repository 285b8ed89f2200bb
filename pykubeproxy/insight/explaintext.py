"""An Explanation as a tree that a person reads at 80 columns. Decides nothing."""

from __future__ import annotations

from fractions import Fraction

from rich.text import Text
from rich.tree import Tree

from pykubeproxy.insight.explain import Address, Explanation, Port, Share, Spread
from pykubeproxy.insight.tracetext import percent
from pykubeproxy.model.addresses import with_port


def tree(explanation: Explanation) -> Tree:
    """Return the tree of one service."""
    on = f" on {explanation.node}" if explanation.node else ""
    top = Tree(Text.assemble((explanation.service, "bold"), f"{on}, {explanation.family}"))
    if explanation.kernel:
        top.add(_kernel(explanation.kernel, "the kernel holds the rules that it should", "the kernel's rules differ"))
    for line in explanation.differences:
        top.add(Text(line, style="yellow"))
    for port in explanation.ports:
        _port(top, port)
    for line in explanation.problems:
        top.add(Text(line, style="yellow"))
    return top


def _kernel(state: str, good: str, bad: str) -> Text:
    return Text(good, style="green") if state == "agrees" else Text(bad, style="yellow")


def _port(top: Tree, port: Port) -> None:
    used = {share.target for spread in port.spreads for share in spread.endpoints if share.share}
    name = port.name.partition(":")[2]
    count = f"{len(used)} of {port.endpoint_count} endpoint{'s' if port.endpoint_count != 1 else ''} used"
    if not port.endpoint_count:
        count = "no endpoints"
    title = f"{port.protocol} {port.port}{f' ({name})' if name else ''}: {count}"
    node = top.add(Text(title, style="bold" if used else "bold red"))
    for line in _facts(port):
        node.add(Text(line))
    for line in port.differences:
        node.add(Text(line, style="yellow"))
    for address in port.addresses:
        node.add(_address(address))
    for spread in port.spreads:
        _spread(node, port, spread)
    if port.unused:
        left = node.add(Text("not used"))
        for one in port.unused:
            left.add(Text.assemble(one.target, (f" on {one.node}" if one.node else "", ""), (f": {one.why}", "yellow")))


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
        text.append(f"\n{word}{whom}: {address.why}", style="red")
    if address.chains:
        text.append(f"\n→ {' → '.join(address.chains)}", style="dim")
    if address.masquerades:
        text.append(f"\nmasquerades {address.masquerades}")
    if address.source_ranges:
        text.append(f"\nopen to {', '.join(address.source_ranges)} only")
    return text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _spread(top: Tree, port: Port, spread: Spread) -> None:
    node = top.add(Text.assemble((spread.chain, ""), (f"  policy {spread.policy}", "dim")))
    for share in spread.endpoints:
        node.add(_share(port, share))


def _share(port: Port, share: Share) -> Text:
    where = "this node" if share.is_on_this_node else share.node or "node not known"
    chance = percent(Fraction(share.share).limit_denominator(2**31)) if share.share else "0 %"
    text = Text.assemble((f"{chance:<6}  ", "cyan"), (share.target, "bold"), f"  {where}")
    if share.state != "ready":
        text.append(f", {share.state}", style="yellow")
    if not share.in_kernel:
        text.append(", not in the kernel", style="yellow")
    if share.connections is not None:
        text.append(f", {_count(share.connections, 'connection')}")
    text.append(f"\n        {share.chain}", style="dim")
    if share.clients is not None and port.affinity_limit is not None:
        full = share.clients >= port.affinity_limit
        remembered = f"  {share.clients} of {port.affinity_limit} clients remembered{' (full)' if full else ''}"
        text.append(remembered, style="yellow" if full else "")
    return text
