"""Kernel settings that kube-proxy makes at start: localhost node ports and the size of the connection table.

Deciding is pure (``names_for`` says what to read, ``writes_for`` what to write); ``init_sysctls`` reads and applies
through one seam, ``SysctlAccess``. The rules are those of kube-proxy 1.36 (cmd/kube-proxy/app/conntrack.go) with two
differences: a limit that an administrator has raised is never lowered, and nothing here is fatal to a daemon, because
in containers, LXC and rootless clusters most of these files are read-only and rightly so.

What this module must not do: touch a setting that the plan leaves out (``max_per_core`` 0 means that neither the limit
nor the hash size is so much as read), or write a value that already stands.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

log = structlog.get_logger()

ROUTE_LOCALNET = "net/ipv4/conf/all/route_localnet"
CONNTRACK_MAX = "net/netfilter/nf_conntrack_max"
TCP_ESTABLISHED = "net/netfilter/nf_conntrack_tcp_timeout_established"
TCP_CLOSE_WAIT = "net/netfilter/nf_conntrack_tcp_timeout_close_wait"
TCP_BE_LIBERAL = "net/netfilter/nf_conntrack_tcp_be_liberal"
UDP_TIMEOUT = "net/netfilter/nf_conntrack_udp_timeout"
UDP_STREAM_TIMEOUT = "net/netfilter/nf_conntrack_udp_timeout_stream"
# Not a sysctl but a module parameter; the kernel takes it in the initial network namespace only.
CONNTRACK_HASHSIZE = "/sys/module/nf_conntrack/parameters/hashsize"

CONNTRACK_MAX_CAP = 1_048_576
"""kube-proxy 1.36 asks for no more than this, however many cores there are."""


class SysctlAccess(Protocol):
    """Reads and writes kernel settings by name: relative to /proc/sys, or an absolute path."""

    def read(self, name: str) -> str | None:
        """Return the stripped text, None where the setting does not exist or cannot be read."""

    def write(self, name: str, value: str) -> None:
        """Write a value. Raise OSError where the kernel or the mount refuses."""


class ProcSysctls:
    """The settings of the network namespace that the calling thread is in."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def _path(self, name: str) -> Path:
        return self._root / name.lstrip("/") if name.startswith("/") else self._root / "proc/sys" / name

    def read(self, name: str) -> str | None:
        """Return the stripped text, None where the setting does not exist or cannot be read."""
        try:
            return self._path(name).read_text(encoding="ascii").strip()
        except OSError:
            return None

    def write(self, name: str, value: str) -> None:
        """Write a value. Raise OSError where the kernel or the mount refuses."""
        # Not Path.write_text: O_CREAT and O_TRUNC have no business under /proc/sys; a missing setting shall be ENOENT.
        descriptor = os.open(self._path(name), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, f"{value}\n".encode("ascii"))
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class SysctlPlan:
    """What the configuration asks for. 0 or None leaves a setting alone; times are seconds."""

    route_localnet: bool = False
    """Whether node ports shall answer on 127.0.0.1: localhostNodePorts, IPv4, nodePortAddresses include loopback."""
    conntrack_max_per_core: int = 0
    conntrack_min: int = 0
    cores: int = 1
    tcp_established_timeout: float | None = None
    tcp_close_wait_timeout: float | None = None
    tcp_be_liberal: bool = False
    udp_timeout: float | None = None
    udp_stream_timeout: float | None = None

    @property
    def conntrack_max(self) -> int:
        """The limit asked for, 0 for "leave it alone"."""
        if self.conntrack_max_per_core <= 0:
            return 0
        return min(max(self.conntrack_max_per_core * self.cores, self.conntrack_min), CONNTRACK_MAX_CAP)


@dataclass(frozen=True, slots=True)
class Write:
    """One setting to write; ``was`` is None where the old value is unknown."""

    name: str
    value: int
    was: int | None


@dataclass(frozen=True, slots=True)
class SysctlResult:
    """What came of a plan; ``refused`` pairs a setting with the reason the kernel gave."""

    written: tuple[Write, ...]
    refused: tuple[tuple[Write, str], ...]

    lacks_rights: bool = False
    """Whether something was refused for another reason than a read-only mount, which is somebody's decision."""

    def refusals(self) -> list[str]:
        """Return one clause for each setting that was refused."""
        return [f"{write.name}={write.value}: {reason}" for write, reason in self.refused]


def _exact(plan: SysctlPlan) -> list[tuple[str, int]]:
    """List the settings that shall have exactly the given value."""
    wanted: list[tuple[str, int]] = []
    if plan.route_localnet:
        wanted.append((ROUTE_LOCALNET, 1))
    for name, seconds in (
        (TCP_ESTABLISHED, plan.tcp_established_timeout),
        (TCP_CLOSE_WAIT, plan.tcp_close_wait_timeout),
        (UDP_TIMEOUT, plan.udp_timeout),
        (UDP_STREAM_TIMEOUT, plan.udp_stream_timeout),
    ):
        if seconds is not None and int(seconds) > 0:
            wanted.append((name, int(seconds)))
    if plan.tcp_be_liberal:
        wanted.append((TCP_BE_LIBERAL, 1))
    return wanted


def names_for(plan: SysctlPlan) -> list[str]:
    """List the settings that have to be read before ``writes_for`` can decide; nothing else may be touched."""
    limits = [CONNTRACK_MAX, CONNTRACK_HASHSIZE] if plan.conntrack_max else []
    return [*limits, *(name for name, _ in _exact(plan))]


def writes_for(plan: SysctlPlan, values: Mapping[str, int | None]) -> list[Write]:
    """Decide what to write, given the present values of ``names_for(plan)`` (None: unknown).

    The limit and the hash size are only ever raised. An unknown value is written, except for the hash size: where it
    cannot be read it is not ours to set.
    """
    result: list[Write] = []
    limit = plan.conntrack_max
    if limit:
        present = values.get(CONNTRACK_MAX)
        if present is None or present < limit:
            result.append(Write(CONNTRACK_MAX, limit, present))
        hashsize = values.get(CONNTRACK_HASHSIZE)
        if hashsize is not None and hashsize < limit // 4:
            result.append(Write(CONNTRACK_HASHSIZE, limit // 4, hashsize))
    for name, value in _exact(plan):
        present = values.get(name)
        if present != value:
            result.append(Write(name, value, present))
    return result


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def init_sysctls(
    plan: SysctlPlan,
    access: SysctlAccess | None = None,
    *,
    load_conntrack: Callable[[], object] | None = None,
) -> SysctlResult:
    """Bring the kernel's settings to the plan; log what was written and, in one warning, what was refused.

    Never raises for a setting that cannot be written. ``load_conntrack`` is called once when a connection tracking
    setting does not exist yet: the files appear with the module.
    """
    access = ProcSysctls() if access is None else access
    names = names_for(plan)
    values = {name: _number(access.read(name)) for name in names}
    if load_conntrack is not None and any(values[name] is None and "nf_conntrack" in name for name in names):
        load_conntrack()
        values = {name: _number(access.read(name)) for name in names}
    written: list[Write] = []
    refused: list[tuple[Write, str]] = []
    is_read_only = True
    for write in writes_for(plan, values):
        try:
            access.write(write.name, str(write.value))
        except OSError as error:
            refused.append((write, _reason(error)))
            is_read_only = is_read_only and error.errno == errno.EROFS
        else:
            written.append(write)
            log.info("sysctl set", name=write.name, value=write.value, was=write.was)
    result = SysctlResult(tuple(written), tuple(refused), lacks_rights=bool(refused) and not is_read_only)
    if refused:
        log.warning(
            "sysctls not set",
            refused=result.refusals(),
            hint="harmless if the host sets them; else run --init-only in a privileged init container,"
            " or set conntrack.maxPerCore and the conntrack timeouts to 0",
        )
    return result


def tcp_be_liberal(access: SysctlAccess | None = None) -> bool:
    """Tell whether conntrack takes out-of-window TCP packets as valid; then INVALID need not be dropped (k/k#94861)."""
    access = ProcSysctls() if access is None else access
    return _number(access.read(TCP_BE_LIBERAL)) == 1


def routes_localnet(access: SysctlAccess | None = None) -> bool:
    """Tell whether packets to 127.0.0.0/8 are routed, as node ports on 127.0.0.1 need."""
    access = ProcSysctls() if access is None else access
    return _number(access.read(ROUTE_LOCALNET)) == 1
