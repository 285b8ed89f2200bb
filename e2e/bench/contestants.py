"""The programs that are measured: this project's daemon and the real kube-proxy, started alike."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from e2e.bench import clusters

Backend = Literal["nft", "legacy"]

ROOT = Path(__file__).parents[2]
MIN_SYNC_SECONDS = 1.0
"""kube-proxy's default, for both."""
HEALTHZ_PORT = 10256


@dataclass(frozen=True, slots=True)
class Contestant:
    """One program: its name in the tables, and how it is called."""

    name: str
    program: tuple[str, ...]
    is_ours: bool
    extra: tuple[str, ...] = ()

    def command(self, folder: Path, kubeconfig: Path, backend: Backend) -> list[str]:
        """Return the command line. Both get the same settings, written to one configuration file each."""
        config = folder / f"{self.name}.yaml"
        config.write_text(json.dumps(_configuration(kubeconfig)))
        more = ["--iptables-backend", backend, *self.extra] if self.is_ours else list(self.extra)
        return [*self.program, "--config", str(config), *more]

    def environment(self, folder: Path, backend: Backend, *, notes: Path | None = None) -> dict[str, str]:
        """Return what is set for it. ``notes``: a folder in which every restore's input is kept (costs time)."""
        path = os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        variables = {"PATH": f"{_links(folder, backend)}:{path}", "LC_ALL": "C"}
        if notes is not None:
            variables["PATH"] = f"{_shims(folder, backend, notes)}:{variables['PATH']}"
        if self.is_ours:
            variables["PYTHONPATH"] = str(ROOT)
        return variables


def ours(*extra: str, name: str = "ours") -> Contestant:
    """Return this project's daemon."""
    return Contestant(name, (sys.executable, "-m", "pykubeproxy"), is_ours=True, extra=extra)


def kube_proxy() -> Contestant | None:
    """Return the real one where the variable KUBE_PROXY names it, or where it is in PATH."""
    found = os.environ.get("KUBE_PROXY") or shutil.which("kube-proxy")
    if not found or not Path(found).is_file() or _is_ours(Path(found)):
        return None
    return Contestant("kube-proxy", (found,), is_ours=False)


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def _configuration(kubeconfig: Path) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "hostnameOverride": clusters.NODE,
        "clusterCIDR": clusters.POD_CIDR,
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "healthzBindAddress": f"127.0.0.1:{HEALTHZ_PORT}",
        "metricsBindAddress": "127.0.0.1:10249",
        "iptables": {"minSyncPeriod": f"{MIN_SYNC_SECONDS:g}s", "syncPeriod": "30s"},
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def _links(folder: Path, backend: Backend) -> Path:
    """Make a folder in which plain ``iptables`` is the chosen backend, since kube-proxy takes what it finds."""
    links = folder / f"links-{backend}"
    if not links.exists():
        links.mkdir()
        multi = Path(shutil.which(f"xtables-{backend}-multi") or f"/usr/sbin/xtables-{backend}-multi")
        for stem in ("iptables", "ip6tables"):
            for end in ("", "-restore", "-save"):
                (links / f"{stem}{end}").symlink_to(multi)
    return links


def _shims(folder: Path, backend: Backend, notes: Path) -> Path:
    """Make a folder of scripts that keep what a restore is fed and then become the real program."""
    shims = folder / f"shims-{backend}"
    notes.mkdir(exist_ok=True)
    if not shims.exists():
        shims.mkdir()
        multi = shutil.which(f"xtables-{backend}-multi") or f"/usr/sbin/xtables-{backend}-multi"
        for stem in ("iptables", "ip6tables"):
            for name in (f"{stem}-restore", f"{stem}-{backend}-restore"):
                script = shims / name
                script.write_text(
                    f'#!/bin/sh\nnote={notes}/$(date +%s.%N).$$.{stem}\ncat > "$note.part"\nmv "$note.part" "$note"\n'
                    f'exec {multi} {stem}-restore "$@" < "$note"\n'
                )
                script.chmod(0o755)
    return shims


def noted(notes: Path, family: str = "iptables") -> list[str]:
    """Return the inputs that were kept, in their order."""
    return [path.read_text() for path in sorted(notes.glob(f"*.{family}"), key=_when)]


def _when(path: Path) -> float:
    return float(".".join(path.name.split(".")[:2]))


def size_of(document: str) -> tuple[int, int, int]:
    """Return (bytes, chains that are written, chains that are deleted) of one input."""
    lines = document.splitlines()
    deleted = sum(line.startswith("-X ") for line in lines)
    return len(document), sum(line.startswith(":") for line in lines) - deleted, deleted
