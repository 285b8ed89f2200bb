"""Where the real programs are: KUBEBUILDER_ASSETS names a folder, KUBE_PROXY a program."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

ASSETS = "KUBEBUILDER_ASSETS"
KUBE_PROXY = "KUBE_PROXY"


def control_plane(environ: Mapping[str, str], *names: str) -> tuple[dict[str, Path], str]:
    """Return the paths by name, and what is missing ("" if nothing is)."""
    folder = environ.get(ASSETS, "")
    if not folder:
        return {}, f"{ASSETS} is not set: no real control plane to try with"
    found = {name: Path(folder) / name for name in names}
    missing = [name for name, path in found.items() if not os.access(path, os.X_OK)]
    if shutil.which("openssl") is None:
        missing.append("openssl")
    return found, f"no {', no '.join(missing)} (in {ASSETS}={folder})" if missing else ""


def kube_proxy(environ: Mapping[str, str]) -> tuple[Path, str]:
    """Return the path of the real kube-proxy, and what is missing ("" if nothing is)."""
    named = environ.get(KUBE_PROXY, "")
    if not named:
        return Path(), f"{KUBE_PROXY} is not set: no real kube-proxy to take over from"
    return Path(named), "" if os.access(named, os.X_OK) else f"{KUBE_PROXY}={named} cannot be run"


def why_absent(environ: Mapping[str, str]) -> str:
    """Return why the laboratory cannot be run, "" if it can."""
    return control_plane(environ, "etcd", "kube-apiserver", "kube-controller-manager")[1]
