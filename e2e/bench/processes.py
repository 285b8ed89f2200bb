"""What a running program costs: memory and CPU, its children included, read from /proc."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of CPU; ``children`` is what the ended child processes took (iptables)."""

    own: float
    children: float

    def since(self, earlier: Cost) -> Cost:
        """Return the difference."""
        return Cost(self.own - earlier.own, self.children - earlier.children)

    @property
    def total(self) -> float:
        """Return own and children's seconds."""
        return self.own + self.children


def cost(pid: int) -> Cost:
    """Return the CPU seconds of a process by now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, child_user, child_system = (int(field) / _TICK for field in fields[11:15])
    return Cost(user + system, child_user + child_system)


def own_seconds(pid: int) -> float:
    """Return the CPU seconds of a process's threads, exact to the microsecond; its children are not in it."""
    return sum(int((_read(task / "schedstat") or "0").split()[0]) for task in _tasks(pid)) / 1e9


@dataclass(frozen=True, slots=True)
class Memory:
    """Megabytes (of 2**20 bytes): resident now, its share of shared pages counted (PSS), and the highest ever."""

    rss: float
    pss: float
    peak: float


def memory(pid: int) -> Memory:
    """Return a process's memory now."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    pss = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
    return Memory(_megabytes(status["VmRSS"]), _megabytes(pss.split(":")[1]), _megabytes(status["VmHWM"]))


def _megabytes(text: str) -> float:
    return int(text.split(maxsplit=1)[0]) / 1024


class ChildrenWatch:
    """Looks every few milliseconds how large the children are; ``peak`` is the largest seen, in megabytes."""

    def __init__(self, pid: int, interval: float = 0.01) -> None:
        self._pid = pid
        self._exe = _exe(pid)
        self._interval = interval
        self._ended = threading.Event()
        self.peak = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """End it; return the peak."""
        self._ended.set()
        self._thread.join()
        return self.peak

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            for task in _tasks(self._pid):
                for child in _read(task / "children").split():
                    if _exe(child) == self._exe:  # not become another program yet: its memory is its parent's
                        continue
                    for line in _read(Path(f"/proc/{child}/status")).splitlines():
                        if line.startswith("VmHWM:"):
                            self.peak = max(self.peak, _megabytes(line.split(":")[1]))


def _exe(pid: int | str) -> str:
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return ""


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
