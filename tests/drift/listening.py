"""A watch in a network namespace of its own, without the daemon, and somebody else who writes there."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pykubeproxy.netfilter.legacywatch import LegacyWatch
from pykubeproxy.netfilter.nftwatch import NftWatch
from pykubeproxy.netfilter.process import Finished, SubprocessRunner
from pykubeproxy.netfilter.watch import Watch, WatchedRunner
from pykubeproxy.node.netlink import HEADER, NETLINK_NETFILTER, attribute, nfgen
from tests.support.kernel import netns
from tests.support.node import inside


class Listening:
    """``told`` holds the families that were noticed, in order; ``crashed`` must stay empty."""

    def __init__(self, name: str, kind: str, lock: Path, document: str, **options: object) -> None:
        self.netns, self.kind, self.lock = name, kind, lock
        self.told: list[str] = []
        self.crashed: list[BaseException] = []
        for family in ("IPv4", "IPv6") if document else ():
            self.other(document, family=family)
        make = NftWatch if kind == "nft" else LegacyWatch
        more = {"path": str(lock), **options} if kind == "legacy" else options
        self.watch: Watch = inside(name, lambda: make(self.told.append, self.crashed.append, **more))
        self.runner = WatchedRunner(_Inside(name, lock), self.watch)

    def start(self) -> None:
        """Start the thread, in the namespace."""
        inside(self.netns, self.watch.start)

    def look(self, family: str = "IPv4"):
        return inside(self.netns, lambda: self.watch.look(family))

    def other(self, document: str, *, family: str = "IPv4", lock: Path | None = None) -> None:
        """Write as somebody else."""
        done = _Inside(self.netns, lock or self.lock).run(self.restore(family), document.encode())
        assert done.status == 0, done.complaint

    def own(self, document: str, *, family: str = "IPv4") -> None:
        """Write as we do."""
        done = self.runner.run(self.restore(family), document.encode())
        assert done.status == 0, done.complaint

    def restore(self, family: str) -> list[str]:
        stem = ("ip6tables-" if family == "IPv6" else "iptables-") + self.kind
        return [f"{stem}-restore", *(["-w", "30"] if self.kind == "legacy" else []), "--noflush"]

    def run(self, *argv: str) -> str:
        done = _Inside(self.netns, self.lock).run(list(argv))
        assert done.status == 0, done.complaint
        return done.stdout.decode()


class _Inside(SubprocessRunner):
    """Runs programs in a namespace; nsenter becomes the program, so that the process id is the program's."""

    def __init__(self, name: str, lock: Path) -> None:
        self._into = ["env", f"XTABLES_LOCKFILE={lock}", "nsenter", f"--net=/run/netns/{name}"]

    def run(self, argv, stdin=b"", **more) -> Finished:
        return super().run([*self._into, *argv], stdin, **more)


@contextlib.contextmanager
def listening(kind: str, *, start: bool = True, document: str = "", **options: object) -> Iterator[Listening]:
    """Make a watch that has looked once, in a namespace that holds ``document``."""
    with netns() as name, tempfile.TemporaryDirectory() as folder:
        it = Listening(name, kind, Path(folder) / "xtables.lock", document, **options)
        if start:
            it.start()
        for family in ("IPv4", "IPv6"):
            it.look(family)
        try:
            yield it
            assert it.crashed == []
        finally:
            it.watch.stop()
            if not it.watch._thread.ident:  # type: ignore[attr-defined]
                it.start()  # it gives the descriptors back


OURS = """*mangle
:KUBE-PROXY-CANARY - [0:0]
COMMIT
*filter
:KUBE-FORWARD - [0:0]
:KUBE-FIREWALL - [0:0]
-A KUBE-FORWARD -j RETURN
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:CNI-A - [0:0]
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m mark --mark 0x1 -j RETURN
-A PREROUTING -j KUBE-SERVICES
COMMIT
"""
"""Something in every table, the same in both families."""


class NftPort:
    """A socket with a chosen port that can make a chain, to be somebody with that port."""

    def __init__(self, name: str, port: int) -> None:
        self._socket = inside(name, lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER))
        self._socket.bind((port, 0))
        self._socket.settimeout(10)

    def make_chain(self, table: str, chain: str) -> None:
        """Commit a new chain of an IPv4 table."""

        def message(kind: int, flags: int, body: bytes, sequence: int) -> bytes:
            return HEADER.pack(HEADER.size + len(body), kind, flags, sequence, 0) + body

        names = attribute(1, table.encode() + b"\0") + attribute(3, chain.encode() + b"\0")
        batch = struct.pack(">BBH", 0, 0, 10)
        self._socket.send(
            message(0x10, 0x1, batch, 0)
            + message(10 << 8 | 3, 0x1 | 0x4 | 0x400, nfgen(2) + names, 1)
            + message(0x11, 0x1, batch, 2)
        )
        answer = self._socket.recv(8192)
        (code,) = struct.unpack_from("=i", answer, HEADER.size)
        assert code == 0, os.strerror(-code)

    def close(self) -> None:
        self._socket.close()


def waiting_child() -> subprocess.Popen[bytes]:
    """Start a child that only waits for its input to end."""
    return subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
