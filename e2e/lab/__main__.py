"""``python -m e2e.lab``: run the checks, and the take-over where KUBE_PROXY names the real one.

The exit status is 0 if all of it holds, else 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from e2e.lab import binaries, checks, trial
from e2e.lab.site import LabSite, proxy_running
from e2e.netlab import Backend, LabError


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m e2e.lab", description=__doc__)
    parser.add_argument("--backend", choices=("nft", "legacy", "both"), default="both")
    arguments = parser.parse_args()
    missing = binaries.why_absent(os.environ)
    if missing:
        print(missing, file=sys.stderr)
        return 1
    programs, _ = binaries.control_plane(os.environ, "etcd", "kube-apiserver", "kube-controller-manager")
    kube_proxy, without = binaries.kube_proxy(os.environ)
    backends: list[Backend] = ["nft", "legacy"] if arguments.backend == "both" else [arguments.backend]
    complaints = 0
    for backend in backends:
        complaints += _one(backend, programs, None if without else kube_proxy)
    if without:
        print(f"The take-over was left out: {without}.")
    print("All of it holds." if not complaints else f"{complaints} complaints.")
    return 1 if complaints else 0


def _one(backend: Backend, programs: dict[str, Path], kube_proxy: Path | None) -> int:
    complaints = 0
    with LabSite(programs, backend, kube_proxy) as site:
        with proxy_running(site):
            for name, check in checks.CHECKS.items():
                complaints += _tell(f"{backend}: {name}", lambda check=check: check(site))  # type: ignore[misc]
            complaints += _tell(f"{backend}: the rights of system:node-proxier are enough", site.rights_are_enough)
        if kube_proxy is not None:
            complaints += _tell(
                f"{backend}: kube-proxy → pykubeproxy → kube-proxy, twice", lambda: trial.swap(site, print)
            )
    return complaints


def _tell(title: str, work: Callable[[], list[str]]) -> int:
    try:
        found = work()
    except LabError as problem:
        found = [str(problem)]
    print(f"{'✗' if found else '✓'} {title}")
    for line in found:
        print(f"    {line}")
    sys.stdout.flush()
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
