"""Drawings of the status page, as SVG: bars over time, and boxes with wires between them.

It exists because a picture needs no script and no library if somebody works out where its parts stand. It must not know
what the boxes mean. Colours are classes of the page's style, so that they follow light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pykubeproxy.serving.pagehtml import Markup, tag

_CHARACTER, _SMALL = 7.3, 6.7
"""Width of a character of the drawings' two fonts, a little generously, in pixels."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its size, its class, and what is told of it where the pointer rests."""

    size: float
    kind: str
    title: str


def sparkline(bars: Sequence[Bar], label: str, *, places: int, width: int = 480, height: int = 56) -> Markup:
    """Draw bars on a logarithmic scale, the newest at the right; ``places`` is how many there is room for."""
    step = width / places
    sizes = [max(bar.size, 1e-4) for bar in bars]
    low, high = math.log10(min([*sizes, 1e-3])), math.log10(max([*sizes, 1e-2]))
    drawn = []
    for index, (bar, size) in enumerate(zip(bars, sizes, strict=True)):
        tall = 4 + (height - 6) * (math.log10(size) - low) / (high - low)
        drawn.append(
            tag(
                "rect",
                tag("title", bar.title),
                class_=bar.kind,
                x=_round(width - (len(bars) - index) * step),
                y=_round(height - tall),
                width=_round(max(1.0, step - 1)),
                height=_round(tall),
            )
        )
    base = tag("line", class_="base", x1=0, y1=height, x2=width, y2=height)
    return tag(
        "svg", tag("title", label), base, drawn, view_box=f"0 0 {width} {height + 1}", width=width, height=height + 1,
        role="img", aria_label=label,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Box:
    """One box: two lines of text, a class, and how far (0 to 1) it is filled."""

    key: str
    title: str
    note: str = ""
    kind: str = "box"
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes in order of appearance, and wires from box to box by key. There are no circles."""

    boxes: Sequence[Box]
    wires: Sequence[tuple[str, str]]

    def followers(self) -> dict[str, list[str]]:
        """Return box -> the boxes that its wires lead to."""
        found: dict[str, list[str]] = {box.key: [] for box in self.boxes}
        for start, end in self.wires:
            found[start].append(end)
        return found

    def columns(self) -> dict[str, int]:
        """Return how far to the right each box stands: beginnings at the left, ends at the right, others late."""
        left = {box.key: 0 for box in self.boxes}
        for _ in self.boxes:
            moved = False
            for start, end in self.wires:
                if left[start] <= left[end]:
                    left[start] = left[end] + 1
                    moved = True
            if not moved:
                break
        last = max(left.values(), default=0)
        ends = {end for _, end in self.wires}
        return {key: last - behind if key in ends else 0 for key, behind in left.items()}


_HIGH, _GAP, _BETWEEN = 42, 10, 44


def across(drawing: Drawing, label: str) -> Markup:
    """Draw from left to right, for a wide screen."""
    column = drawing.columns()
    count = max(column.values(), default=0) + 1
    members = [[box for box in drawing.boxes if column[box.key] == place] for place in range(count)]
    widths = [max([120.0, *(_width(box) for box in column_)]) for column_ in members]
    lefts = [sum(widths[:place]) + place * _BETWEEN + 1 for place in range(count)]
    middle = _middles(drawing, members)
    boxes = [
        _box(box, lefts[place], middle[box.key] - _HIGH / 2, widths[place])
        for place, column_ in enumerate(members)
        for box in column_
    ]
    wires = []
    for start, end in drawing.wires:
        x1, x2 = lefts[column[start]] + widths[column[start]], lefts[column[end]]
        bend = _BETWEEN / 2
        y1, y2 = middle[start], middle[end]
        flat = x2 - _BETWEEN
        way = f"M{_round(x1)} {_round(y1)}H{_round(flat)}C{_round(flat + bend)} {_round(y1)} "
        wires.append(tag("path", class_="wire", d=f"{way}{_round(x2 - bend)} {_round(y2)} {_round(x2)} {_round(y2)}"))
    width = sum(widths) + (count - 1) * _BETWEEN + 2
    height = max(middle.values(), default=0.0) + _HIGH / 2 + 1
    return _svg([*wires, *boxes], (width, height), label, "wide")


def _middles(drawing: Drawing, members: Sequence[Sequence[Box]]) -> dict[str, float]:
    """Choose how far down each box stands: beside what it leads to, then beside what leads to it, never overlapping."""
    leads_to = drawing.followers()
    led_from: dict[str, list[str]] = {key: [] for key in leads_to}
    for start, end in drawing.wires:
        led_from[end].append(start)
    middle: dict[str, float] = {}
    for column in members:
        for index, box in enumerate(column):
            middle[box.key] = index * (_HIGH + _GAP)
    for order, beside in ((reversed(members), leads_to), (members, led_from), (reversed(members[:-1]), leads_to)):
        for column in order:
            _settle(column, middle, beside)
    lowest = min(middle.values(), default=0.0)
    return {key: value - lowest + _HIGH / 2 + 1 for key, value in middle.items()}


def _settle(column: Sequence[Box], middle: dict[str, float], beside: Mapping[str, Sequence[str]]) -> None:
    wanted = []
    for box in column:
        others = beside[box.key]
        wanted.append(sum(middle[other] for other in others) / len(others) if others else middle[box.key])
    at = float("-inf")
    placed = []
    for box, want in sorted(zip(column, wanted, strict=True), key=lambda pair: pair[1]):
        at = max(want, at + _HIGH + _GAP)
        placed.append((box.key, at, want))
    # Pushed down where it was crowded: the whole column comes back up by half of that.
    excess = sum(at - want for _, at, want in placed) / len(placed) if placed else 0.0
    for key, at, _ in placed:
        middle[key] = at - excess


_INDENT = 16


def down(drawing: Drawing, label: str, *, width: int = 366) -> Markup:
    """Draw from top to bottom with indents, for a phone. A box that comes again is only named again."""
    followers = drawing.followers()
    known = {box.key: box for box in drawing.boxes}
    starts = [box.key for box in drawing.boxes if not any(end == box.key for _, end in drawing.wires)]
    boxes: list[Markup] = []
    wires: list[Markup] = []
    drawn: set[str] = set()
    top = 1.0

    def draw(key: str, depth: int) -> float:
        nonlocal top
        left, middle = 1.0 + depth * _INDENT, top + _HIGH / 2
        again = key in drawn
        box = known[key]
        if again:
            box = Box(key, box.title, "see above", box.kind)
        drawn.add(key)
        boxes.append(_box(box, left, top, width - left - 1))
        bottom = top + _HIGH
        top = bottom + _GAP
        for follower in () if again else followers[key]:
            at = draw(follower, depth + 1)
            spine = left + _INDENT / 2
            wires.append(tag("path", class_="wire", d=f"M{_round(spine)} {_round(bottom)}V{_round(at)}h{_INDENT // 2}"))
        return middle

    for start in starts:
        draw(start, 0)
    return _svg([*wires, *boxes], (width, max(1.0, top - _GAP + 1)), label, "narrow")


def _box(box: Box, left: float, top: float, width: float) -> Markup:
    room = int((width - 16) / _CHARACTER)
    parts = [_rectangle(box.kind, left, top, width)]
    if box.share:
        parts.append(_rectangle("share", left + 1, top, max(4.0, (width - 2) * box.share)))
        parts.append(_rectangle(f"{box.kind} hollow", left, top, width))
    high = (17, 33) if box.note else (25, 0)
    parts.append(tag("text", _cut(box.title, room), x=_round(left + 8), y=_round(top + high[0])))
    if box.note:
        note = _cut(box.note, int((width - 16) / _SMALL))
        parts.append(tag("text", note, class_="small", x=_round(left + 8), y=_round(top + high[1])))
    return tag("g", tag("title", f"{box.title}\n{box.note}".rstrip()), parts)


def _rectangle(kind: str, left: float, top: float, width: float) -> Markup:
    return tag("rect", class_=kind, x=_round(left), y=_round(top), width=_round(width), height=_HIGH, rx=6)


def _svg(parts: Iterable[Markup], size: tuple[float, float], label: str, kind: str) -> Markup:
    width, height = map(_round, size)
    return tag(
        "svg", tag("title", label), parts, class_=kind, role="img", aria_label=label,
        width=width, height=height, view_box=f"0 0 {width} {height}",
    )  # fmt: skip


def _width(box: Box) -> float:
    return max(len(box.title) * _CHARACTER, len(box.note) * _SMALL) + 18


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: max(1, room - 1)]}…"


def _round(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
