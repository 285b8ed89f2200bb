"""What is worth telling about a configuration that loads all the same.

Loading stays pure: it returns notes, and whoever reads a file or the command line logs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import structlog

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Note:
    """One log line to be: an event in a few short words and its data."""

    event: str
    data: dict[str, object] = field(default_factory=dict)

    def text(self) -> str:
        """Return it as a line among faults, where nothing is logged any more: ``field: event (the rest)``."""
        rest = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self.data.items() if name != "field")
        about = f"{self.data['field']}: " if "field" in self.data else ""
        return f"{about}{self.event}{f' ({rest})' if rest else ''}"


def log_notes(notes: Iterable[Note]) -> None:
    """Write each note as one warning."""
    for note in notes:
        _log.warning(note.event, **note.data)
