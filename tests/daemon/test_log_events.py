"""Log events are a few words with blanks between them, and constant: what varies goes into keys."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pykubeproxy

PACKAGE = Path(pykubeproxy.__file__).parent
LEVELS = frozenset(("debug", "info", "warning", "error", "critical", "exception"))
EVENT = re.compile(r"[A-Za-z][A-Za-z0-9,' -]*")
PASSED_ON = "note.event"
"""The one event that is no constant where it is logged: it is where the Note is made."""


def events() -> Iterator[tuple[str, ast.expr]]:
    """Yield (place, event) of every line that the package may log."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and call.args and _tells(call.func):
                yield f"{path.relative_to(PACKAGE)}:{call.lineno}", call.args[0]


def _tells(function: ast.expr) -> bool:
    match function:
        case ast.Name("Note" | "say"):
            return True
        case ast.Attribute(ast.Name("log" | "_log"), level):
            return level in LEVELS
    return False


def test_events_are_words():
    found = list(events())
    assert len(found) > 90
    odd = [
        f"{place}: {ast.unparse(event)}"
        for place, event in found
        if ast.unparse(event) != PASSED_ON
        and not (isinstance(event, ast.Constant) and EVENT.fullmatch(str(event.value)))
    ]
    assert odd == []
