"""Logging set-up: structlog on stderr, for people on a terminal, JSON elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import TextIO, cast

# structlog imports rich where it is there, to paint tracebacks, which are printed plainly here: 50 ms and 13 MB.
_IS_PAINTED = "rich" in sys.modules
if not _IS_PAINTED:
    sys.modules["rich"] = None  # type: ignore[assignment]

import structlog  # noqa: E402

if not _IS_PAINTED:
    del sys.modules["rich"]

LEVELS = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}


class _Stderr:
    """Standard error as it is at the moment of writing: a progress bar puts itself in its place for a while."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def isatty(self) -> bool:
        return sys.stderr.isatty()


_STDERR = _Stderr()


def set_up(*, style: str = "", verbosity: int = 0, quiet: bool = False, stream: TextIO | None = None) -> None:
    """Configure logging.

    ``style`` is ``json``, ``text``, or "" (text on a terminal, JSON elsewhere). ``verbosity`` is kube-proxy's ``-v``:
    from 4 on, debug lines are shown. ``quiet`` leaves warnings and errors only, for commands whose output is their
    answer: as plain sentences, if no style is asked for.
    """
    out = stream or cast("TextIO", _STDERR)
    as_text = style == "text" if style else out.isatty()
    level = logging.WARNING if quiet else logging.DEBUG if verbosity >= 4 else logging.INFO
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if quiet and not style:
        as_text, renderer = False, _sentence
    elif as_text:
        renderer = structlog.dev.ConsoleRenderer(colors=out.isatty(), sort_keys=False)
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if not as_text:
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )


def _sentence(_logger: object, _method: str, line: structlog.typing.EventDict) -> str:
    """Render a line as ``warning: event: name value, name value``; the name of a single value goes without saying."""
    trace = line.pop("exception", "")
    data = [(name, value) for name, value in line.items() if name not in ("event", "level", "timestamp")]
    words = [f"{name.replace('_', ' ')} {_told(value)}" for name, value in data]
    rest = ", ".join(words) if len(words) != 1 else _told(data[0][1])
    return f"{line['level']}: {': '.join(filter(None, (str(line['event']), rest)))}" + (f"\n{trace}" if trace else "")


def _told(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
