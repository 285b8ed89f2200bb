"""The demo's cluster for tests: its manifests put together, the flags that fit, and its laboratory."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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


def run(*arguments: str, manifests: Path, env: dict | None = None) -> subprocess.CompletedProcess:
    """Run a command as a person would, off a terminal and 80 columns wide."""
    argv = [*COMMAND, *arguments, "--manifests", str(manifests), *FLAGS]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(ROOT), **(env or {})}
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)


def ask(lab, *arguments: str, manifests: Path, check: bool = True):
    """Run a command on the laboratory's node."""
    argv = [*COMMAND, *arguments, "--manifests", str(manifests), *FLAGS, "--iptables-backend", lab.backend]
    return lab.node.run(argv, env={"PYTHONPATH": str(ROOT)}, check=check)


def load_rules(lab, manifests: Path) -> None:
    """Put the rules that follow from manifests into the laboratory's node, both families."""
    for family, word in ((4, "ipv4"), (6, "ipv6")):
        lab.restore(ask(lab, "--dry-run", "--ip-family", word, manifests=manifests).stdout, family=family)
