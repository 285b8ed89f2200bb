"""On what machine this was measured, in words that anybody's machine could be told in."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path


def description() -> str:
    """Return one line: cores, memory, kernel, iptables, Python."""
    memory = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) / (1 << 20)  # type: ignore[index]
    kernel = ".".join(platform.release().split(".")[:2])
    told = subprocess.run(["iptables", "--version"], capture_output=True, text=True, check=False).stdout
    iptables = (re.search(r"v([0-9.]+)", told) or ["", "?"])[1]
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GB of memory, Linux {kernel} ({platform.machine()}), "
        f"iptables {iptables}, "
        f"Python {platform.python_version()}"
    )


def version_of(program: str) -> str:
    """Return what a program calls its version."""
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"v?(\d+\.\d+\.\d+)", told)
    return found[1] if found else "of an unknown version"


def load() -> str:
    """Return the load averages: above the number of benchmark processes, somebody else was at work."""
    return " ".join(Path("/proc/loadavg").read_text().split()[:3])
