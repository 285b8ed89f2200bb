"""Lines of the log for people: in the order in which they were written, and sentences beside an answer."""

import io

import pytest
import structlog

from pykubeproxy import log


@pytest.fixture
def told():
    """Log a line with one style; returns what came out."""

    def tell(level="info", event="rules written", *, style="", quiet=False, **data):
        out = io.StringIO()
        log.set_up(style=style, quiet=quiet, stream=out)
        structlog.get_logger().log(log.LEVELS[level], event, **data)
        return out.getvalue()

    yield tell
    structlog.reset_defaults()


def test_the_fields_of_a_text_line_keep_their_order(told):
    assert told(style="text", family="IPv4", changed=3, after="0.1 s").endswith("family=IPv4 changed=3 after='0.1 s'\n")


def test_a_command_warns_in_sentences(told):
    assert (
        told("warning", "odd file", quiet=True, problem="a.yaml: is empty") == "warning: odd file: a.yaml: is empty\n"
    )
    assert told("warning", "odd flags", quiet=True, flags=["a", "b"], did_you_mean="c") == (
        "warning: odd flags: flags a, b, did you mean c\n"
    )
    assert told("warning", "nothing else", quiet=True) == "warning: nothing else\n"
    assert told(quiet=True) == ""


def test_a_command_shows_the_traceback_of_what_it_did_not_expect(told):
    try:
        int("a bug")
    except ValueError as error:
        said = told("error", "failed", quiet=True, exc_info=error)
    assert said.startswith("error: failed\nTraceback (most recent call last):")
    assert said.endswith("'a bug'\n")
