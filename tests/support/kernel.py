"""The real iptables in a network namespace of its own, as a Runner and with the same extras as the fake one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from pykubeproxy.errors import NetfilterError
from pykubeproxy.netfilter.process import Finished

EMPTY = "".join(f"*{table}\nCOMMIT\n" for table in ("mangle", "filter", "nat"))
"""Restored without --noflush it empties the tables."""
NFACCT = ("ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts")


class RealKernel:
    """One namespace; ``root`` is a folder with another Debian's iptables to be used in place of this machine's."""

    def __init__(self, netns: str, lock: Path, *, kind: str, family: str = "IPv4", root: Path | None = None) -> None:
        self.netns = netns
        self.kind = kind
        self.root = root
        self.stem = ("iptables-" if family == "IPv4" else "ip6tables-") + kind
        self.lock = lock

    def run(self, argv: list[str], stdin: bytes = b"", *, timeout: float = 120.0, on_start: object = None) -> Finished:
        """Run a program inside the namespace."""
        del on_start
        inside = ["nsenter", f"--net=/run/netns/{self.netns}"]
        if self.root is not None:
            inside += ["chroot", str(self.root)]
        env = {**os.environ, "LC_ALL": "C", "XTABLES_LOCKFILE": f"/run/{self.netns}" if self.root else str(self.lock)}
        try:
            done = subprocess.run(
                [*inside, *argv], input=stdin, capture_output=True, check=False, timeout=timeout, env=env
            )
        except subprocess.TimeoutExpired:
            raise NetfilterError(f"{argv[0]} did not end within {timeout:g} s and was killed") from None
        return Finished(done.returncode, done.stdout, done.stderr)

    def save(self, only: str | None = None) -> str:
        """Return what iptables-save prints."""
        if only is None and self.root is not None:
            # Which tables there are stands in /proc, which is not mounted in there.
            return "".join(self.save(table) for table in ("mangle", "filter", "nat"))
        done = self.run([f"{self.stem}-save", *(["-t", only] if only else [])])
        assert done.status == 0, done.complaint
        return done.stdout.decode()

    def restore(self, document: str, *, flush: bool = False) -> Finished:
        """Apply an input."""
        return self.run([f"{self.stem}-restore", *([] if flush else ["--noflush"])], document.encode())

    def edit(self, document: str) -> None:
        """Apply an input of somebody else's; it must be right."""
        done = self.restore(document)
        assert done.status == 0, done.complaint

    def reset(self) -> None:
        """Empty all tables, but for the policies."""
        done = self.restore(EMPTY, flush=True)
        assert done.status == 0, done.complaint


@contextlib.contextmanager
def netns() -> Iterator[str]:
    """Make a network namespace; always remove it."""
    name = f"pkp-{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@contextlib.contextmanager
def real_kernel(kind: str, family: str = "IPv4", root: Path | None = None) -> Iterator[RealKernel]:
    """A namespace with empty tables."""
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(netns())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        if root is not None:
            stack.callback((root / "run" / name).unlink, missing_ok=True)
        yield RealKernel(name, Path(folder) / "xtables.lock", kind=kind, family=family, root=root)
