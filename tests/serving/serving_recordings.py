"""The recorded answers of kube-proxy 1.36.2, taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "recordings"


@dataclass(frozen=True)
class Recorded:
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        return dict(self.headers)[name]


def answer(name: str) -> Recorded:
    """Read a recording with status line and headers."""
    raw = (FOLDER / f"{name}.txt").read_bytes()
    head, body = re.split(rb"\r?\n\r?\n", raw, maxsplit=1)
    status_line, *lines = head.decode().splitlines()
    _, status, reason = status_line.split(" ", 2)
    headers = [(name, value.strip()) for name, value in (line.split(":", 1) for line in lines)]
    return Recorded(int(status), reason, headers, body)


def series_of(text: str) -> dict[str, set[str]]:
    """Take an exposition apart: family name and type → series (name and labels, no values)."""
    families: dict[str, set[str]] = {}
    series: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            series = families.setdefault(f"{name} {kind}", set())
        elif line and not line.startswith("#"):
            series.add(line.rsplit(" ", 1)[0])
    return families
