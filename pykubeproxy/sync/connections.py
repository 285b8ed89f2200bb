"""New connections of each service port and endpoint, added up from what the kernel's rules have counted.

Model. The rule that leads to an endpoint counts the first packet of each connection; a sync leaves the counters of
chains alone that it does not change. ``Tally`` (pure) adds what came since the last reading. ``ConnectionCounts``
reads, when it is asked (at a scrape), and seldom: never more than once in a period that is set, nor for more than a
twentieth of the time.

What makes the sums right:
1. A counter that has fallen was reset (its chain was rewritten, or a killed restore lost it): what it shows now is new.
2. What stood before the first sync counts from the first reading on, so that a restart repeats nothing; and nothing is
   read before it is known what stood, whoever asks.
3. On legacy the lock is held while reading (netfilter.counters), since a restore under way shows zeros.
4. What an endpoint counts between the last reading and the end of its rules is lost: no reading is made for that.

Threads: any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Generic, TypeVar

import structlog

from pykubeproxy.errors import LockBusyError, PykubeproxyError, UnreadableTable
from pykubeproxy.model.service import ServicePortName
from pykubeproxy.model.state import ClusterState
from pykubeproxy.netfilter import counters
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.process import Runner
from pykubeproxy.netfilter.read import ONE_BY_ONE
from pykubeproxy.rules.names import NAT
from pykubeproxy.rules.ruleset import Ruleset
from pykubeproxy.serving.connections import OTHER, Counted
from pykubeproxy.sync.desired import Desired

log = structlog.get_logger()

SHARE = 20.0
"""Readings are spaced by so many times what the last one took."""
SERIES = 10_000
"""So many service ports, and as many endpoints, of one family have series of their own."""

_ENDPOINT = "KUBE-SEP-"
_K = TypeVar("_K", bound=Hashable)


class Sums(Generic[_K]):
    """Sums by key; those of keys beyond a limit are one."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.by_key: dict[_K, int] = {}
        self.other: int | None = None
        """The sum of those without a place; None as long as all have one."""

    def keep(self, keys: Collection[_K]) -> None:
        """Forget the others. As long as there is a place for each key, it has one before it counts anything."""
        for key in [key for key in self.by_key if key not in keys]:
            del self.by_key[key]
        if len(keys) <= self.limit:
            for key in keys:
                self.by_key.setdefault(key, 0)
        elif self.other is None:
            self.other = 0

    def add(self, key: _K, count: int) -> None:
        """Add to the sum of a key; it gets a place if one is left."""
        if key in self.by_key or len(self.by_key) < self.limit:
            self.by_key[key] = self.by_key.get(key, 0) + count
        else:
            self.other = (self.other or 0) + count


class Tally:
    """The sums of one family. Pure, not thread-safe."""

    def __init__(self, limit: int = SERIES) -> None:
        self.services: Sums[ServicePortName] = Sums(limit)
        self.endpoints: Sums[tuple[ServicePortName, str]] = Sums(limit)
        """Keyed by service port and target (``ip:port``)."""
        self._last: dict[str, int] = {}
        """What each endpoint's chain showed last."""
        self._inherited: set[str] = set()

    def inherit(self, chains: Iterable[str]) -> None:
        """Note chains that stood before: what they show at the first reading is no news."""
        self._inherited.update(chains)

    def take(
        self,
        found: Mapping[str, tuple[str, int]],
        owners: Mapping[str, ServicePortName],
        ports: Collection[ServicePortName],
    ) -> None:
        """Take one reading: chain -> (target, connections), the chains' service ports, and all service ports."""
        current = {(owners[chain], target): chain for chain, (target, _) in found.items() if chain in owners}
        self.services.keep(ports)
        self.endpoints.keep(current.keys())
        last: dict[str, int] = {}
        for key, chain in current.items():
            count = last[chain] = found[chain][1]
            before = self._last.get(chain)
            if before is None:
                before = count if chain in self._inherited else 0
            new = count - before if count >= before else count
            if new:
                self.endpoints.add(key, new)
                self.services.add(key[0], new)
        self._last = last
        self._inherited.clear()


class ConnectionCounts:
    """Reads and adds up the connections of one family. See the module's docstring."""

    def __init__(
        self,
        state: ClusterState,
        wanted: Callable[[], Desired | None],
        backend: Backend,
        runner: Runner,
        *,
        spacing: float,
        limit: int = SERIES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``wanted`` tells which service port an endpoint's chain belongs to; None before the first sync.

        ``spacing`` is the least number of seconds between two readings.
        """
        self.family = state.family
        self._state = state
        self._wanted = wanted
        self._backend = backend
        self._runner = runner
        self._spacing = spacing
        self._clock = clock
        self._lock = threading.Lock()
        self._tally = Tally(limit)
        self._knows_what_stood = False
        self._read_at: float | None = None
        self._next_at = float("-inf")
        self._seconds = 0.0
        """What the last reading took."""
        self._complaint = ""
        self._is_capped = False
        self._last = Counted(self.family)

    def adopt(self, standing: Ruleset) -> None:
        """Take note of what stands before the first write; where that has counted, read it in a thread of its own."""
        chains = [chain for chain in standing.chains[NAT] if chain.startswith(_ENDPOINT)]
        with self._lock:
            self._tally.inherit(chains)
            self._knows_what_stood = True
        if chains:
            self._refresh()

    def counted(self) -> Counted:
        """Return the sums, read anew if that is due."""
        with self._lock:
            now = self._clock()
            wanted = self._wanted() if self._knows_what_stood else None
            if wanted is not None and now >= self._next_at:
                self._read(wanted)
                self._seconds = self._clock() - now
                self._next_at = now + max(self._spacing, SHARE * self._seconds)
                self._last = self._sums()
            return self._aged()

    def last(self) -> Counted:
        """Return the sums of the last reading without waiting; if a new one is due, it is begun."""
        if self._clock() >= self._next_at and not self._lock.locked():
            self._refresh()
        return self._aged()

    def _refresh(self) -> None:
        threading.Thread(target=self.counted, name=f"connections-{self.family}", daemon=True).start()

    # -- inside, with the lock held

    def _read(self, wanted: Desired) -> None:
        try:
            found = self._found(wanted)
        except LockBusyError:
            return
        except PykubeproxyError as exc:
            if str(exc) != self._complaint:
                self._complaint = str(exc)
                log.warning("connections not read", family=self.family, error=str(exc))
            return
        self._complaint = ""
        with self._state.lock:
            # Asked for behind the reading: a chain in the kernel is known by then.
            owners = {chain: name for chain, name in wanted.owner.items() if chain.startswith(_ENDPOINT)}
            ports = [port.id for key in self._state.keys() for port in self._state.ports(key)]  # noqa: SIM118
        self._tally.take(found, owners, dict.fromkeys(ports))
        self._read_at = self._clock()
        sums = (self._tally.services, self._tally.endpoints)
        if not self._is_capped and any(one.other is not None for one in sums):
            self._is_capped = True
            log.warning(
                "connections capped",
                family=self.family,
                limit=self._tally.endpoints.limit,
                consequence=f"what comes late is added up as {OTHER}",
            )

    def _found(self, wanted: Desired) -> dict[str, tuple[str, int]]:
        try:
            return counters.translations(counters.listing(self._backend, self._runner, NAT))
        except UnreadableTable:
            with self._state.lock:
                chains = [chain for chain in wanted.owner if chain.startswith(_ENDPOINT)]
            if len(chains) > ONE_BY_ONE:
                raise
        found: dict[str, tuple[str, int]] = {}
        for chain in chains:
            try:
                found |= counters.translations(counters.listing(self._backend, self._runner, NAT, chain))
            except (UnreadableTable, LockBusyError):
                raise
            except PykubeproxyError:
                continue  # gone meanwhile
        return found

    def _aged(self) -> Counted:
        read_at = self._read_at
        return replace(self._last, age=None if read_at is None else self._clock() - read_at)

    def _sums(self) -> Counted:
        services, endpoints = self._tally.services, self._tally.endpoints
        return Counted(
            family=self.family,
            services=[(*_labels(name), count) for name, count in services.by_key.items()],
            endpoints=[(*_labels(name), target, count) for (name, target), count in endpoints.by_key.items()],
            other_services=services.other,
            other_endpoints=endpoints.other,
            seconds=self._seconds,
        )


def _labels(name: ServicePortName) -> tuple[str, str, str, str]:
    return name.namespace, name.name, name.port, name.protocol
