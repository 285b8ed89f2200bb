"""From samples to tables: the targets, and everything that was measured. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

Samples = dict[tuple[str, str, str, str], list[float]]
START, END = "<!-- results: written by python -m e2e.bench -->", "<!-- end of results -->"

MAIN, LARGE = "5,000 x 5", "10,000 x 5"
CONNECTS = ("connect, first service", "connect, middle service", "connect, last service", "connect, no service")


@dataclass(frozen=True, slots=True)
class Target:
    """One line of the table: ``limit`` None means no slower than kube-proxy in the same run."""

    label: str
    cluster: str
    backend: str
    measures: tuple[str, ...]
    limit: float | None
    scale: float = 1.0
    unit: str = "s"


TARGETS = (
    Target("process start to synced, nft", MAIN, "nft", ("start",), 4.0),
    Target("process start to synced, legacy", MAIN, "legacy", ("start",), None),
    Target("one endpoint changed, nft", MAIN, "nft", ("endpoint changed",), 0.12),
    Target("one endpoint changed, legacy", MAIN, "legacy", ("endpoint changed",), 0.45),
    Target("one service created, nft", MAIN, "nft", ("service created",), 0.15),
    Target("one service deleted, nft", MAIN, "nft", ("service deleted",), None),
    Target("restart, one endpoint changed meanwhile, nft", MAIN, "nft", ("restart",), 3.0),
    Target("restart with nothing changed: commits, nft", MAIN, "nft", ("restart, commits",), 0.0, unit=""),
    Target("RSS after 100 changes, nft", MAIN, "nft", ("rss after 100 changes",), 120.0, unit="MB"),
    Target("RSS after 100 changes, legacy", MAIN, "legacy", ("rss after 100 changes",), 120.0, unit="MB"),
    Target("new connection, worst of four, nft", LARGE, "nft", CONNECTS, 35.0, unit="µs"),
    Target("new connection, worst of four, legacy", LARGE, "legacy", CONNECTS, 35.0, unit="µs"),
    Target("own CPU of one change, nft", LARGE, "nft", ("own cpu of a change",), 5.0, scale=1000, unit="ms"),
    Target("own CPU of one change, legacy", LARGE, "legacy", ("own cpu of a change",), 5.0, scale=1000, unit="ms"),
)


def markdown(samples: Samples, *, about: list[str]) -> str:
    """Return everything as Markdown between the two marks."""
    lines = [
        START,
        "",
        *about,
        "",
        "| what | kube-proxy | ours | times better | target | |",
        "|---|---|---|---|---|---|",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in target_rows(samples)]
    lines += ["", "### All of it", ""]
    for cluster, backend in sorted({key[:2] for key in samples}, key=lambda pair: (_size(pair[0]), pair[1])):
        lines += _everything(samples, cluster, backend)
    return "\n".join([*lines, END])


def text(samples: Samples) -> str:
    """Return the table of targets for a terminal."""
    rows = [["what", "kube-proxy", "ours", "times better", "target", ""], *target_rows(samples)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def target_rows(samples: Samples) -> list[list[str]]:
    """Return the table of targets: label, kube-proxy, ours, ratio, target, verdict."""
    rows = []
    for target in TARGETS:
        theirs, ours = (_worst(samples, target, name) for name in ("kube-proxy", "ours"))
        if ours is None:
            continue
        limit = target.limit if target.limit is not None else (_median(theirs) if theirs else None)
        limit_text = f"≤ {target.limit:g} {target.unit}".rstrip() if target.limit is not None else "≤ kube-proxy"
        verdict = "" if limit is None else "met" if _median(ours) <= limit else "not met"
        ratio = f"{_median(theirs) / _median(ours):.1f}" if theirs and _median(ours) else ""
        label = f"{target.cluster}, {target.label}"
        rows.append([label, _show(theirs, target.unit), _show(ours, target.unit), ratio, limit_text, verdict])
    return rows


def _worst(samples: Samples, target: Target, contestant: str) -> list[float] | None:
    found = [samples.get((target.cluster, target.backend, contestant, measure)) for measure in target.measures]
    known = [[value * target.scale for value in values] for values in found if values]
    return max(known, key=_median) if known else None


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _show(values: list[float] | None, unit: str = "") -> str:
    if not values:
        return "-"
    middle = f"{_number(_median(values))} {unit}".rstrip()
    if len(values) == 1 or _number(min(values)) == _number(max(values)):
        return middle
    return f"{middle} ({_number(min(values))} to {_number(max(values))})"


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _everything(samples: Samples, cluster: str, backend: str) -> list[str]:
    found = {key[2:]: values for key, values in samples.items() if key[:2] == (cluster, backend)}
    names = list(dict.fromkeys(name for name, _ in found))
    measures = list(dict.fromkeys(measure for _, measure in found))
    lines = [
        f"**{cluster}, {backend}**",
        "",
        "| measure | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for measure in measures:
        cells = [_show(found.get((name, measure)), unit_of(measure)) for name in names]
        lines.append(f"| {measure} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def unit_of(measure: str) -> str:
    """Return the unit of a measure, which its name implies."""
    units: tuple[tuple[Callable[[str], bool], str], ...] = (
        (lambda m: "rules to" in m or "restores" in m or "chains" in m or "commits" in m, ""),
        (lambda m: ": bytes" in m or ": largest" in m, "B"),
        (lambda m: "rss" in m or "pss" in m or "peak" in m, "MB"),
        (lambda m: m.startswith("connect"), "µs"),
    )
    return next((unit for applies, unit in units if applies(measure)), "s")


def _size(cluster: str) -> tuple[int, int]:
    services, _, endpoints = cluster.replace(",", "").partition(" x ")
    return int(services) * int(endpoints), int(services)
