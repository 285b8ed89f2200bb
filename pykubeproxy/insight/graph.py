"""An Explanation as a drawing of its chains: Mermaid (which GitHub and many wikis render) or DOT (Graphviz)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from pykubeproxy.insight.explain import Address, Explanation
from pykubeproxy.insight.tracetext import percent_of
from pykubeproxy.model.addresses import with_port

DRAWN = 12
"""So many endpoints of a chain are drawn unless all are asked for: Mermaid takes 500 edges, an eye fewer."""

Format = Literal["mermaid", "dot"]


class _Node(NamedTuple):
    label: tuple[str, ...]
    kind: str
    """address, chain, endpoint or end"""


class _Edge(NamedTuple):
    start: str
    end: str
    label: str = ""


class _Drawing:
    """Nodes by what they stand for, each once, and edges."""

    def __init__(self) -> None:
        self.nodes: dict[str, _Node] = {}
        self.edges: dict[_Edge, None] = {}
        self._ids: dict[str, str] = {}

    def node(self, key: str, label: Iterable[str], kind: str) -> str:
        """Return the id of a node, made when first named."""
        if key not in self._ids:
            self._ids[key] = f"n{len(self._ids)}"
            self.nodes[self._ids[key]] = _Node(tuple(label), kind)
        return self._ids[key]

    def edge(self, start: str, end: str, label: str = "") -> None:
        """Add an edge."""
        self.edges[_Edge(start, end, label)] = None


def draw(explanations: Iterable[Explanation], kind: Format, *, is_whole: bool = False) -> str:
    """Return the text of one drawing. ``is_whole``: every endpoint is drawn."""
    drawing = _Drawing()
    for explanation in explanations:
        for port in explanation.ports:
            for address in port.addresses:
                _address(drawing, port.name, port.protocol, address)
            for spread in port.spreads:
                start = drawing.node(spread.chain, _chain(spread.chain, f"policy {spread.policy}"), "chain")
                drawn = spread.endpoints if is_whole or len(spread.endpoints) <= DRAWN else spread.endpoints[:DRAWN]
                left = len(spread.endpoints) - len(drawn)
                for share in drawn:
                    chain = drawing.node(share.chain, _chain(share.chain), "chain")
                    end = drawing.node(f"-> {share.target}", (share.target, share.node), "endpoint")
                    drawing.edge(start, chain, percent_of(share.share))
                    drawing.edge(chain, end, "DNAT")
                if left:
                    rest = sum(share.share for share in spread.endpoints[len(drawn) :])
                    more = drawing.node(f"{spread.chain} more", (f"{left:,} more endpoints",), "endpoint")
                    drawing.edge(start, more, percent_of(rest))
    return _mermaid(drawing) if kind == "mermaid" else _dot(drawing)


def _address(drawing: _Drawing, port: str, protocol: str, address: Address) -> None:
    where = with_port(address.address, address.port) if address.address else f"any node address:{address.port}"
    start = drawing.node(f"{where}/{protocol}", (address.kind, f"{where}/{protocol.lower()}"), "address")
    at, label = start, ""
    for chain in address.chains:
        step = drawing.node(chain, _chain(chain, port), "chain")
        drawing.edge(at, step, label)
        at = step
    if address.verdict != "served":
        end = drawing.node(f"{address.verdict} {address.why}", (address.verdict, address.why), "end")
        drawing.edge(at, end)


def _chain(name: str, note: str = "") -> tuple[str, ...]:
    return (name, note) if note else (name,)


def _mermaid(drawing: _Drawing) -> str:
    shapes = {"address": ("([", "])"), "chain": ("[", "]"), "endpoint": ("[[", "]]"), "end": ("{{", "}}")}
    lines = ["flowchart LR"]
    for key, node in drawing.nodes.items():
        left, right = shapes[node.kind]
        label = "<br>".join(part.replace('"', "#quot;") for part in node.label if part)
        lines.append(f'  {key}{left}"{label}"{right}')
    for edge in drawing.edges:
        label = f'|"{edge.label}"|' if edge.label else ""
        lines.append(f"  {edge.start} -->{label} {edge.end}")
    return "\n".join(lines) + "\n"


def _dot(drawing: _Drawing) -> str:
    shapes = {"address": "oval", "chain": "box", "endpoint": "box3d", "end": "octagon"}
    lines = ["digraph service {", "  rankdir=LR;", '  node [fontname="monospace"];']
    for key, node in drawing.nodes.items():
        label = "\\n".join(part.replace("\\", "\\\\").replace('"', '\\"') for part in node.label if part)
        lines.append(f'  {key} [shape={shapes[node.kind]}, label="{label}"];')
    for edge in drawing.edges:
        label = f' [label="{edge.label}"]' if edge.label else ""
        lines.append(f"  {edge.start} -> {edge.end}{label};")
    return "\n".join([*lines, "}"]) + "\n"
