"""Health: whether this proxy does its work, whether a load balancer may use this node, whether the first sync is done.

It exists so that three questions with three askers (a load balancer, kubelet's liveness probe, kubelet's readiness
probe) are answered from the same facts and by rules that can be read in one place. It must not look at anything itself:
the sync engines report, the watch reports, the Node watch reports, and the clocks are arguments.

What is decided is decided by the monotonic clock; the wall clock is only printed (field reports tell of nodes whose
clock jumped by a day).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

TO_BE_DELETED_TAINT = "ToBeDeletedByClusterAutoscaler"
"""The cluster autoscaler taints a node with it before deleting the node (KEP-3836)."""

GO_ZERO_TIME = "0001-01-01T00:00:00Z"
"""How Go prints a time that was never set."""


def is_node_eligible(*, is_known: bool, is_being_deleted: bool = False, taint_keys: Iterable[str] = ()) -> bool:
    """Tell whether load balancers may send new connections to this node (KEP-3836)."""
    return is_known and not is_being_deleted and TO_BE_DELETED_TAINT not in taint_keys


@dataclass(slots=True)
class _Family:
    """Times of one IP family; monotonic seconds, but for ``updated_ns`` (wall clock, nanoseconds since 1970)."""

    oldest_queued: float | None = None
    """When the oldest change was queued that no sync has begun to apply."""
    oldest_in_sync: float | None = None
    """The same of the changes that the running (or failed) sync took up."""
    is_syncing: bool = False
    updated_ns: int | None = None

    def oldest(self) -> float | None:
        return self.oldest_queued if self.oldest_in_sync is None else self.oldest_in_sync


@dataclass(frozen=True, slots=True)
class FamilyHealth:
    """Health of one IP family. ``last_updated_ns``: wall clock of the last successful sync, None before the first."""

    family: str
    is_healthy: bool
    last_updated_ns: int | None
    oldest_change_age: float
    """Seconds; 0 when nothing is pending."""


class ProxierHealth:
    """Keep the facts and answer /healthz, /livez and /readyz.

    Rules:

    1. A family is unhealthy while its oldest queued change has not been applied for ``2 * sync_period``. Nothing
       pending is healthy for ever, and a family is healthy until its first sync has succeeded (kube-proxy's rule:
       otherwise a slow start would look like a hung one).
    2. /livez follows rule 1 alone: a restart cannot help a tainted node or an API server that is down.
    3. /healthz adds the node's eligibility. It is what load balancers ask.
    4. /readyz is ours: every family has synced, rule 1 holds, no watch has been silent for ``watch_stale_after``, and
       nothing is ``unread``. What is in ``notes`` is told there as well, and is no reason against readiness.
    5. ``is_strict`` makes /healthz ask for what /readyz asks as well.

    A change that arrives while a sync runs is not in that sync: engines call :meth:`sync_started` when they take up
    what is queued, and :meth:`updated` then confirms only that. Without sync_started, updated confirms everything, as
    kube-proxy's does.

    Threads: all methods may be called from any thread; the lock is never held while a callable is called.
    """

    def __init__(
        self,
        families: Sequence[str],
        sync_period: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
        watch_ages: Callable[[], Mapping[str, float]] = dict,
        watch_stale_after: float = 180.0,
        unread: Callable[[], Sequence[str]] = tuple,
        notes: Callable[[], Sequence[str]] = tuple,
        is_strict: bool = False,
    ) -> None:
        """Take the families ("IPv4", "IPv6"), their sync period, and where to ask for the age (s) of each watch.

        ``unread`` and ``notes`` are asked why input cannot be read, a clause each: such as has never been read yet, and
        such as whose last good content is in force.
        """
        self._timeout = 2 * sync_period
        self._monotonic = monotonic
        self._wall_ns = wall_ns
        self._watch_ages = watch_ages
        self._watch_stale_after = watch_stale_after
        self._unread = unread
        self.notes = notes
        self._is_strict = is_strict
        self._lock = threading.Lock()
        self._families = {family: _Family() for family in families}
        self._is_node_eligible = True

    def queued_update(self, family: str) -> None:
        """Note that a change waits to be applied."""
        now = self._monotonic()
        with self._lock:
            state = self._families[family]
            if state.oldest_queued is None:
                state.oldest_queued = now

    def sync_started(self, family: str) -> None:
        """Note that a sync has taken up all that is queued."""
        with self._lock:
            state = self._families[family]
            if state.oldest_in_sync is None:
                state.oldest_in_sync = state.oldest_queued
            state.oldest_queued = None
            state.is_syncing = True

    def updated(self, family: str) -> None:
        """Note that a sync has succeeded. A failed one is not reported: what it took up just goes on ageing."""
        now_ns = self._wall_ns()
        with self._lock:
            state = self._families[family]
            state.oldest_in_sync = None
            if not state.is_syncing:
                state.oldest_queued = None
            state.is_syncing = False
            state.updated_ns = now_ns

    def set_node(self, *, is_known: bool, is_being_deleted: bool = False, taint_keys: Iterable[str] = ()) -> None:
        """Take the state of our own Node. Until the first call the node counts as eligible."""
        is_eligible = is_node_eligible(is_known=is_known, is_being_deleted=is_being_deleted, taint_keys=taint_keys)
        with self._lock:
            self._is_node_eligible = is_eligible

    def is_healthy(self) -> bool:
        """Tell whether every family is healthy (rule 1)."""
        return all(family.is_healthy for family in self.families())

    def is_node_eligible(self) -> bool:
        """Tell whether the Node was eligible when last seen."""
        with self._lock:
            return self._is_node_eligible

    def oldest_change_age(self, family: str) -> float:
        """Return the age in seconds of the oldest change that is not applied, 0 if there is none."""
        return next(state.oldest_change_age for state in self.families() if state.family == family)

    def families(self) -> list[FamilyHealth]:
        """Return the health of each family."""
        now = self._monotonic()
        answer = []
        with self._lock:
            for family, state in self._families.items():
                oldest = state.oldest()
                age = 0.0 if oldest is None else max(0.0, now - oldest)
                is_late = oldest is not None and age >= self._timeout
                is_healthy = state.updated_ns is None or not is_late
                answer.append(FamilyHealth(family, is_healthy, state.updated_ns, age))
        return answer

    def why_not_ready(self) -> list[str]:
        """Return one clause per reason against readiness; empty means ready."""
        return self._reasons(self._watch_ages())

    def _reasons(self, watch_ages: Mapping[str, float]) -> list[str]:
        reasons = []
        for state in self.families():
            if state.last_updated_ns is None:
                reasons.append(f"{state.family}: the first full sync has not succeeded")
            elif not state.is_healthy:
                reasons.append(
                    f"{state.family}: a change has been waiting for {state.oldest_change_age:.0f} s"
                    f" (limit {self._timeout:.0f} s)"
                )
        reasons.extend(
            f"{resource}: the watch has been silent for {age:.0f} s (limit {self._watch_stale_after:.0f} s)"
            for resource, age in sorted(watch_ages.items())
            if age > self._watch_stale_after
        )
        reasons.extend(self._unread())
        return reasons

    def healthz(self) -> tuple[int, bytes]:
        """Answer /healthz: 200 if load balancers may send traffic to this node."""
        is_eligible = self.is_node_eligible()
        families = self.families()
        is_healthy = all(state.is_healthy for state in families)
        is_ok = is_healthy and is_eligible and not (self._is_strict and self.why_not_ready())
        return self._answer(families, is_ok=is_ok, is_healthy=is_healthy, extra={"nodeEligible": is_eligible})

    def livez(self) -> tuple[int, bytes]:
        """Answer /livez: 200 unless a restart might help."""
        families = self.families()
        is_healthy = all(state.is_healthy for state in families)
        return self._answer(families, is_ok=is_healthy, is_healthy=is_healthy, extra={})

    def readyz(self) -> tuple[int, bytes]:
        """Answer /readyz: do the rules of this node follow the cluster? The body says why not."""
        watch_ages = self._watch_ages()
        reasons = self._reasons(watch_ages)
        document = {
            "currentTime": rfc3339_nano(self._wall_ns()),
            "ready": not reasons,
            "reasons": reasons,
            **({"notes": notes} if (notes := list(self.notes())) else {}),
            "watchAgeSeconds": {resource: round(age, 3) for resource, age in sorted(watch_ages.items())},
        }
        return (HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK), _compact(document)

    def _answer(
        self, families: Sequence[FamilyHealth], *, is_ok: bool, is_healthy: bool, extra: Mapping[str, bool]
    ) -> tuple[int, bytes]:
        now = rfc3339_nano(self._wall_ns())
        times = [state.last_updated_ns for state in families if state.last_updated_ns is not None]
        # Load balancers judge by lastUpdated, hence "now" as long as all is well even if nothing has changed for days.
        last_updated = now if is_ok else rfc3339_nano(max(times, default=None))
        document: dict[str, object] = {
            "lastUpdated": last_updated,
            "currentTime": now,
            **extra,
            "healthy": is_healthy,
        }
        if times:
            document["status"] = {
                state.family: {"lastUpdated": rfc3339_nano(state.last_updated_ns), "healthy": state.is_healthy}
                for state in families
                if state.last_updated_ns is not None
            }
        return (HTTPStatus.OK if is_ok else HTTPStatus.SERVICE_UNAVAILABLE), _compact(document)


def rfc3339_nano(wall_ns: int | None) -> str:
    """Print nanoseconds since 1970 as Go does: UTC, no zeros at the end of the fraction."""
    if wall_ns is None:
        return GO_ZERO_TIME
    seconds, nanoseconds = divmod(wall_ns, 1_000_000_000)
    fraction = f".{nanoseconds:09d}".rstrip("0").rstrip(".")
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + fraction + "Z"


def _compact(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
