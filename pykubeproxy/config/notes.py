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


def log_notes(notes: Iterable[Note]) -> None:
    """Write each note as one warning."""
    for note in notes:
        _log.warning(note.event, **note.data)
