"""What stands in the kernel of this network namespace, for people who ask: the one module of this room that touches it.

Reads only: rules with counters, the lists of ``-m recent``, routes. Nothing is created by looking: legacy tables are
read only where they exist already.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pykubeproxy.errors import EnvironmentProblem, NetfilterError, UnreadableTable
from pykubeproxy.insight.nftrules import NativeTable, table_objects
from pykubeproxy.insight.parse import Base, Chain
from pykubeproxy.insight.standing import Counted, Standing
from pykubeproxy.insight.tracer import Table, TextTable
from pykubeproxy.model.addresses import Family, family_of
from pykubeproxy.netfilter.backend import Backend, Kind, choose, version
from pykubeproxy.netfilter.native import base_chains
from pykubeproxy.netfilter.process import Runner
from pykubeproxy.netfilter.read import Reader, SavedTable, parse
from pykubeproxy.node.netlink import HEADER, NETLINK_ROUTE, attribute, attributes, message
from pykubeproxy.node.nfacct import recent_lists
from pykubeproxy.rules.names import BUILTIN, NAT

_ALL_TABLES = ("raw", "mangle", "nat", "filter", "security")
_NFT_FAMILY = {"IPv4": "ip", "IPv6": "ip6"}
_COUNTED = re.compile(r"^\[(\d+):(\d+)\] -A (\S+) ?(.*)$", re.MULTILINE)
_JIFFIES = re.compile(r"^jiffies: (\d+)$", re.MULTILINE)
_SEEN = re.compile(r"^src=(\S+) .*last_seen: (\d+)", re.MULTILINE)


def may_read() -> bool:
    """Tell whether this process may read rules at all."""
    return os.geteuid() == 0


def require_rights(without: str) -> None:
    """Raise EnvironmentProblem unless this process may read rules; ``without`` says what can be done all the same."""
    if not may_read():
        raise EnvironmentProblem(f"needs root to read the kernel's rules; {without}")


def backend_of(wanted: str, family: Family, runner: Runner) -> Backend:
    """Choose the backend as the daemon does.

    Raises:
        EnvironmentProblem: no iptables.

    """
    choice = choose(wanted, runner)
    return Backend(choice.kind, family, version(choice.kind, runner))


def read(backend: Backend, runner: Runner) -> Standing:
    """Read our chains, the counters of nat, and the memory of affinity.

    Raises:
        LockBusyError, EnvironmentProblem, NetfilterError: as netfilter.read.

    """
    reader = Reader(backend, runner)
    reading = reader.read()
    counted: dict[tuple[str, str], list[Counted]] = {}
    if NAT not in reading.unreadable:
        for packets, octets, chain, rule in _COUNTED.findall(reader.save(NAT, counters=True)):
            counted.setdefault((NAT, chain), []).append(Counted(rule, int(packets), int(octets)))
    memory, _ = recent_memory()
    limit = recent_lists().limit
    return Standing(reading.ruleset, counted, reading.unreadable, memory, limit)


# -- everything, for a trace


class NftTable:
    """A table of iptables-nft: what iptables prints, with every native rule in it as nft tells it.

    iptables prints a native rule as if it had written it, without what it does not know: ``tcp dport { 80, 81 } drop``
    becomes ``-p tcp -j DROP`` (1.8.9). And a table that holds rules beyond that it does not print at all; then the
    chains are read one by one. So each chain that a packet comes to is listed by nft too. Base chains that somebody
    added to the table are not printed either: the kernel is asked for them.
    """

    def __init__(self, table: str, shown_as: str, family: Family, runner: Runner, reader: Reader) -> None:
        """Read what iptables can print of the table."""
        self.name = shown_as
        self._table = table
        self._family = family
        self._runner = runner
        texts: Mapping[str, str]
        policies: Mapping[str, str] = {}
        try:
            saved = parse(reader.save(table)).get(table) or SavedTable()
            texts, policies = saved.chains, saved.policies
        except UnreadableTable:
            texts = _OneByOne(reader, table)
        self._printed = TextTable(table, texts, policies, shown_as=shown_as)
        self._chains: dict[str, Chain | None] = {}
        self._whole: NativeTable | None = None
        self.bases: list[Base] = self._printed.bases + self._added()

    def chain(self, name: str) -> Chain | None:
        """Return a chain, or None where there is none."""
        if name not in self._chains:
            self._chains[name] = self._merged(name)
        return self._chains[name]

    def _added(self) -> list[Base]:
        """Return the base chains that are not those of iptables."""
        try:
            standing = base_chains(self._family, self._table)
        except NetfilterError:
            return []
        return [
            Base(base.hook, base.priority, self.name, base.name, base.type == "nat")
            for base in standing
            if base.name not in BUILTIN
        ]

    def _merged(self, name: str) -> Chain | None:
        printed = self._printed.chain(name)
        try:
            listed = self._listed(["list", "chain", _NFT_FAMILY[self._family], self._table, name])
            native = listed.chain(name)
            if native is not None and any(
                listed.is_native(name, rule.number) and "@" in rule.text for rule in native.rules
            ):
                # Only the listing of the whole table tells what is in its sets.
                listed = self._whole = self._whole or self._listed(
                    ["list", "table", _NFT_FAMILY[self._family], self._table]
                )
                native = listed.chain(name)
        except (NetfilterError, EnvironmentProblem, ValueError):
            return printed
        if native is None or printed is None or len(native.rules) != len(printed.rules):
            return native or printed
        rules = tuple(
            theirs if listed.is_native(name, ours.number) else ours
            for ours, theirs in zip(printed.rules, native.rules, strict=True)
        )
        return Chain(rules, native.policy or printed.policy)

    def _listed(self, command: list[str]) -> NativeTable:
        objects = _objects(["nft", "-j", *command], self._runner)
        return NativeTable(_NFT_FAMILY[self._family], self._table, objects, ip=self._family, shown_as=self.name)


class _OneByOne(Mapping[str, str]):
    """The chains of a table that iptables-save refuses to print, read when asked for."""

    def __init__(self, reader: Reader, table: str) -> None:
        self._reader = reader
        self._table = table
        self._known: dict[str, str | None] = {}

    def __getitem__(self, chain: str) -> str:
        if chain not in self._known:
            self._known[chain] = self._reader.read_chain(self._table, chain)
        text = self._known[chain]
        if text is None:
            raise KeyError(chain)
        return text

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def all_tables(backend: Backend, runner: Runner) -> tuple[list[Table], list[str]]:
    """Return every table that a packet of this family may come to, and what could not be looked at, in words.

    Raises:
        LockBusyError, EnvironmentProblem, NetfilterError: as netfilter.read.

    """
    family = _NFT_FAMILY[backend.family]
    listed, notes = _listed(runner)
    found: list[Table] = []
    kinds: tuple[Kind, ...] = ("nft", "legacy") if backend.kind == "nft" else ("legacy", "nft")
    for kind in kinds:
        own = backend if kind == backend.kind else Backend(kind, backend.family)
        for table in _existing(own, listed):
            one = _table(own, runner, table, is_other=kind != backend.kind)
            if one is not None:
                found.append(one)
    for key in listed or ():
        if key[0] in ("inet", family) and not (key[0] == family and key[1] in _ALL_TABLES):
            try:
                found.append(_native(*key, backend.family, runner))
            except (NetfilterError, EnvironmentProblem, ValueError) as problem:
                notes.append(f"table {key[0]} {key[1]} is not seen: {problem}")
    return found, notes


def _existing(backend: Backend, listed: list[tuple[str, str]] | None) -> list[str]:
    """Return the tables that may be read without creating them."""
    if backend.kind == "nft":
        if not shutil.which("iptables-nft-save"):
            return []
        family = _NFT_FAMILY[backend.family]
        return [table for table in _ALL_TABLES if listed is None or (family, table) in listed]
    name = "ip6_tables_names" if backend.family == "IPv6" else "ip_tables_names"
    try:
        names = Path("/proc/thread-self/net", name).read_text(encoding="ascii").split()
    except OSError:
        return []
    return [table for table in _ALL_TABLES if table in names]


def _table(backend: Backend, runner: Runner, table: str, *, is_other: bool) -> Table | None:
    reader = Reader(backend, runner)
    shown = f"{backend.kind} {table}" if is_other else table
    try:
        if backend.kind == "nft" and shutil.which("nft"):
            return NftTable(table, shown, backend.family, runner, reader)
        saved = parse(reader.save(table)).get(table)
    except NetfilterError:
        if is_other:
            return None
        raise
    return TextTable(table, saved.chains, saved.policies, shown_as=shown) if saved is not None else None


def _listed(runner: Runner) -> tuple[list[tuple[str, str]] | None, list[str]]:
    """Return (family, name) of the tables of nftables, None where they cannot be listed; and what to tell of them."""
    if not shutil.which("nft"):
        return None, ["nft is not installed: native nft tables, if there are any, are not seen"]
    try:
        objects = _objects(["nft", "-j", "list", "tables"], runner)
    except (NetfilterError, EnvironmentProblem, ValueError) as problem:
        return None, [f"native nft tables are not seen: {problem}"]
    tables = [(one["table"]["family"], one["table"]["name"]) for one in objects if "table" in one]
    return tables, [f"table {kind} {name} is not looked at" for kind, name in tables if kind in ("netdev", "bridge")]


def _native(kind: str, name: str, family: Family, runner: Runner) -> NativeTable:
    return NativeTable(kind, name, _objects(["nft", "-j", "list", "table", kind, name], runner), ip=family)


def _objects(command: list[str], runner: Runner) -> list[dict[str, Any]]:
    listed = runner.run(command, timeout=120.0)
    if listed.status != 0:
        raise NetfilterError(listed.complaint)
    return table_objects(listed.stdout.decode("utf-8", "replace"))


# -- memory of affinity


def recent_memory(
    chains: Iterable[str] | None = None, proc: Path = Path("/proc")
) -> tuple[dict[str, dict[str, float]], bool]:
    """Return what ``-m recent`` remembers: list -> address -> seconds ago, and whether the ages are known.

    ``chains``: only what these remember; None: all endpoint chains. Where the kernel does not tell its clock (no
    /proc/timer_list) every address is taken as seen just now.
    """
    folder = proc / "thread-self/net/xt_recent"
    if chains is None:
        try:
            chains = sorted(path.name for path in folder.iterdir() if path.name.startswith("KUBE-SEP-"))
        except OSError:
            return {}, True
    now, hertz = _clock(proc)
    memory: dict[str, dict[str, float]] = {}
    for chain in chains:
        try:
            text = (folder / chain).read_text(encoding="ascii")
        except OSError:
            continue
        memory[chain] = {
            _canonical(address): max(0.0, (now - int(seen)) / hertz) if hertz else 0.0
            for address, seen in _SEEN.findall(text)
        }
    return memory, bool(hertz)


def _canonical(address: str) -> str:
    """Shorten an IPv6 address, which xt_recent prints with all its zeros."""
    if ":" not in address:
        return address
    return socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, address))


def _clock(proc: Path) -> tuple[int, int]:
    """Return (jiffies now, jiffies a second); (0, 0) where unknown.

    On 64-bit kernels jiffies start 300 s before the wrap of 32 bits (INITIAL_JIFFIES), which gives the rate away.
    """
    try:
        text = (proc / "timer_list").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0, 0
    found = _JIFFIES.search(text)
    if found is None:
        return 0, 0
    now, up = int(found[1]), time.clock_gettime(time.CLOCK_MONOTONIC)
    return now, min((100, 250, 300, 1000), key=lambda rate: abs(2**32 + rate * (up - 300) - now))


# -- routes

_RTM_GETROUTE = 26
_RTM_NEWROUTE = 24
_RTMSG = struct.Struct("=BBBBBBBBI")
_RTA_DST, _RTA_OIF, _RTA_PREFSRC = 1, 4, 7


class Route(NamedTuple):
    """What the routing table chooses towards an address; texts are "" where it has none."""

    interface: str = ""
    source: str = ""


def route_to(address: str) -> Route:
    """Ask the routing table of this namespace."""
    family = socket.AF_INET6 if family_of(address) == "IPv6" else socket.AF_INET
    packed = socket.inet_pton(family, address)
    body = _RTMSG.pack(family, len(packed) * 8, 0, 0, 0, 0, 0, 0, 0) + attribute(_RTA_DST, packed)
    interface = source = ""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_ROUTE) as asking:
            asking.settimeout(5.0)
            asking.send(message(_RTM_GETROUTE, 0, body))
            answer = asking.recv(65536)
        length, kind, *_ = HEADER.unpack_from(answer, 0)
        if kind != _RTM_NEWROUTE:
            return Route()
        for what, start, end in attributes(answer, HEADER.size + _RTMSG.size, length):
            if what == _RTA_OIF:
                interface = socket.if_indextoname(int.from_bytes(answer[start:end], sys.byteorder))
            elif what == _RTA_PREFSRC:
                source = socket.inet_ntop(family, answer[start:end])
    except OSError:
        return Route()
    return Route(interface, source)
