"""What stands in front of iptables-restore and iptables-save in PATH, and the orders that it carries out.

Without orders the scripts become the real program at once (``exec``: the same process), so that nothing is different.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent / "inside" / "seam.py"
NAMES = tuple(
    f"{stem}-{kind}-{what}"
    for stem in ("iptables", "ip6tables")
    for kind in ("nft", "legacy")
    for what in ("restore", "save")
)


class Seam:
    """A folder to put first in PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._orders = folder / "orders"
        self._done = folder / "done"
        self._write("")
        for name in NAMES:
            real = shutil.which(name)
            if real:
                script = folder / name
                script.write_text(
                    f"#!/bin/sh\n[ -s '{self._orders}' ] || exec '{real}' \"$@\"\n"
                    f"exec '{sys.executable}' -I -S -B '{PROGRAM}' '{folder}' '{real}' \"$@\"\n"
                )
                script.chmod(0o755)

    def order(self, do: str, *, program: str = "restore", times: int | None = 1, **how: Any) -> None:
        """Let the next ``times`` runs (None: all) of a program end otherwise; see ``inside/seam.py``."""
        with self._locked():
            orders = json.loads(self._orders.read_text() or "[]")
            orders.append({"do": do, "program": program, "times": times, **how})
            self._write(json.dumps(orders))

    def clear(self) -> None:
        """Take back what was ordered."""
        with self._locked():
            self._write("")

    def carried_out(self) -> int:
        """Return how many runs were spoilt so far."""
        return len(self._done.read_text().splitlines()) if self._done.exists() else 0

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self, orders: str) -> None:
        fresh = self.folder / "orders.new"
        fresh.write_text(orders)
        fresh.replace(self._orders)
