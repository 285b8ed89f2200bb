"""Run the image in place of ``python -m pykubeproxy``: ``python -m e2e.image.run IMAGE [flags of the daemon]``.

Meant as the ``--command`` of a laboratory: started inside its node, it becomes podman, which runs the container in the
node's network namespace with the rights of the DaemonSet and no others: uid 0, NET_ADMIN and NET_RAW, a read-only root
file system. Signals reach the daemon, and its exit status comes back.

The laboratory's folder (the first one in PATH is its folder of noting scripts) appears in the container under its own
path, and its xtables lock at the usual place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from e2e.image import podman

LABEL = "pykubeproxy.laboratory"


def arguments(image: str, flags: Sequence[str], shims: Path, outside: int) -> list[str]:
    """Return the command line.

    ``shims`` is the laboratory's folder of scripts that note calls of iptables-restore, ``outside`` a process that is
    in none of the laboratory's namespaces.
    """
    folder = shims.parent
    return [
        # ip-netns(8) has put another /sys over the machine's: out of there, podman finds its cgroups.
        "nsenter", "--target", str(outside), "--mount", "--net",
        *podman.RUN,
        "--label", f"{LABEL}={folder.name}",
        "--network", f"ns:/run/netns/pkp-{folder.name}-node",
        "--cap-drop", "all", "--cap-add", "NET_ADMIN", "--cap-add", "NET_RAW",
        "--security-opt", "no-new-privileges",
        "--read-only", "--read-only-tmpfs=false",
        "--volume", f"{folder}:{folder}",
        "--volume", f"{folder}/xtables.lock:/run/xtables.lock",
        "--env", f"PATH={shims}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        image,
        *flags,
    ]  # fmt: skip


def ancestor_outside(proc: Path = Path("/proc")) -> int:
    """Return the nearest ancestor in another mount namespace: who made the laboratory."""
    here = (proc / "self/ns/mnt").readlink()
    pid = os.getppid()
    while pid > 1 and (proc / f"{pid}/ns/mnt").readlink() == here:
        status = (proc / f"{pid}/status").read_text(encoding="utf-8", errors="replace")
        pid = int(status.partition("\nPPid:")[2].split()[0])
    return pid


def main() -> None:
    """Become podman."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m e2e.image.run IMAGE [flags of the daemon]")
    shims = Path(os.environ.get("PATH", "").partition(":")[0])
    command = arguments(sys.argv[1], sys.argv[2:], shims, ancestor_outside())
    os.environ["PATH"] = f"{os.environ['PATH'].partition(':')[2]}:/usr/sbin:/sbin"
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
