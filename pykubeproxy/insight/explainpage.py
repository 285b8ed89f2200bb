"""Explanations as a page for a browser, and as a drawing of their chains. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pykubeproxy.insight.explain import Address, Explanation, Port, Share, Spread
from pykubeproxy.insight.explaintext import duration
from pykubeproxy.insight.tracetext import percent_of
from pykubeproxy.model.addresses import with_port
from pykubeproxy.serving.pagehtml import Child, Markup, badge, card, code, facts, number, plural, table, tag
from pykubeproxy.serving.pagesvg import Box, Drawing, across, down

DRAWN = 12
"""So many endpoints of a chain are drawn; of the others it is said how many they are."""
SHOWN, LISTED = 25, 500
"""So many lines of a table are seen at once, and so many are there at most."""
RULES = 1000
"""So many rules are shown at most."""


def port_card(explanation: Explanation, port: Port, rules: str) -> Markup:
    """Return what there is to say about one service port. ``rules``: its rules as they should stand."""
    name = port.name.partition(":")[2]
    title = [f"{port.protocol} {port.port}{f' ({name})' if name else ''} ", _state(port)]
    picture = drawing(port)
    label = f"The way of a packet to {explanation.service}: addresses, chains, endpoints with their share"
    parts: list[Child] = [facts(_facts(port))]
    if port.differences:
        shown = _bullets(port.differences[:SHOWN])
        parts += [tag("h3", "How the kernel differs"), shown, _more(len(port.differences), SHOWN)]
    parts += [tag("h3", "From address to endpoint"), across(picture, label), down(picture, label)]
    parts += [tag("h3", "Addresses"), _addresses(port.addresses)]
    for spread in port.spreads:
        parts += [tag("h3", f"Endpoints, policy {spread.policy}"), _endpoints(port, spread)]
    if port.unused:
        rows = [(code(one.target), one.node, one.why) for one in port.unused[:LISTED]]
        parts += [tag("h3", "Endpoints that are not used"), _long(("endpoint", "node", "why"), rows)]
        parts.append(_more(len(port.unused)))
    if rules:
        lines = rules.splitlines()
        text = tag("pre", "\n".join(lines[:RULES]))
        more = _more(len(lines), RULES)
        parts.append(tag("details", tag("summary", "Rules of its own chains, as they should stand"), text, more))
    return card(title, parts)


def _state(port: Port) -> Markup:
    used = {share.target for spread in port.spreads for share in spread.endpoints if share.share}
    if not port.endpoint_count:
        return badge("warn", "no endpoints")
    return badge("good" if used else "bad", f"{number(len(used))} of {plural(port.endpoint_count, 'endpoint')} used")


def _facts(port: Port) -> list[tuple[str, Child]]:
    found: list[tuple[str, Child]] = [("internal policy", port.internal_policy)]
    if port.external_policy:
        found.append(("external policy", port.external_policy))
    if port.affinity_seconds:
        found.append(
            ("affinity", f"a client keeps its endpoint for {duration(port.affinity_seconds)} after its last connection")
        )
    if port.hints:
        found.append(("topology", f"endpoints chosen by {port.hints} hints"))
    if port.health_check_node_port:
        found.append(("health checks", f"answered on port {port.health_check_node_port}"))
    if port.kernel:
        agrees = port.kernel == "agrees"
        found.append(("kernel", badge("good", "as it should be") if agrees else badge("bad", "differs")))
    return found


def _where(address: Address) -> str:
    return with_port(address.address, address.port) if address.address else f"any node address:{address.port}"


def _addresses(addresses: Sequence[Address]) -> Markup:
    rows = []
    for one in addresses:
        outcome: Child = badge("good", "served")
        if one.verdict != "served":
            word = "refused" if one.verdict == "REJECT" else "dropped"
            outcome = [badge("bad", word + (" from outside" if one.chains else "")), " ", one.why]
        notes = [
            f"policy {one.policy}",
            f"masquerades {one.masquerades}" if one.masquerades else "",
            f"open to {', '.join(one.source_ranges)} only" if one.source_ranges else "",
        ]
        counted = "" if one.connections is None else number(one.connections)
        rows.append((code(_where(one)), one.kind, outcome, ", ".join(filter(None, notes)), counted))
    return table(("address", "kind", "outcome", "how", "connections"), rows)


def _endpoints(port: Port, spread: Spread) -> Markup:
    rows = []
    headers = ["share", "endpoint", "node", "chain", "connections"]
    if port.affinity_limit is not None:
        headers.append("clients")
    for one in spread.endpoints[:LISTED]:
        notes: list[Child] = [code(one.target)]
        if one.state != "ready":
            notes += [" ", badge("warn", one.state)]
        if one.in_kernel is False:
            notes += [" ", badge("bad", "not in the kernel")]
        node = "this node" if one.is_on_this_node else one.node or "not known"
        cells: list[Child] = [percent_of(one.share), notes, node, code(one.chain)]
        cells.append("" if one.connections is None else number(one.connections))
        if port.affinity_limit is not None:
            cells.append("" if one.clients is None else f"{one.clients} of {port.affinity_limit}")
        rows.append(cells)
    return tag("div", _long(headers, rows), _more(len(spread.endpoints)))


def _long(headers: Sequence[str], rows: Sequence[Sequence[Child]]) -> list[Markup]:
    """Return a table of which at first only the head is seen."""
    found = [table(headers, rows[:SHOWN])]
    if len(rows) > SHOWN:
        more = tag("summary", f"the other {number(len(rows) - SHOWN)}")
        found.append(tag("details", more, table(headers, rows[SHOWN:])))
    return found


def _more(count: int, shown: int = LISTED) -> Child:
    text = f"and {number(count - shown)} more; /debug/services/ lists all of them"
    return tag("p", text, class_="note") if count > shown else None


def _bullets(lines: Iterable[str]) -> Markup:
    return tag("ul", [tag("li", code(line)) for line in lines])


# -- the drawing


def drawing(port: Port) -> Drawing:
    """Return the boxes and wires of a service port: addresses, chains, endpoints. Pure."""
    boxes: dict[str, Box] = {}
    wires: dict[tuple[str, str], None] = {}

    def add(box: Box, *above: str) -> str:
        boxes.setdefault(box.key, box)
        wires.update(dict.fromkeys((one, box.key) for one in above))
        return box.key

    policies = {spread.chain: f"policy {spread.policy}" for spread in port.spreads}
    for address in port.addresses:
        counted = "" if address.connections is None else f", {plural(address.connections, 'connection')}"
        at = add(Box(f"address {_where(address)}", _where(address), f"{address.kind}{counted}", "address"))
        for chain in address.chains:
            at = add(Box(chain, chain, policies.get(chain, _NOTES.get(chain[:9], ""))), at)
        if address.verdict != "served":
            add(Box(f"{address.verdict} {address.why}", address.verdict, address.why, "end"), at)
    for spread in port.spreads:
        chain = add(Box(spread.chain, spread.chain, f"policy {spread.policy}"))
        for share in spread.endpoints[:DRAWN]:
            add(_endpoint(spread, share), chain)
        left = len(spread.endpoints) - DRAWN
        if left > 0:
            add(Box(f"{spread.chain} more", f"{number(left)} more", "in the table below"), chain)
    return Drawing(list(boxes.values()), list(wires))


_NOTES = {"KUBE-EXT-": "from outside the cluster", "KUBE-FW-X": "source ranges"}


def _endpoint(spread: Spread, share: Share) -> Box:
    where = "this node" if share.is_on_this_node else share.node
    counted = "" if share.connections is None else plural(share.connections, "connection")
    state = "" if share.state == "ready" else share.state
    missing = "not in the kernel" if share.in_kernel is False else ""
    note = ", ".join(part for part in (percent_of(share.share), where, counted, state, missing) if part)
    kind = "endpoint" if not missing and share.state == "ready" else "missing"
    return Box(f"{spread.chain} {share.chain}", share.target, note, kind, share.share)
