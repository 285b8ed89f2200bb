"""Debian 13's iptables (1.8.11) beside this machine's: unpacked into a folder, run by chroot.

Fetched with this machine's own apt from the mirror that its own configuration names, into a private apt root, so that
nothing of the machine changes; signatures are checked. Kept under /var/tmp between runs.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

SUITE = "trixie"
CACHE = Path("/var/tmp/pykubeproxy-tests") / f"{SUITE}-iptables-{platform.machine()}"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class Unreachable(Exception):
    """Debian 13 cannot be had here; ``str()`` says why."""


def iptables_root() -> Path:
    """Return a folder that holds Debian 13's iptables programs and what they need.

    Raises:
        Unreachable: there is no such thing here.

    """
    if (CACHE / "usr/sbin/xtables-nft-multi").exists():
        return CACHE
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Unreachable("this is no Debian: no apt-get")
    if os.geteuid() != 0:
        raise Unreachable("chroot needs root")
    CACHE.parent.mkdir(mode=0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as folder:
        root = Path(folder)
        packages = _download(root / "apt")
        made = root / "root"
        for package in packages:
            _run(["dpkg-deb", "-x", str(package), str(made)])
        for place in ("proc", "dev", "run", "tmp"):
            (made / place).mkdir(exist_ok=True)
        (made / "dev/null").touch()
        for place in ("bin", "sbin", "lib", "lib64"):
            # base-files would make these links.
            if (made / "usr" / place).exists() and not (made / place).exists():
                (made / place).symlink_to(f"usr/{place}")
        try:
            made.rename(CACHE)
        except OSError:
            if not CACHE.exists():  # else another run was quicker
                raise
    return CACHE


def _download(root: Path) -> list[Path]:
    """Download iptables and its dependencies; return the packages."""
    for place in ("etc/apt.conf.d", "etc/preferences.d", "state/lists/partial", "cache/archives/partial"):
        (root / place).mkdir(parents=True)
    (root / "status").touch()
    signed = f" [signed-by={KEYRING}]" if KEYRING.exists() else ""
    (root / "etc/sources.list").write_text(f"deb{signed} {_mirror()} {SUITE} main\n")
    options = {
        "Dir::Etc": root / "etc",
        "Dir::Etc::Parts": root / "etc/apt.conf.d",
        "Dir::Etc::SourceList": root / "etc/sources.list",
        "Dir::Etc::SourceParts": "-",
        "Dir::State": root / "state",
        "Dir::State::Status": root / "status",
        "Dir::Cache": root / "cache",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Retries": 1,
        "Acquire::http::Timeout": 20,
    }
    apt = ["apt-get", "-q", "-y", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
    _run([*apt, "-o", "APT::Update::Error-Mode=any", "update"])
    _run([*apt, "--no-install-recommends", "--download-only", "install", "iptables"])
    packages = sorted((root / "cache/archives").glob("*.deb"))
    if not packages:
        raise Unreachable(f"apt-get downloaded no package of {SUITE}")
    return packages


def _mirror() -> str:
    """Return the mirror from which this machine's own Debian comes."""
    text = _run(["apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI) $(RELEASE)",
                 "Created-By: Packages"])  # fmt: skip
    release = ""
    for line in Path("/etc/os-release").read_text().splitlines():
        key, _, value = line.partition("=")
        if key == "VERSION_CODENAME":
            release = value.strip('"')
    for line in text.splitlines():
        uri, _, name = line.partition(" ")
        if name == release:
            return uri
    raise Unreachable(f"apt is not configured for a mirror of {release or 'a Debian release'}")


def _run(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Unreachable(f"{argv[0]}: {exc}") from exc
    if done.returncode:
        raise Unreachable(f"{argv[0]} failed: {' '.join(done.stderr.split())[-200:]}")
    return done.stdout
