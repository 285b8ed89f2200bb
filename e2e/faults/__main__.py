"""``python -m e2e.faults``: do every fault on both backends, print the table, exit 1 unless every row is right."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable

from e2e.faults import bench
from e2e.faults.bench import Result
from e2e.faults.rows import ROWS, Row
from e2e.faults.scene import Scene
from e2e.netlab import Backend, LabError

BACKENDS: tuple[Backend, ...] = ("nft", "legacy")
HEAD = ("fault", "backend", "noticed after", "healed after", "connections failed", "objects lost", "")
WIDTHS = (47, 7, 13, 12, 18, 12, 0)


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m e2e.faults", description=__doc__)
    parser.add_argument("--backend", choices=(*BACKENDS, "both"), default="both")
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    parser.add_argument("--quick", action="store_true", help="the rows that `make test` does")
    parser.add_argument("--patience", type=float, default=1.0, help="stretch all limits, for machines that are busy")
    parser.add_argument("--json", action="store_true", help="one JSON line for each row")
    arguments = parser.parse_args()
    if os.geteuid():
        sys.exit("The fault bench makes network namespaces and needs root: sudo make faults")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the laboratory is removed
    rows = [row for row in ROWS if arguments.only in row.name and (row.is_quick or not arguments.quick)]
    if not rows:
        sys.exit(f"no row is called {arguments.only!r}")
    results = _both(sys.argv[1:]) if arguments.backend == "both" else _one(arguments.backend, rows, arguments.patience)
    if not arguments.json:
        print(_line(HEAD))
        print(_line(tuple("-" * width for width in WIDTHS)))
    count = wrong = 0
    for result in results:
        count, wrong = count + 1, wrong + bool(result.wrong)
        print(json.dumps(result.as_dict()) if arguments.json else _line(_cells(result)), flush=True)
    if not arguments.json:
        print(f"\n{count} rows, {wrong} wrong" if wrong else f"\n{count} rows, every one is right")
    return 1 if wrong or not count else 0


def _one(backend: Backend, rows: Iterable[Row], patience: float) -> Iterable[Result]:
    with Scene(backend) as scene:
        for row in rows:
            if backend in row.backends:
                yield bench.run(scene, row, patience)


def _both(arguments: list[str]) -> Iterable[Result]:
    """Do both backends at once, each in a process and a laboratory of its own."""
    rest = [part for part in arguments if part != "--json"]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "e2e.faults", *rest, "--backend", backend, "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for backend in BACKENDS
    ]
    for process in running:
        assert process.stdout is not None
        for line in process.stdout:
            yield Result(**json.loads(line))
        if process.wait() not in (0, 1):
            raise LabError(f"the bench ended with status {process.returncode}")


def _cells(result: Result) -> tuple[str, ...]:
    def seconds(value: float | None) -> str:
        return "never" if value is None else f"{value:.1f} s"

    return (
        result.fault,
        result.backend,
        seconds(result.noticed) if result.is_noticeable else "-",
        seconds(result.healed),
        f"{result.failed} of {result.connections}",
        str(result.lost),
        f"WRONG: {result.wrong}" if result.wrong else "",
    )


def _line(cells: tuple[str, ...]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
