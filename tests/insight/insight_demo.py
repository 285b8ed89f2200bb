"""The demo's cluster for tests: its manifests put together, the flags that fit, and its laboratory."""

import contextlib
import io
import os
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import structlog

from pykubeproxy import cli

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden"
MANIFESTS = ROOT / "e2e/demo/manifests"
FLAGS = ("--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48", "--hostname-override", "node-a")
COMMAND = (sys.executable, "-m", "pykubeproxy")
ALL = ("00-cluster", "03-three-pods", "07-node-port", "09-no-endpoints", "11-ipv6")
"""Folders that together make a cluster with a bit of everything."""


def gather(target: Path, *folders: str) -> Path:
    """Put folders together as ``kubectl apply`` would: a later file replaces one of the same name."""
    target.mkdir(exist_ok=True)
    for folder in folders:
        for source in sorted((MANIFESTS / folder).glob("*.yaml")):
            shutil.copyfile(source, target / source.name)
    return target


class Answer(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str, manifests: Path) -> Answer:
    """Run a command on manifests, with the flags that fit."""
    return run_as_given(*arguments, "--manifests", str(manifests), *FLAGS)


def run_as_given(*arguments: str) -> Answer:
    """Run a command in this process as the console script would, off a terminal and 80 columns wide."""
    out, err = io.StringIO(), io.StringIO()
    status = 0
    argv, sys.argv = sys.argv, ["pykubeproxy", *arguments]
    columns = os.environ.pop("COLUMNS", None)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.argv = argv
        structlog.reset_defaults()
        if columns is not None:
            os.environ["COLUMNS"] = columns
    return Answer(status, out.getvalue(), err.getvalue())


def ask(lab, *arguments: str, manifests: Path, check: bool = True):
    """Run a command on the laboratory's node."""
    argv = [*COMMAND, *arguments, "--manifests", str(manifests), *FLAGS, "--iptables-backend", lab.backend]
    return lab.node.run(argv, env={"PYTHONPATH": str(ROOT)}, check=check)


def load_rules(lab, manifests: Path) -> None:
    """Put the rules that follow from manifests into the laboratory's node, both families."""
    for family, word in ((4, "ipv4"), (6, "ipv6")):
        lab.restore(ask(lab, "--dry-run", "--ip-family", word, manifests=manifests).stdout, family=family)


def check(name: str, text: str) -> None:
    """Compare an output with its file; PYKUBEPROXY_UPDATE_GOLDEN=1 writes the file anew. Hold it to 80 columns."""
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("PYKUBEPROXY_UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()
    if not name.startswith(
        ("explain-yaml", "explain-json", "trace-json", "explain-mermaid", "explain-dot", "explain-graph", "diff")
    ):
        assert max(map(len, text.splitlines())) <= 80
    assert not any(line != line.rstrip() for line in text.splitlines())
    assert "\x1b" not in text
