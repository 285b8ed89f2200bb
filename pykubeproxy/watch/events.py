"""Kubernetes Events: what people see in ``kubectl describe``, posted without ever holding up who reports them.

It exists because an API server that is slow or gone must not delay a sync by a millisecond, and because a fault that
repeats at each sync must not flood etcd. So: a bounded queue and a thread of its own, a budget for each object and one
for all, repetitions counted in the first Event instead of posted again, and what is too much dropped and counted.
It must not know the client library: it speaks to a :class:`Poster`. Rights needed: create and patch of ``events``.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import structlog

from pykubeproxy.errors import ApiError

log = structlog.get_logger(__name__)

MAX_QUEUED = 200
MAX_REMEMBERED = 1024
"""Events and objects that are remembered for counting and budgets, the least recently used forgotten first."""
SAME_EVENT_SECONDS = 600.0
"""How long a repetition is counted in the first Event (as client-go's aggregator does)."""
MAX_MESSAGE = 1024
"""Characters; the API refuses more."""
TRIES = 3


class Poster(Protocol):
    """What a recorder needs of an API client. Failures are ApiErrors."""

    def post_event(self, event: Mapping[str, Any]) -> None:
        """Create a core/v1 Event."""

    def patch_event(self, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        """Merge ``patch`` into an Event."""


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """The object that an Event is about."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    api_version: str = "v1"


def node_ref(name: str) -> ObjectRef:
    """Return the reference to a Node as kubelet and kube-proxy write it: its uid is its name."""
    return ObjectRef("Node", "", name, uid=name)


class Bucket:
    """A token bucket: ``burst`` at once, then one each ``1 / rate`` seconds."""

    def __init__(self, rate: float, burst: int, at: float) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at = at

    def take(self, at: float) -> bool:
        """Take a token, if there is one."""
        self._tokens = min(self._burst, self._tokens + max(0.0, at - self._at) * self._rate)
        self._at = at
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


@dataclass(frozen=True, slots=True)
class _Event:
    ref: ObjectRef
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(slots=True)
class _Posted:
    name: str
    at: float
    """Monotonic time of the last one."""
    count: int


class EventRecorder:
    """Posts Events from a thread of its own. Any thread may report; reporting never blocks and never raises.

    ``now`` is wall-clock time and only written into Events; ``clock`` is monotonic and decides.
    """

    def __init__(
        self,
        poster: Poster,
        *,
        host: str,
        component: str = "kube-proxy",
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.posted = 0
        self.dropped = 0
        """Not posted: over budget, queue full, or refused by the API server."""
        self._poster = poster
        self._host = host
        self._component = component
        self._clock = clock
        self._now = now
        self._stopping = threading.Event()
        self._sleep = sleep or self._stopping.wait
        self._queue: deque[_Event] = deque()
        self._wake = threading.Condition()
        # client-go's spam filter: 25 at once for an object, then one each 5 minutes.
        self._budgets: OrderedDict[tuple[str, str, str], Bucket] = OrderedDict()
        self._budget = Bucket(rate=1.0, burst=50, at=clock())
        self._known: OrderedDict[_Event, _Posted] = OrderedDict()
        self._last_name = 0
        self._thread = threading.Thread(target=self._main, name="events", daemon=True)

    def normal(self, ref: ObjectRef, reason: str, message: str) -> None:
        """Report that something happened as it should."""
        self._put(_Event(ref, "Normal", reason, message[:MAX_MESSAGE]))

    def warning(self, ref: ObjectRef, reason: str, message: str) -> None:
        """Report that something is wrong. ``reason`` is a CamelCase word, ``message`` a sentence for people."""
        self._put(_Event(ref, "Warning", reason, message[:MAX_MESSAGE]))

    def start(self) -> None:
        """Start the thread; what was reported before is posted then."""
        self._thread.start()

    def stop(self, timeout: float = 1.0) -> None:
        """Post what is queued, as far as ``timeout`` seconds allow, and end the thread."""
        self._stopping.set()
        with self._wake:
            self._wake.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _put(self, event: _Event) -> None:
        with self._wake:
            if not self._affords(event):
                self.dropped += 1
                return
            self._queue.append(event)
            self._wake.notify_all()

    def _affords(self, event: _Event) -> bool:
        if len(self._queue) >= MAX_QUEUED:
            return False
        at = self._clock()
        key = (event.ref.kind, event.ref.namespace, event.ref.name)
        bucket = self._budgets.get(key)
        if bucket is None:
            bucket = self._budgets[key] = Bucket(rate=1 / 300, burst=25, at=at)
            if len(self._budgets) > MAX_REMEMBERED:
                self._budgets.popitem(last=False)
        else:
            self._budgets.move_to_end(key)
        return bucket.take(at) and self._budget.take(at)

    def _main(self) -> None:
        while True:
            with self._wake:
                while not self._queue:
                    if self._stopping.is_set():
                        return
                    self._wake.wait()
                event = self._queue.popleft()
            try:
                self.post(event)
            except Exception:
                # Events are a courtesy: their failure must not end the daemon, nor go unseen.
                log.exception("event not posted", reason=event.reason)
                self.dropped += 1

    def post(self, event: _Event) -> None:
        """Post one Event, or count it in the one that said the same; a few tries, then it is dropped."""
        for attempt in range(TRIES):
            try:
                self._post_once(event)
            except ApiError as error:
                is_lasting = 400 <= error.code < 500 and error.code != 429
                if is_lasting or attempt + 1 == TRIES or self._stopping.is_set():
                    self.dropped += 1
                    log.debug("event not posted", reason=event.reason, object=event.ref.name, error=str(error))
                    return
                self._sleep(min(30.0, error.retry_after or 2.0**attempt))
            else:
                self.posted += 1
                return

    def _post_once(self, event: _Event) -> None:
        at = self._clock()
        namespace = event.ref.namespace or "default"
        stamp = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        known = self._known.get(event)
        if known is not None and at - known.at < SAME_EVENT_SECONDS:
            patch = {"count": known.count + 1, "lastTimestamp": stamp}
            try:
                self._poster.patch_event(namespace, known.name, patch)
            except ApiError as error:
                if error.code != 404:
                    raise
            else:
                known.count += 1
                known.at = at
                self._known.move_to_end(event)
                return
        # Named as client-go does, by nanoseconds; two in one instant, or a clock set back, must not collide.
        self._last_name = max(self._last_name + 1, int(self._now().timestamp() * 1e9))
        name = f"{event.ref.name}.{self._last_name:x}"
        self._poster.post_event(self._body(event, namespace, name, stamp))
        self._known[event] = _Posted(name, at, 1)
        self._known.move_to_end(event)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)

    def _body(self, event: _Event, namespace: str, name: str, stamp: str) -> dict[str, Any]:
        ref = event.ref
        involved = {
            "kind": ref.kind,
            "namespace": ref.namespace,
            "name": ref.name,
            "uid": ref.uid,
            "apiVersion": ref.api_version,
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {key: value for key, value in involved.items() if value},
            "reason": event.reason,
            "message": event.message,
            "type": event.type,
            "source": {"component": self._component, "host": self._host},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
