"""Label and field selectors: text in, a predicate out, with kube-apiserver's words for text that does not parse.

Source of grammar and messages: k8s.io/apimachinery, pkg/labels and pkg/fields. Pure; knows no objects and no resources.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_SPECIAL = "=!(),><"
_SYMBOLS = {")", ",", "!", "==", "=", ">", "<", "!=", "("}
_WORDS = {"in", "notin"}
_OPERATORS = {"in", "=", "==", ">", "<", "notin", "!="}
_OPERATORS_TEXT = "in, notin, =, ==, !=, gt, lt"
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


class SelectorError(ValueError):
    """The selector does not parse; ``str()`` is the API server's message."""


@dataclass(frozen=True, slots=True)
class Term:
    """One requirement. ``operator`` is one of ``in``, ``notin``, ``exists``, ``!``, ``gt``, ``lt``."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Tell whether ``labels`` meet it; a missing label is as good as "not in"."""
        have = labels.get(self.key)
        if self.operator in {"exists", "!"}:
            return (have is not None) == (self.operator == "exists")
        if self.operator == "in":
            return have is not None and have in self.values
        if self.operator == "notin":
            return have is None or have not in self.values
        (limit,) = self.values
        if have is None or not re.fullmatch(r"-?\d+", have):
            return False
        return int(have) > int(limit) if self.operator == "gt" else int(have) < int(limit)


@dataclass(frozen=True, slots=True)
class Selector:
    """Label terms and field terms, all of which must hold."""

    labels: tuple[Term, ...] = ()
    fields: tuple[tuple[str, bool, str], ...] = ()  # (field, is wanted equal, value)

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def matches(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        """Tell whether an object with these labels and selectable fields is meant."""
        return all(term.holds(labels) for term in self.labels) and all(
            (fields.get(field, "") == value) == equal for field, equal, value in self.fields
        )


EVERYTHING = Selector()


def parse_labels(text: str) -> tuple[Term, ...]:
    """Parse a label selector. Raises SelectorError."""
    return _Parser(_scan(text)).parse()


def parse_fields(text: str, convert: Callable[[str], str]) -> tuple[tuple[str, bool, str], ...]:
    """Parse a field selector; ``convert`` maps a field to its stored name, or raises. Raises SelectorError."""
    terms = []
    for part in sorted(re.findall(r"(?:\\.|[^,\\])+", text)):
        found = re.match(r"((?:\\.|[^=!\\])*?)(!=|==|=)(.*)", part, re.DOTALL)
        if found is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        field, operator, value = found.groups()
        terms.append((convert(field), operator != "!=", re.sub(r"\\(.)", r"\1", value)))
    return tuple(terms)


def _scan(text: str) -> list[tuple[str, str]]:
    """Cut into (kind, literal): the kind is the symbol or word itself, ``id``, or ``end``."""
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char in " \t\r\n":
            at += 1
        elif char in _SPECIAL:
            symbol = text[at : at + 2] if text[at : at + 2] in _SYMBOLS else char
            tokens.append((symbol, symbol))
            at += len(symbol)
        else:
            end = at
            while end < len(text) and text[end] not in _SPECIAL and text[end] not in " \t\r\n":
                end += 1
            word = text[at:end]
            tokens.append((word if word in _WORDS else "id", word))
            at = end
    tokens.append(("end", ""))
    return tokens


class _Parser:
    """The grammar of label selectors, one token ahead."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0

    def _peek(self) -> tuple[str, str]:
        """Return the next token where a word like ``in`` is an identifier."""
        kind, literal = self._tokens[self._at]
        return ("id" if kind in _WORDS else kind), literal

    def _take(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def parse(self) -> tuple[Term, ...]:
        terms: list[Term] = []
        while True:
            kind, literal = self._peek()
            if kind == "end":
                return tuple(terms)
            if kind not in {"id", "!"}:
                raise SelectorError(f"found '{literal}', expected: !, identifier, or 'end of string'")
            try:
                terms.append(self._requirement())
            except SelectorError as fault:
                raise SelectorError(f"unable to parse requirement: {fault}") from None
            kind, literal = self._take()
            if kind == "end":
                return tuple(terms)
            if kind != ",":
                raise SelectorError(f"found '{literal}', expected: ',' or 'end of string'")
            kind, literal = self._peek()
            if kind not in {"id", "!"}:
                raise SelectorError(f"found '{literal}', expected: identifier after ','")

    def _requirement(self) -> Term:
        kind, literal = self._take()
        negated = kind == "!"
        if negated:
            kind, literal = self._take()
        if kind != "id":
            raise SelectorError(f"found '{literal}', expected: identifier")
        key = literal
        _check_key(key)
        if negated:
            return Term(key, "!")
        if self._peek()[0] in {"end", ","}:
            return Term(key, "exists")
        operator, literal = self._tokens[self._at]
        self._at += 1
        if operator not in _OPERATORS:
            raise SelectorError(f"found '{literal}', expected: {_OPERATORS_TEXT}")
        values = self._values() if operator in _WORDS else self._exact_value()
        for value in values:
            _check_value(key, value)
        return Term(key, {"=": "in", "==": "in", "!=": "notin", ">": "gt", "<": "lt"}.get(operator, operator), values)

    def _values(self) -> frozenset[str]:
        kind, literal = self._take()
        if kind != "(":
            raise SelectorError(f"found '{literal}' expected: '('")
        values: set[str] = set()
        expects_value = True
        while True:
            kind, literal = self._take()
            if kind == ")":
                if expects_value:
                    values.add("")
                return frozenset(values)
            if kind == "id" and expects_value:
                values.add(literal)
                expects_value = False
            elif kind == ",":
                if expects_value:
                    values.add("")
                expects_value = True
            else:
                expected = "',', or identifier" if expects_value else "',' or ')'"
                raise SelectorError(f"found '{literal}', expected: {expected}")

    def _exact_value(self) -> frozenset[str]:
        if self._peek()[0] in {"end", ","}:
            return frozenset({""})
        kind, literal = self._take()
        if kind != "id":
            raise SelectorError(f"found '{literal}', expected: identifier")
        return frozenset({literal})


def _check_key(key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if (slash and not prefix) or len(name) > 63 or not _LABEL_NAME.fullmatch(name):
        raise SelectorError(
            f'<nil>: Invalid value: "{key}": name part must consist of alphanumeric characters, '
            "'-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  "
            f"or '123-abc', regex used for validation is '{_LABEL_NAME.pattern}')"
        )


def _check_value(key: str, value: str) -> None:
    if len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
        raise SelectorError(
            f'values[0][{key}]: Invalid value: "{value}": a valid label must be an empty string or consist of '
            "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. "
            f"'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_LABEL_VALUE.pattern}')"
        )
