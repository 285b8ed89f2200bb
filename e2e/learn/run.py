"""Do what a template asks for, in the demo's laboratory, and return what came out."""

from __future__ import annotations

import io
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from e2e.demo.show import Show
from e2e.demo.stage import Stage
from e2e.learn.template import Typed, Wait
from e2e.netlab import Family, LabError, Namespace
from e2e.netlab.proxy import ROOT

OPTIONS = "--hostname-override node-a --cluster-cidr 10.244.0.0/16,fd00:10:244::/48"


class Walk:
    """One laboratory and somebody who types."""

    def __init__(self, stage: Stage, programs: Path) -> None:
        self._stage = stage
        lab = stage.lab
        self._places: dict[str, Namespace] = {"node": lab.node, "outside": lab.client, **lab.pods}
        self._environ = {
            "PATH": f"{programs}:{os.environ.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin')}",
            "PYTHONPATH": str(ROOT),
            "LIVE": str(stage.live),
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "80",
            "TERM": "dumb",
        }

    def do(self, thing: Typed | Wait) -> list[str]:
        """Do one thing; return what each line printed."""
        if isinstance(thing, Wait):
            self._wait(thing)
            return []
        if thing.kind == "stop":
            self._stage.proxy.stop(signal.SIGTERM)
            return ["" for _ in thing.lines]
        if thing.kind == "start":
            self._stage.proxy.start()
            self._stage.proxy.wait_synced()
            return ["" for _ in thing.lines]
        return [self._type(thing.where, line) for line in thing.lines]

    def _type(self, where: str, line: str) -> str:
        script = f"cd {shlex.quote(str(ROOT))} && {{ {line}\n}} 2>&1"
        done = self._places[where].run(["sh", "-c", script], env=self._environ, check=False)
        if done.status in (126, 127):
            raise LabError(f"{where}# {line}: {done.stdout.strip()}")
        # Colours are for terminals, blanks at the end for nobody.
        text = "\n".join(one.rstrip() for one in done.stdout.splitlines())
        return f"{text}\n" if text else ""

    def _wait(self, wait: Wait) -> None:
        stage, what = self._stage, wait.what
        if wait.kind == "await":
            service, count = what.rsplit(" ", 1)
            self._until(lambda: len(stage.endpoints(service)) == int(count), f"{service} has {count} endpoints")
            return
        family: Family = 6 if wait.kind.endswith("6") else 4
        found: Callable[[], bool] = lambda: what in stage.lab.save(family).text  # noqa: E731
        if wait.kind.startswith("await-no-rule"):
            self._until(lambda: not found(), f"no rule has {what!r}")
        elif wait.kind.startswith("await-rule"):
            self._until(found, f"a rule has {what!r}")
        else:
            raise LabError(f"nobody knows how to {wait.kind}")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        self._stage.await_kernel(condition, what)


@contextmanager
def walk() -> Iterator[Walk]:
    """Build the laboratory, quietly, and a ``pkp`` in it."""
    show = Show()
    show.console = Console(file=io.StringIO())
    with Stage("nft", show) as stage:
        programs = stage.lab.claim.folder / "typed"
        programs.mkdir()
        for name, options in (("pykubeproxy", ""), ("pkp", f' --manifests "$LIVE" {OPTIONS}')):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pykubeproxy "$@"{options}\n')
            program.chmod(0o755)
        yield Walk(stage, programs)


def outputs(things: Sequence[Typed | Wait]) -> list[list[str]]:
    """Do all of them in one laboratory."""
    with walk() as it:
        return [it.do(thing) for thing in things]
