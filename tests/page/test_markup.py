"""Whatever text says, it stays text: markup comes from the program alone."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.serving.pagehtml import Markup, card, code, facts, join, page, table, tag
from pykubeproxy.serving.pagesvg import Box, Drawing, across, down

HOSTILE = "</code><script>alert(\"1\")</script><img src=x onerror='y'>&amp;"


class Read(HTMLParser):
    """Collects elements, attributes and text."""

    def __init__(self, markup):
        super().__init__()
        self.elements, self.attributes, self.texts = [], [], []
        self.feed(str(markup))
        self.close()

    def handle_starttag(self, element, attributes):
        self.elements.append(element)
        self.attributes += attributes

    def handle_data(self, text):
        self.texts.append(text)


def test_a_hostile_text_is_shown_as_it_is():
    read = Read(tag("p", code(HOSTILE), title=HOSTILE))
    assert read.elements == ["p", "code"]
    assert "".join(read.texts) == HOSTILE
    assert read.attributes == [("title", HOSTILE)]


@given(st.text())
def test_any_text_comes_back(text):
    text = text.replace("\r", "")
    read = Read(tag("p", [text, None, tag("b", text)], data_x=text))
    assert read.elements == ["p", "b"]
    assert "".join(read.texts) == text * 2
    assert read.attributes == [("data-x", text)]


def test_only_markup_is_not_escaped():
    assert join(["<", Markup("<br>"), 5, None, ["&"]]) == "&lt;<br>5&amp;"


def test_every_part_escapes():
    parts = [
        card(HOSTILE, HOSTILE),
        facts([(HOSTILE, HOSTILE)]),
        table([HOSTILE], [[HOSTILE]]),
        across(_drawing(), HOSTILE),
        down(_drawing(), HOSTILE),
    ]
    text = page(HOSTILE, *parts).body.decode()
    assert "script" not in Read(text).elements
    assert "img" not in Read(text).elements
    assert not any(name.startswith("on") for name, _ in Read(text).attributes)


def _drawing():
    return Drawing([Box("a", HOSTILE, HOSTILE, share=0.5), Box("b", HOSTILE, HOSTILE, "end")], [("a", "b")])


def test_the_browser_is_told_to_load_nothing():
    headers = dict(page("x").headers)
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
