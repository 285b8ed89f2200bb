"""How the demo looks: ways through chains, bars, tables, ticks. It decides nothing.

Made for 80 columns; without a terminal there is no colour (rich sees to that) and the width is 80.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from e2e.netlab.counters import Step, Way

_BAR = 34


class Show:
    """Prints what happens, as it happens."""

    def __init__(self) -> None:
        console = Console(highlight=False)
        self.console = Console(highlight=False, width=min(console.width, 100) if console.is_terminal else 80)

    def act(self, backend: str, version: str) -> None:
        """Open the run on one backend."""
        self.console.print()
        self.console.rule(f"[bold]{backend}[/bold] · {version}", characters="═")

    def heading(self, number: int, title: str) -> None:
        """Open one experiment."""
        self.console.print()
        self.console.print(Text(f"{number:>2}  {title}", style="bold cyan"))

    def say(self, text: str) -> None:
        """Say what is done."""
        self._wrapped(text, "    ", "    ", "default")

    def command(self, text: str) -> None:
        """Show what a person would type for it."""
        self._wrapped(text, "  $ ", "      ", "dim")

    def _wrapped(self, text: str, first: str, others: str, style: str) -> None:
        for line in textwrap.wrap(
            text, self.console.width - 2, initial_indent=first, subsequent_indent=others,
            break_on_hyphens=False, break_long_words=False, replace_whitespace=False,
        ):  # fmt: skip
            self.console.print(Text(line, style=style))

    def way(self, way: Way, hook: str) -> None:
        """Draw the chains that packets took from a builtin chain of nat, with the rules' comments and packets."""
        self.console.print(Text(f"    {hook}", style="bold"))
        by_chain: dict[str, list[Step]] = {}
        for step in way.path(hook):
            by_chain.setdefault(step.chain, []).append(step)
        drawn = {hook}

        def draw(chain: str, margin: str) -> None:
            steps = by_chain.get(chain, [])
            for step in steps:
                last = step is steps[-1]
                self._step(step, f"{margin}{'└─' if last else '├─'} ", is_jump=step.rule.target in by_chain)
                if step.rule.target not in drawn:
                    drawn.add(step.rule.target)
                    draw(step.rule.target, f"{margin}{'  ' if last else '│ '}")

        draw(hook, "    ")

    def _step(self, step: Step, margin: str, *, is_jump: bool) -> None:
        goal = f"→ {step.rule.destination}" if step.rule.destination else ""
        line = Text(margin, style="default")
        line.append(f"{step.rule.target} {goal}".strip() or "(counts)", style="bold" if is_jump else "green")
        count = f"{step.packets:>6,}"
        comment = step.rule.text.partition('--comment "')[2].partition('"')[0]
        if is_jump and comment and len(line) + len(comment) + len(count) + 2 <= self.console.width:
            line.append(f"  {comment}", style="dim")
        line.append(" " * max(1, self.console.width - len(line) - len(count)))
        line.append(count)
        self.console.print(line, no_wrap=True, overflow="crop")

    def bars(self, counts: Mapping[str, int]) -> None:
        """Draw one bar for each count, the longest for the greatest."""
        total, greatest = sum(counts.values()) or 1, max([*counts.values(), 1])
        wide = max(len(name) for name in counts)
        for name, count in sorted(counts.items()):
            bar = "█" * round(_BAR * count / greatest)
            line = Text(f"    {name:<{wide}}  ")
            line.append(f"{bar:<{_BAR}}", style="green")
            line.append(f" {count:>6}  {100 * count / total:5.1f} %")
            self.console.print(line)

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a small table."""
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
        for header in headers:
            table.add_column(header, overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self.console.print(Padding(table, (0, 0, 0, 4)))

    def tick(self, text: str, *, holds: bool) -> None:
        """Print the outcome of one check."""
        self._wrapped(text, "    ✓ " if holds else "    ✗ ", "      ", "green" if holds else "bold red")

    def trouble(self, text: str) -> None:
        """Print why an experiment could not be finished."""
        self.console.print(Text(text, style="red"))

    def summary(self, titles: Mapping[int, str], outcomes: Mapping[str, Mapping[int, list[str]]]) -> None:
        """Print one line for each experiment and one column for each backend."""
        self.console.print()
        self.console.rule("[bold]Summary[/bold]", characters="═")
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
        table.add_column("", justify="right")
        table.add_column("")
        for backend in outcomes:
            table.add_column(backend, justify="center")
        for number, title in titles.items():
            marks = []
            for failed in outcomes.values():
                if number not in failed:
                    marks.append(Text("-", style="dim"))
                else:
                    marks.append(Text("✗", style="bold red") if failed[number] else Text("✓", style="green"))
            table.add_row(str(number), title, *marks)
        self.console.print(table)
        broken = [(b, n, text) for b, failed in outcomes.items() for n, texts in failed.items() for text in texts]
        for backend, number, text in broken:
            self.console.print(Text(f"{backend} {number}: {text}", style="bold red"))
        self.console.print()
        if broken:
            self.console.print(Text("It does not hold.", style="bold red"))
        else:
            whole = all(titles.keys() == failed.keys() for failed in outcomes.values())
            self.console.print(Text("All of it holds." if whole else "What was run holds.", style="bold green"))
