"""A namespace with nothing in it but a node's addresses, and the program run there to its end."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from tests.support.node import ROOT

FAMILIES = ("IPv4", "IPv6")
BACKENDS = ("legacy", "nft")
IP = shutil.which("ip") or "ip"
_COUNTERS = re.compile(r"\[\d+:\d+\]")
_ACCOUNTING = re.compile(r"-m nfacct --nfacct-name +\S+ ")
_STEMS = {"IPv4": "iptables", "IPv6": "ip6tables"}


class Bare:
    """One namespace. ``folder`` is for files; the xtables lock lies there too."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "XTABLES_LOCKFILE": str(folder / "xtables.lock"),
        }

    def run(
        self, *argv: str, stdin: str = "", check: bool = True, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [IP, "netns", "exec", self.name, *argv],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env={**self.environ, **(env or {})},
            cwd=self.folder,
        )
        assert done.returncode == 0 or not check, f"{argv}: exit {done.returncode}: {done.stderr}"
        return done

    def program(self, *arguments: str, **more) -> subprocess.CompletedProcess[str]:
        """Run pykubeproxy to its end."""
        return self.run(sys.executable, "-m", "pykubeproxy", *arguments, check=False, **more)

    def spawn(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        argv = [IP, "netns", "exec", self.name, sys.executable, "-m", "pykubeproxy", *arguments]
        with log.open("ab") as out:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.environ)

    def restore(self, backend: str, family: str, document: str) -> None:
        wait = ["-w", "5"] if backend == "legacy" else []
        self.run(f"{_STEMS[family]}-{backend}-restore", *wait, "--noflush", stdin=document)

    def save(self, backend: str, family: str) -> str:
        """Return iptables-save's text as it is."""
        return self.run(f"{_STEMS[family]}-{backend}-save").stdout

    def plain(self, backend: str, family: str) -> list[str]:
        """Return the rules as lines without counters; KUBE-FIREWALL and tables with nothing in them are left out."""
        found: list[str] = []
        for part in self.save(backend, family).split("*")[1:]:
            table, *lines = [line for line in part.splitlines() if line and not line.startswith(("#", "COMMIT"))]
            kept = [_COUNTERS.sub("", line).strip() for line in lines if "KUBE-FIREWALL" not in line]
            builtin = re.compile(r":[A-Z]+ ACCEPT$")
            if not all(builtin.match(line) for line in kept):
                found += [f"{table}: {line}" for line in kept]
        return found

    def chains(self, backend: str, family: str) -> set[str]:
        """Return the names of all chains that begin with KUBE-, without the shared KUBE-FIREWALL."""
        found = re.findall(r"^:(KUBE-\S+)", self.save(backend, family), re.MULTILINE)
        return set(found) - {"KUBE-FIREWALL"}


@contextlib.contextmanager
def bare() -> Iterator[Bare]:
    """Make the namespace; nothing of it is left afterwards."""
    name = f"pkp-{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        batch = (
            "link set lo up\nlink add eth0 type veth peer name eth0p\nlink set eth0 up\nlink set eth0p up\n"
            "addr add 10.0.0.11/24 dev eth0\naddr add fd00:10::11/64 dev eth0 nodad\n"
        )
        subprocess.run(["ip", "-n", name, "-batch", "-"], input=batch, text=True, check=True)
        with tempfile.TemporaryDirectory() as folder:
            yield Bare(name, Path(folder))
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


def left_by_kube_proxy(case: str, backend: str, family: str) -> str:
    """Return what the real kube-proxy left in a recorded case, as restore input (nfacct objects are another matter)."""
    folder = next((ROOT / "tests/oracle/cases").glob(f"{case}-*"))
    return _ACCOUNTING.sub("", (folder / f"{backend}-{family.lower()}.save").read_text())
