"""The kinds of value that a setting can have: how each is read from a document, from a flag, and written back.

A kind knows form only ("a duration"); bounds and choices belong to the setting (`settings`), and what must hold between
two settings to `validate`. Every reader raises ValueError whose text completes "the value …".
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from pykubeproxy.config import addresses
from pykubeproxy.config.durations import format_duration, parse_duration

_INT32 = 1 << 31
_QUANTITY = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(m|k|[KMGTPE]i?|[eE][+-]?[0-9]+)?", re.ASCII)
_GO_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_GO_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value. ``flag_type`` is the word of kube-proxy's help; ``zero`` is what absent means to Go."""

    flag_type: str
    zero: object
    from_document: Callable[[object], object]
    from_flag: Callable[[str], object]
    to_document: Callable[[Any], object] = lambda value: value
    merge: Callable[[Any, Any], object] | None = None
    """How a flag given twice adds up; None: the last one wins."""


def kind_of_json(value: object) -> str:
    """Name the type of a document's value for a message."""
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "a mapping"}
    return names.get(type(value), "a value")


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {kind_of_json(value)}")  # noqa: TRY004 - a fault of input
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {kind_of_json(value)}")  # noqa: TRY004
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number, not {kind_of_json(value)}")  # noqa: TRY004
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("must be a finite number")
    return number


def _int32(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a whole number, not {kind_of_json(value)}")  # noqa: TRY004
    if isinstance(value, float) and not value.is_integer():
        raise ValueError("must be a whole number")
    if not -_INT32 <= value < _INT32:
        raise ValueError("must fit in 32 bits")
    return int(value)


def _level(value: object) -> int:
    level = _int32(value)
    if level < 0:
        raise ValueError("must be 0 or more")
    return level


def _duration(value: object) -> float:
    if isinstance(value, str):
        return parse_duration(value)
    if value == 0 and not isinstance(value, bool):
        return 0.0
    raise ValueError(f'must be a duration with its unit, like "30s", not {kind_of_json(value)}')


def _duration_or_nanoseconds(value: object) -> float:
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) >> 63:
            raise ValueError("must fit in 64 bits")
        return value / 1e9
    return _duration(value)


def _strings(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("must be a list of strings")
    return value


def _gates(value: object) -> dict[str, bool]:
    if not isinstance(value, dict) or not all(isinstance(gate, bool) for gate in value.values()):
        raise ValueError("must be a mapping of feature names to true or false")
    return dict(value)


def _quantity(value: object) -> str:
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not _QUANTITY.fullmatch(text):
        raise ValueError('must be a quantity, like "0" or "64Ki"')
    return text


def _vmodule(value: object) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list of mappings of filePattern and verbosity")  # noqa: TRY004
    items = []
    for item in value:
        pattern = item.get("filePattern") if isinstance(item, dict) else None
        if not isinstance(pattern, str) or not pattern or set("=,") & set(pattern):
            raise ValueError('must be a list of mappings of filePattern (a name without "=" and ",") and verbosity')
        items.append((pattern, _level(item.get("verbosity") or 0)))
    return tuple(items)


def _integer_from_text(text: str) -> int:
    try:
        # base 0 is Go's: 0x10 and 0o20 are numbers; so is 020, which Python refuses
        number = int(text, 8) if re.fullmatch(r"[+-]?0[0-7]+", text, re.ASCII) else int(text, 0)
    except ValueError:
        raise ValueError("must be a whole number") from None
    return _int32(number)


def _level_from_text(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("must be a whole number, 0 or more")
    return _int32(int(text[:20]))


def _number_from_text(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError("must be a number") from None
    return _number(number)


def boolean_from_text(text: str) -> bool:
    """Read a boolean as Go's flags do."""
    if text in _GO_TRUE:
        return True
    if text in _GO_FALSE:
        return False
    raise ValueError("must be true or false")


def strings_from_text(text: str) -> list[str]:
    """Read a comma-separated list; parts may be quoted as in CSV."""
    try:
        return next(csv.reader([text], strict=True)) if text else []
    except (csv.Error, StopIteration):
        raise ValueError("must be a comma-separated list") from None


def _gates_from_text(text: str) -> dict[str, bool]:
    gates = {}
    for part in filter(None, text.split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not name or not equals:
            raise ValueError("must be a list of Name=true or Name=false")
        gates[name] = boolean_from_text(value)
    return gates


def _vmodule_from_text(text: str) -> tuple[tuple[str, int], ...]:
    items = []
    for part in filter(None, text.split(",")):
        pattern, _, level = part.partition("=")
        if not pattern or not (level.isascii() and level.isdigit()):
            raise ValueError("must be a list of pattern=N")
        items.append((pattern, _level_from_text(level)))
    return tuple(items)


def _host_port(default_port: int, flag_type: str = "ipport") -> Kind:
    def read(value: object) -> str:
        text = _string(value)
        return addresses.parse_host_port(text, default_port) if text else ""

    return Kind(flag_type, "", read, read)


def _ip(value: object) -> str:
    text = _string(value)
    return addresses.parse_ip(text) if text else ""


def _cluster_cidrs(value: object) -> tuple[str, ...]:
    return addresses.parse_cluster_cidrs(_string(value))


def _nodeports(value: object) -> tuple[str, ...]:
    return addresses.parse_nodeport_addresses(_strings(value))


def _duration_or_none(seconds: float) -> float | None:
    if seconds < 0:
        raise ValueError("must not be negative")
    return seconds or None


STRING = Kind("string", "", _string, _string)
BOOL = Kind("bool", False, _boolean, boolean_from_text)
INT32 = Kind("int32", 0, _int32, _integer_from_text)
LEVEL = Kind("Level", 0, _level, _level_from_text)
FLOAT = Kind("float32", 0.0, _number, _number_from_text, lambda value: int(value) if value == int(value) else value)
DURATION = Kind("duration", 0.0, _duration, parse_duration, format_duration)
DURATION_OR_NANOSECONDS = Kind("duration", 0.0, _duration_or_nanoseconds, parse_duration, format_duration)
TIMEOUT = Kind(
    "duration",
    None,
    lambda value: _duration_or_none(_duration(value)),
    lambda text: _duration_or_none(parse_duration(text)),
    lambda seconds: format_duration(seconds or 0.0),
)
"""A duration whose zero means "leave alone" and is None inside."""
STRINGS = Kind(
    "strings",
    (),
    lambda value: tuple(_strings(value)),
    lambda text: tuple(strings_from_text(text)),
    lambda value: list(value) or None,
    lambda old, new: (*old, *new),
)
PATHS = Kind("path", (), STRINGS.from_document, lambda text: (text,), list, lambda old, new: (*old, *new))
"""Paths, one to a flag: a comma is a legal part of one."""
GATES = Kind("mapStringBool", {}, _gates, _gates_from_text, dict, lambda old, new: {**old, **new})
QUANTITY = Kind("quantity", "0", _quantity, _quantity)
VMODULE = Kind(
    "pattern=N,...",
    (),
    _vmodule,
    _vmodule_from_text,
    lambda value: [{"filePattern": pattern, "verbosity": level} for pattern, level in value],
    lambda old, new: (*old, *new),
)
IP = Kind("ip", "", _ip, _ip)
HEALTHZ_ADDRESS = _host_port(10256)
METRICS_ADDRESS = _host_port(10249)
CLUSTER_CIDRS = Kind("string", (), _cluster_cidrs, _cluster_cidrs, ",".join)
NODEPORTS = Kind(
    "strings",
    (),
    _nodeports,
    lambda text: addresses.parse_nodeport_addresses(strings_from_text(text)),
    lambda value: list(value) or None,
    lambda old, new: addresses.parse_nodeport_addresses((*cast("tuple[str, ...]", old), *new)),
)
LOG_FORMAT = Kind("string", "", _string, _string, lambda value: value or "text")
"""Unset is "pick by the terminal" inside; kube-proxy knows only its default."""
PROXY_MODE = Kind("ProxyMode", "", _string, _string)
LOCAL_MODE = Kind("LocalMode", "", _string, _string)
