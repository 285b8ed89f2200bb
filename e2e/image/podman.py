"""How podman is called here: as root, on a machine that may have no systemd and no registry."""

from __future__ import annotations

import shutil

LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
"""podman's defaults are higher than what a virtual machine may allow."""
RUN = ["podman", "--runtime", "runc", "run", "--rm", *LIMITS]


def why_absent() -> str:
    """Return what is missing to build and run an image without a registry, empty if nothing is."""
    missing = [name for name in ("podman", "runc", "debootstrap") if shutil.which(name) is None]
    return f"{', '.join(missing)} not installed (apt-get install podman runc debootstrap)" if missing else ""
