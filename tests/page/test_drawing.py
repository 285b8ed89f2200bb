"""Drawings: boxes do not overlap, wires lead to the right, a crowd of endpoints is cut short, in both forms."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.serving.pagesvg import Bar, Box, Drawing, across, down, sparkline

_RECT = re.compile(r'<rect class="(\w+)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"')
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


@st.composite
def drawings(draw):
    count = draw(st.integers(1, 14))
    boxes = [Box(str(n), f"box {n}", draw(st.sampled_from(["", "a note of some length"]))) for n in range(count)]
    wires = draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=30))
    return Drawing(boxes, [(str(a), str(b)) for a, b in sorted(wires) if a < b])


@given(drawings(), st.sampled_from([across, down]))
def test_boxes_lie_apart_and_inside_the_picture(drawing, form):
    svg = form(drawing, "x")
    width, height = map(float, _SIZE.search(svg).groups())
    places = [tuple(map(float, found[1:])) for found in _RECT.findall(svg) if found[0] == "box"]
    assert len(places) >= len(drawing.boxes)
    for x, y, w, h in places:
        assert x >= 0
        assert x + w <= width
        assert y >= 0
        assert y + h <= height + 0.2
    for (x1, y1, w1, h1), (x2, y2, w2, h2) in itertools.combinations(places, 2):
        assert x1 + w1 <= x2 or x2 + w2 <= x1 or y1 + h1 <= y2 + 0.2 or y2 + h2 <= y1 + 0.2


@given(drawings())
def test_wires_lead_to_the_right(drawing):
    column = drawing.columns()
    assert all(column[start] < column[end] for start, end in drawing.wires)


def test_ends_stand_at_the_right():
    drawing = Drawing([Box(key, key) for key in "abcdef"], [("a", "b"), ("b", "c"), ("c", "d"), ("e", "f")])
    assert drawing.columns() == {"a": 0, "b": 1, "c": 2, "d": 3, "e": 0, "f": 3}


def test_a_box_that_comes_again_is_only_named():
    drawing = Drawing([Box(key, f"box-{key}") for key in "abcd"], [("a", "c"), ("b", "c"), ("c", "d")])
    svg = down(drawing, "x")
    assert svg.count(">box-c</text>") == 2
    assert svg.count(">box-d</text>") == 1
    assert "see above" in svg


@pytest.mark.parametrize("form", [across, down])
def test_text_is_cut_to_its_box(form):
    svg = form(Drawing([Box("a", "x" * 500)], []), "x")
    if form is down:
        assert "…</text>" in svg
    assert f"<title>{'x' * 500}</title>" in svg


@given(st.lists(st.floats(0, 1000), max_size=120))
def test_bars_stay_inside(seconds):
    svg = sparkline([Bar(one, "part", "") for one in seconds], "x", places=120)
    width, height = map(float, _SIZE.search(svg).groups())
    found = [tuple(map(float, one[1:])) for one in _RECT.findall(svg)]
    assert len(found) == len(seconds)
    for x, y, w, h in found:
        assert x >= 0
        assert x + w <= width + 0.2
        assert y >= 0
        assert y + h <= height
