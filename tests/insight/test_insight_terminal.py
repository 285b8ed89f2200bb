"""Answers on a terminal: readable on white and on black, plain where colours are not wanted."""

import io
import sys

import pytest
from insight_demo import ALL, gather, run
from rich.color import Color
from rich.text import Text

from pykubeproxy.commands.common import print_parts
from pykubeproxy.insight import colours


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def shown(monkeypatch):
    """Show parts on a terminal of 80 columns; returns what reached it."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def show(*parts):
        terminal = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            print_parts(parts)
        return terminal.getvalue()

    return show


def test_colours_on_a_terminal_and_none_where_they_are_not_wanted(shown, monkeypatch):
    part = Text.assemble(("bold", "bold"), (" odd", colours.ODD), (" dim", "dim"))
    assert "\x1b[" in shown(part)
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown(part) == "bold odd dim\n"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert shown(part) == "bold odd dim\n"


def test_no_escapes_off_a_terminal(tmp_path):
    manifests = gather(tmp_path / "manifests", *ALL)
    for arguments in (("explain", "shop", "--no-live"), ("trace", "--to", "shop")):
        assert "\x1b" not in run(*arguments, manifests=manifests).stdout


def test_lines_of_a_diff_are_not_broken(shown):
    line = "+-A KUBE-SERVICES " + "-m comment --comment x " * 9
    assert shown(Text(line, overflow="ignore", no_wrap=True)) == f"{line}\n"


@pytest.mark.parametrize("name", ["GOOD", "ODD", "BAD", "SHARE", "OTHERS"])
def test_a_colour_can_be_read_on_white_and_on_black(name):
    """By the contrast of WCAG 2: (L1 + 0.05) / (L2 + 0.05)."""
    parts = [value / 255 for value in Color.parse(getattr(colours, name)).get_truecolor()]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in parts]
    light = sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    assert min(1.05 / (light + 0.05), (light + 0.05) / 0.05) >= 3.8
