"""Run the measurements and print the table: ``python -m e2e.bench [--quick]``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from e2e.bench import machine, report, scenarios
from e2e.bench.clusters import Cluster
from e2e.bench.contestants import Backend, Contestant, kube_proxy, ours
from e2e.bench.kernel import Timeout
from e2e.bench.scenarios import QUICK, Book, Effort
from e2e.netlab import LabError
from pykubeproxy import progress

DOCUMENT = Path(__file__).parents[2] / "docs" / "benchmarks.md"
Part = tuple[str, Callable[[Book], None]]


def parts(contestants: list[Contestant], backends: list[Backend], effort: Effort, *, quick: bool) -> Iterator[Part]:
    """Yield what is to be measured, by name."""
    once = replace(effort, starts=1)
    for backend in backends:
        for one in contestants:
            size = Cluster(1000, 5) if quick else Cluster(5000, 5)
            yield _whole(backend, size, one, effort)
            shapes = (
                [Cluster(5000, 5)]
                if quick
                else [Cluster(1000, 5), Cluster(10_000, 5), Cluster(1, 2000), Cluster(500, 100)]
            )
            for cluster in shapes:
                yield _shape(backend, cluster, one, once)
            yield _inputs(backend, size, one, once)
        size = Cluster(5000, 5) if quick else Cluster(10_000, 5)
        flat = ours("--service-dispatch", "flat", name="ours, flat")
        yield _dialling(backend, size, [*contestants, flat], once)


def _whole(backend: Backend, cluster: Cluster, one: Contestant, effort: Effort) -> Part:
    return f"whole {backend} {cluster} {one.name}", lambda book: scenarios.whole(backend, cluster, one, book, effort)


def _shape(backend: Backend, cluster: Cluster, one: Contestant, effort: Effort) -> Part:
    return f"shape {backend} {cluster} {one.name}", lambda book: scenarios.shape(backend, cluster, one, book, effort)


def _inputs(backend: Backend, cluster: Cluster, one: Contestant, effort: Effort) -> Part:
    return f"inputs {backend} {cluster} {one.name}", lambda book: scenarios.inputs(backend, cluster, one, book, effort)


def _dialling(backend: Backend, cluster: Cluster, all_of: list[Contestant], effort: Effort) -> Part:
    return (
        f"connections {backend} {cluster}",
        lambda book: scenarios.dialling(backend, cluster, all_of, book, effort),
    )


def main() -> int:
    """Measure, print, write. Exit status 1 when something could not be measured."""
    options = _arguments()
    if os.geteuid() != 0:
        print("the benchmark makes network namespaces: run it as root", file=sys.stderr)
        return 1
    real = None if options.ours_only else kube_proxy()
    contestants = [ours()] + ([real] if real else [])
    print(f"machine: {machine.description()}")
    print(
        f"kube-proxy: {machine.version_of(real.program[0])}" if real else "no kube-proxy (set KUBE_PROXY to its path)"
    )
    book = Book()
    failures = 0
    began = time.monotonic()
    loads = [machine.load()]
    effort = QUICK if options.quick else Effort()
    asked = [
        part
        for part in parts(contestants, options.backend, effort, quick=options.quick)
        if all(word in part[0] for word in options.only)
    ]
    for name, measure in progress.over(asked, "measuring"):
        print(f"-- {name} (load {machine.load()})", flush=True)
        try:
            measure(book)
        except (Timeout, LabError, RuntimeError) as problem:
            failures += 1
            print(f"   FAILED: {problem}", file=sys.stderr)
        loads.append(machine.load())
        if options.json:
            options.json.write_text(json.dumps([[*key, values] for key, values in book.samples.items()]))
    print()
    print(report.text(book.samples))
    minutes = (time.monotonic() - began) / 60
    if not options.no_write:
        _write(book, real, minutes, loads, quick=options.quick)
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller clusters and fewer repetitions: some minutes")
    parser.add_argument("--backend", nargs="+", choices=("nft", "legacy"), default=["nft", "legacy"])
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="only the parts whose names have all of these"
    )
    parser.add_argument("--ours-only", action="store_true", help="leave kube-proxy out")
    parser.add_argument("--no-write", action="store_true", help=f"do not write {DOCUMENT.name}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples here, after each part")
    return parser.parse_args()


def _write(book: Book, real: Contestant | None, minutes: float, loads: list[str], *, quick: bool) -> None:
    """Replace the results in the document; the rest of it is kept."""
    kind = "A quick run" if quick else "A full run"
    rival = f"kube-proxy {machine.version_of(real.program[0])}" if real else "no kube-proxy"
    about = [
        f"{kind} of {minutes:.0f} minutes: {machine.description()}; {rival}.",
        f"Load average (1, 5, 15 min) at the beginning {loads[0]}, at the end {loads[-1]}.",
        "Medians; smallest and largest in brackets.",
    ]
    fresh = report.markdown(book.samples, about=about)
    old = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.exists() else f"{report.START}\n{report.END}\n"
    head, found, rest = old.partition(report.START)
    tail = rest.partition(report.END)[2] if found else "\n"
    DOCUMENT.write_text(head + fresh + tail, encoding="utf-8")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
