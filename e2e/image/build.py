"""Build the image on a machine without a container registry: ``python -m e2e.image.build [TAG]``.

The base is Debian trixie by debootstrap, trimmed as slim images are (no manuals, no package lists); the Dockerfile
takes it by its BASE argument. Where this machine's pip has settings of its own (an index, a CA), the build gets them as
secrets, which leave nothing in the image. Prints the image's name and size.
"""

from __future__ import annotations

import configparser
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from e2e.image import podman

ROOT = Path(__file__).parents[2]
BASE = "localhost/pykubeproxy-base"
TAG = "localhost/pykubeproxy"
SUITE = "trixie"
_TRIMMED = ("var/lib/apt/lists", "var/cache", "var/log", "usr/share/man", "usr/share/locale", "usr/share/info")


def main() -> int:
    """Build, and print the size."""
    absent = podman.why_absent()
    if absent:
        print(absent, file=sys.stderr)
        return 1
    tag = sys.argv[1] if len(sys.argv) > 1 else TAG
    build(tag)
    print(f"{tag}: {size(tag) / 1e6:.0f} MB, of which the base has {size(BASE) / 1e6:.0f} MB")
    return 0


def build(tag: str = TAG) -> None:
    """Build the image from the Dockerfile, and the base if it is not there."""
    if not exists(BASE):
        make_base()
    with tempfile.TemporaryDirectory(prefix="pykubeproxy-build-") as folder:
        secrets = pip_secrets(os.environ, Path("/etc/pip.conf"), Path(folder))
        argv = ["podman", "build", "--isolation=chroot", "--ulimit", "nofile=1024:1024", "--build-arg", f"BASE={BASE}"]
        _run([*argv, *secrets, "--tag", tag, str(ROOT)])


def make_base() -> None:
    """Make the base image by debootstrap."""
    with tempfile.TemporaryDirectory(prefix="pykubeproxy-base-", dir="/var/tmp") as folder:
        root = Path(folder) / "root"
        _run(["debootstrap", "--variant=minbase", SUITE, str(root)])
        for name in _TRIMMED:
            for entry in (root / name).iterdir():
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        for entry in (root / "usr/share/doc").glob("*/*"):
            if entry.name != "copyright" and (entry.is_file() or entry.is_symlink()):
                entry.unlink()
        tar = Path(folder) / "root.tar"
        _run(["tar", "-C", str(root), "-cf", str(tar), "."])
        _run(["podman", "import", str(tar), BASE])


def pip_secrets(environ: Mapping[str, str], settings: Path, folder: Path) -> list[str]:
    """Return podman's arguments that hand this machine's settings of pip to the build; [] if it has none."""
    read = configparser.ConfigParser(interpolation=None)
    read.read(settings)
    given = dict(read["global"]) if read.has_section("global") else {}
    given |= {name[4:].lower().replace("_", "-"): value for name, value in environ.items() if name.startswith("PIP_")}
    kept = {key: given[key] for key in ("index-url", "trusted-host") if key in given}
    arguments: list[str] = []
    authorities = given.get("cert") or environ.get("SSL_CERT_FILE")
    if authorities and Path(authorities).is_file():
        kept["cert"] = "/run/ca.crt"
        arguments += ["--secret", f"id=ca.crt,src={authorities}"]
    if not kept:
        return []
    path = folder / "pip.conf"
    path.write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in kept.items()))
    return [*arguments, "--secret", f"id=pip.conf,src={path}"]


def exists(image: str) -> bool:
    """Tell whether podman has an image."""
    return subprocess.run(["podman", "image", "exists", image], check=False).returncode == 0


def size(image: str) -> int:
    """Return the bytes of an image, all layers together."""
    told = subprocess.run(["podman", "image", "inspect", image], capture_output=True, check=True, text=True).stdout
    return int(json.loads(told)[0]["Size"])


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise RuntimeError(f"{' '.join(argv[:3])} … failed with status {done.returncode}:\n{last}")


if __name__ == "__main__":
    sys.exit(main())
