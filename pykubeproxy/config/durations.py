"""Durations as Go writes them ("1h2m3.5s"), because that is what files and flags made for kube-proxy contain.

Seconds as float inside, whole nanoseconds at the edge. Nothing here knows what a duration is for.
"""

from __future__ import annotations

import re
from fractions import Fraction

_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, what Go prints
    "μs": 1_000,  # U+03BC, which Go reads as well
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_LIMIT = 1 << 63
_LONGEST_TEXT = 100


def parse_duration(text: str) -> float:
    """Return the seconds that ``text`` means, by the grammar of Go's time.ParseDuration.

    Raises ValueError, whose text completes "the value …".
    """
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in {"+", "-"} else text
    if rest == "0":
        return 0.0
    nanoseconds, position = 0, 0
    if len(rest) > _LONGEST_TEXT:
        rest = ""
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None:
            rest = ""
            break
        nanoseconds += int(Fraction(part[1].removesuffix(".")) * _NANOSECONDS[part[2]])
        position = part.end()
    if not rest:
        raise ValueError('must be a duration with its unit, like "30s" or "1h15m"')
    if nanoseconds >= _LIMIT:
        raise ValueError("is a longer duration than 64 bits of nanoseconds hold")
    return sign * nanoseconds / 1e9


def format_duration(seconds: float) -> str:
    """Write ``seconds`` as Go's Duration.String does: 15m0s, 1.5s, 500ms, 0s."""
    nanoseconds = round(seconds * 1e9)
    sign, nanoseconds = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if nanoseconds == 0:
        return "0s"
    for unit, limit in (("ns", 1_000), ("µs", 1_000_000), ("ms", 1_000_000_000)):
        if nanoseconds < limit:
            return f"{sign}{_decimal(nanoseconds, _NANOSECONDS[unit])}{unit}"
    minutes, rest = divmod(nanoseconds, _NANOSECONDS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, _NANOSECONDS['s'])}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else f"{sign}{text}"


def _decimal(nanoseconds: int, unit: int) -> str:
    whole, fraction = divmod(nanoseconds, unit)
    digits = f"{fraction:0{len(str(unit)) - 1}d}".rstrip("0") if fraction else ""
    return f"{whole}.{digits}" if digits else str(whole)
