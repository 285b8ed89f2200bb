"""The oracle's cases as values, and network namespaces made as they were recorded."""

from __future__ import annotations

import contextlib
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

CASES = Path(__file__).parent / "cases"
HISTORY = frozenset(("183", "186", "203"))
"""Cases whose last state depends on the history of one kube-proxy process (README.md)."""
BACKENDS = ("legacy", "nft")
FAMILIES = ("ipv4", "ipv6")


@dataclass(frozen=True)
class Step:
    """One recorded state of a case: its objects, its configuration, and how its save files are called."""

    objects: Path
    config: Path
    prefix: str
    is_last: bool

    def save(self, backend: str, family: str) -> str:
        return (self.objects.parent / f"{self.prefix}{backend}-{family}.save").read_text()


@dataclass(frozen=True)
class Case:
    path: Path
    env: dict
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def depends_on_history(self) -> bool:
        return self.name[:3] in HISTORY


def load(path: Path) -> Case:
    numbers = sorted(int(p.name.split("-")[1]) for p in path.glob("step-*-objects.yaml"))
    last_config = path / "config.yaml"
    steps = []
    for number in numbers:
        config = path / f"step-{number}-config.yaml"
        steps.append(
            Step(
                path / f"step-{number}-objects.yaml",
                config if config.exists() else last_config,
                f"step-{number}-",
                False,
            )
        )
    steps.append(Step(path / "objects.yaml", last_config, "", True))
    return Case(path, yaml.safe_load((path / "env.yaml").read_text()), tuple(steps))


def all_cases() -> list[Case]:
    return [load(path) for path in sorted(CASES.iterdir()) if (path / "env.yaml").exists()]


def run(argv: list[str], stdin: str = "") -> str:
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{argv} exited {done.returncode}: {done.stderr}")
    return done.stdout


@contextlib.contextmanager
def namespace(env: dict, *, preload: bool = True, backend: str = "nft") -> Iterator[str]:
    """Make a network namespace with the addresses, sysctls and foreign rules of a case; always remove it."""
    name = f"pkp-{uuid.uuid4().hex[:8]}"
    run(["ip", "netns", "add", name])
    try:
        lines = []
        for interface in env["interfaces"]:
            device = interface["name"]
            if device == "lo":
                lines.append("link set lo up")
            else:
                lines += [
                    f"link add {device} type veth peer name {device}p",
                    f"link set {device} up",
                    f"link set {device}p up",
                ]
            for address in interface["addresses"]:
                if address not in ("127.0.0.1/8", "::1/128"):
                    nodad = " nodad" if ":" in address else ""
                    lines.append(f"addr add {address} dev {device}{nodad}")
        run(["ip", "-n", name, "-batch", "-"], "\n".join(lines) + "\n")
        for sysctl, value in (env.get("sysctls") or {}).items():
            run(["ip", "netns", "exec", name, "sysctl", "-q", "-w", f"{sysctl}={value}"])
        if preload:
            for key, stem in (("preloadIPv4", "iptables"), ("preloadIPv6", "ip6tables")):
                if env.get(key):
                    run(["ip", "netns", "exec", name, f"{stem}-{backend}-restore", "--noflush"], env[key])
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def saved(name: str, backend: str, family: str) -> str:
    """Return what stands in a namespace, in the order of the recordings."""
    stem = "iptables" if family == "ipv4" else "ip6tables"
    return run(["ip", "netns", "exec", name, f"{stem}-{backend}-save"])
