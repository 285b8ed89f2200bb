import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.config.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("0s", 0.0),
        ("30s", 30.0),
        ("1h2m3.5s", 3723.5),
        ("24h", 86400.0),
        ("15m0s", 900.0),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("100ms", 0.1),
        ("5us", 5e-6),
        ("5µs", 5e-6),
        ("5μs", 5e-6),
        ("7ns", 7e-9),
        ("-1m", -60.0),
        ("+1m", 60.0),
        ("1m1m", 120.0),
    ],
)
def test_reads_what_go_reads(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds, abs=1e-12)


@pytest.mark.parametrize(
    "text", ["", " ", "30", "-", "+", "s", ".s", "1d", "1h 2m", " 1s", "1s ", "1.2.3s", "1e3s", "\uff11s", "--1s"]
)
def test_refuses_what_go_refuses(text):
    with pytest.raises(ValueError, match="must be a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["9999999999h", "2562048h"])
def test_refuses_what_64_bits_do_not_hold(text):
    with pytest.raises(ValueError, match="64 bits"):
        parse_duration(text)


def test_a_text_without_end_is_refused_at_once():
    with pytest.raises(ValueError, match="must be a duration"):
        parse_duration("1" * 1_000_000 + "s")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (1.0, "1s"),
        (30.0, "30s"),
        (900.0, "15m0s"),
        (3600.0, "1h0m0s"),
        (86400.0, "24h0m0s"),
        (3723.5, "1h2m3.5s"),
        (0.1, "100ms"),
        (0.0015, "1.5ms"),
        (5e-6, "5µs"),
        (7e-9, "7ns"),
        (-1.5, "-1.5s"),
    ],
)
def test_writes_as_go_writes(seconds, text):
    assert format_duration(seconds) == text


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_what_is_written_reads_back(nanoseconds):
    assert round(parse_duration(format_duration(nanoseconds / 1e9)) * 1e9) == nanoseconds


@given(st.text())
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(ValueError):
        assert isinstance(parse_duration(text), float)
