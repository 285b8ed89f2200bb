"""One resource of an API server, kept up to date in a handler: list, watch, and again after anything that goes wrong.

It exists because the client library's informer has no has-synced, no back-off, no bookmarks and no read timeout.
This is the loop that reads, hands over and sleeps; what it decides by is pure and elsewhere (``driver``, ``outage``,
``selectors``). It must not know HTTP or the client library: it speaks to a :class:`Session`.

How it behaves, and why:

* The first list asks for resourceVersion 0: any version will do, so the server answers from its watch cache, whole.
* A list after a lost version asks for none: a consistent read, in pages, and never for a version that was refused.
* A watch that ends, is cut or falls silent goes on from the last version that was seen. A new list comes only after
  "410 Gone" (as HTTP status or as an ERROR event), after a line that cannot be read, and when two watches running (one,
  of a server that sends bookmarks or was away) heard nothing at all: the server may have been restored to an older
  state, in which our version lies in its future.
* Every failure waits: exponential with jitter, to 30 s; only a minute of healthy watching starts it over. A watch that
  the server ends in good order is no failure, but watches begin at least a second apart.
* Failures in a row are told when their reason is new, and again at a decreasing pace for as long as they last.
* An object that does not decode is named and counted. What can be used of it is handed over; if that is nothing, what
  its receiver knows of it stays.
"""

from __future__ import annotations

import random as randomness
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Generic, Protocol, TypeVar

import structlog

from pykubeproxy.errors import ApiError, GoneError, SilentError, StreamError
from pykubeproxy.watch.decode import (
    BadObject,
    Mended,
    ObjectDecoder,
    UndecodableError,
    decoder_of,
)
from pykubeproxy.watch.driver import Bookmark, Delete, Upsert, WatchDriver
from pykubeproxy.watch.objects import KubeObject
from pykubeproxy.watch.outage import REMINDERS, Backoff, Outage
from pykubeproxy.watch.selectors import Selectors, is_selected, selectors_of
from pykubeproxy.watch.source import Handler, Resource, WatchStatus

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubeObject)

READ_TIMEOUT = 90.0
"""Seconds of silence after which a watch is given up: bookmarks come every 60 s."""
WATCH_SECONDS = (300, 600)
"""How long the server is asked to keep a watch open, at random, so that a cluster's nodes do not reconnect together."""
PAGE = 500
HEALTHY_AFTER = 60.0
"""Seconds of watching after which failures are forgotten."""
WATCH_INTERVAL = 1.0
"""Seconds between the beginnings of two watches, when the first ended in good order."""
MAX_RETRY_AFTER = 120.0
"""The longest Retry-After that is honoured: a mistaken one must not blind the node."""


class Stream(Protocol):
    """An accepted watch."""

    def __iter__(self) -> Iterator[bytes]:
        """Yield the lines without their line ends; a last one that is cut off is not yielded."""

    def close(self) -> None:
        """Give the connection back, or close it when there is more to come."""


class Session(Protocol):
    """What a reflector needs of an API client: its own connection. Failures are ApiError and its kinds."""

    def list(self, resource: Resource, params: Mapping[str, str]) -> bytes | bytearray:
        """Return the body of a list."""

    def watch(self, resource: Resource, params: Mapping[str, str], *, read_timeout: float) -> Stream:
        """Begin a watch; return once the server has accepted it."""

    def abort(self) -> None:
        """Make calls in progress, also in other threads, and later ones fail at once."""

    def close(self) -> None:
        """Give up the connection."""


class Reflector(Generic[T]):
    """The loop of one resource: list, watch, hand over, wait. One thread, one connection.

    ``sleep`` returns early once the reflector is told to stop; ``on_crash`` gets what escapes the loop, be it a bug
    here or an exception of the handler: a resource that is no longer followed must not go unnoticed.
    """

    def __init__(
        self,
        resource: Resource,
        session: Session,
        handler: Handler[T],
        *,
        node_name: str = "",
        on_crash: Callable[[BaseException], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], object] | None = None,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        self.status = WatchStatus(resource, clock)
        self._resource = resource
        self._session = session
        self._handler = handler
        self._node_name = node_name
        self._on_crash = on_crash
        self._clock = clock
        self._wall = wall
        self._random = random
        self._stopping = threading.Event()
        self._sleep = sleep or self._stopping.wait
        self._decoder: ObjectDecoder[T] = decoder_of(resource)
        self._selectors = selectors_of(resource, node_name)
        self._backoff = Backoff(random)
        self._outage = Outage()
        self._version: str | None = None
        """Where the next watch goes on; None: list first."""
        self._silent_watches = 0
        self._is_heard = True
        """Whether an accepted watch counts as a sign of life: not after one that failed without bringing anything."""
        self._expects_events = False
        """Whether a silent watch is suspicious by itself: the server sends bookmarks, or it may have been restarted."""
        self._known: set[tuple[str, str]] = set()
        """What the receiver holds: needed when a list holds objects that do not decode, whose old state shall stay."""
        self._thread = threading.Thread(target=self._main, name=f"watch-{resource}", daemon=True)

    @property
    def has_synced(self) -> bool:
        """Whether a whole list has been handed over."""
        return self.status.has_synced

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """End the loop: wake it if it sleeps, cut its connection if it reads. Waits at most ``timeout`` seconds."""
        self._stopping.set()
        self._session.abort()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _main(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - handed on, whatever it is
            self._on_crash(error)
            log.error("watch crashed", resource=self._resource, error=repr(error))  # who is told shows the traceback
        finally:
            self._session.close()

    def run(self) -> None:
        """Follow the resource until told to stop. ApiErrors are dealt with here; anything else escapes."""
        while not self._stopping.is_set():
            try:
                if self._version is None:
                    self._list()
                delay = self._watch()
            except ApiError as error:
                if self._stopping.is_set():
                    break
                delay = self._failed(error)
            if delay > 0:
                self._sleep(delay)

    # -- listing

    def _list(self) -> None:
        objects, mended, bad, version = self._all_pages()
        if not version:
            raise StreamError(f"the list of {self._resource} carries no resourceVersion")
        selected = [obj for obj in objects if is_selected(obj, self._node_name)]
        for each in mended:
            if is_selected(each.obj, self._node_name):
                self._note_mended(each.lines())
        for one in bad:
            self._note_bad(one)
        self._hand_over(selected, bad)
        status = self.status
        if status.has_synced:
            status.relists += 1
        status.last_list_at = status.last_heard_at = self._clock()
        status.has_synced = True
        self._version = version
        self._silent_watches = 0
        self._is_heard = True
        log.info(
            "listed", resource=self._resource, objects=len(selected), mended=len(mended), bad=len(bad), version=version
        )

    def _all_pages(self) -> tuple[list[T], list[Mended[T]], list[BadObject], str]:
        # From the watch cache at first, all in one answer; from etcd later, in pages.
        in_pages = self.status.has_synced
        while True:
            base = {"limit": str(PAGE)} if in_pages else {} if self.status.has_synced else {"resourceVersion": "0"}
            try:
                return self._pages(base)
            except GoneError:
                # The continue token outlived its version: all in one answer, then, since that cannot expire halfway.
                if not in_pages:
                    raise
                in_pages = False

    def _pages(self, base: dict[str, str]) -> tuple[list[T], list[Mended[T]], list[BadObject], str]:
        objects: list[T] = []
        mended: list[Mended[T]] = []
        bad: list[BadObject] = []
        token = ""
        while True:
            more = {"continue": token} if token else {}
            try:
                body = self._session.list(self._resource, {**self._selected(), **base, **more})
            except ApiError as error:
                if token or not self._drop_field_selector(error):
                    raise
                continue
            try:
                page = self._decoder.decode_list(body)
            except UndecodableError as error:
                raise StreamError(str(error)) from error
            del body  # a large cluster's list is tens of megabytes: not two at a time
            objects += page.objects
            mended += page.mended
            bad += page.bad
            token = page.continue_token
            if not token:
                return objects, mended, bad, page.resource_version

    def _hand_over(self, objects: Sequence[T], bad: list[BadObject]) -> None:
        keys = {(obj.metadata.namespace, obj.metadata.name) for obj in objects}
        kept = self._known & {(one.namespace or "", one.name or "") for one in bad}
        if kept:
            for obj in objects:
                self._handler.upsert(obj)
            for namespace, name in self._known - keys - kept:
                self._handler.delete(namespace, name)
        else:
            self._handler.replace(objects)
        self._known = keys | kept

    def _selected(self) -> dict[str, str]:
        params = {}
        if self._selectors.label:
            params["labelSelector"] = self._selectors.label
        if self._selectors.field:
            params["fieldSelector"] = self._selectors.field
        return params

    def _drop_field_selector(self, error: ApiError) -> bool:
        """Tell whether to try again without the field selector: some servers know no selectable field of Services."""
        if error.code != 400 or not self._selectors.field:
            return False
        log.warning("field selector refused, filtering here", resource=self._resource, error=str(error))
        self._selectors = Selectors(self._selectors.label)
        return True

    # -- watching

    def _watch(self) -> float:
        """Watch until the server ends it in good order; return the seconds to wait before the next one."""
        started = self._clock()
        low, high = WATCH_SECONDS
        params = self._selected() | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(low + int(self._random() * (high - low))),
        }
        try:
            stream = self._session.watch(self._resource, params, read_timeout=READ_TIMEOUT)
        except ApiError as error:
            if self._drop_field_selector(error):
                return 0.0
            if error.code == 400:
                self._version = None
            raise
        if self._is_heard:
            self.status.last_heard_at = self._clock()
        events = self.status.events
        try:
            with closing(stream):
                self._follow(stream, started)
        except SilentError:
            # A server that sends no bookmarks, or a version that the server has not reached: it sends nothing then, not
            # even bookmarks (k8s.io/apiserver, cacheWatcher.process).
            self._silent_watches = self._silent_watches + 1 if self.status.events == events else 0
            if self._silent_watches > (0 if self._expects_events else 1):
                self._version = None
            raise
        finally:
            self.status.reconnects += 1
        lasted = self._clock() - started
        if lasted < WATCH_INTERVAL and self.status.events == events:
            raise ApiError("the server ended the watch at once")
        self._recovered(started)
        return max(0.0, WATCH_INTERVAL - lasted)

    def _follow(self, stream: Stream, started: float) -> None:
        driver = WatchDriver(self._decoder, self._version or "")
        status = self.status
        last = self._clock()
        for line in stream:
            event = driver.feed(line)
            if event is None:
                if self._clock() - last >= READ_TIMEOUT:
                    raise SilentError(f"watch {self._resource}: nothing but empty lines for {READ_TIMEOUT:g} s")
                continue
            last = self._clock()
            if isinstance(event, ApiError):
                raise event
            self._take(event)
            self._version = driver.version
            status.events += 1
            status.last_event_at = status.last_heard_at = self._clock()
            self._recovered(started)
            if self._stopping.is_set():
                break

    def _take(self, event: Upsert[T] | Delete | Bookmark | BadObject) -> None:
        if isinstance(event, Upsert):
            meta = event.obj.metadata
            if is_selected(event.obj, self._node_name):
                if event.faults:
                    self._note_mended(event.faults)
                self._known.add((meta.namespace, meta.name))
                self._handler.upsert(event.obj)
            else:
                self._forget(meta.namespace, meta.name)
        elif isinstance(event, Delete):
            self._forget(event.namespace, event.name)
        elif isinstance(event, BadObject):
            self._note_bad(event)
        else:
            self._expects_events = True

    def _forget(self, namespace: str, name: str) -> None:
        self._known.discard((namespace, name))
        self._handler.delete(namespace, name)

    def _note_mended(self, faults: Iterable[str]) -> None:
        self.status.bad_objects += 1
        for fault in faults:
            log.warning("object used in part", resource=self._resource, problem=fault)

    def _note_bad(self, bad: BadObject) -> None:
        self.status.bad_objects += 1
        log.warning("object ignored, its last known state stays", resource=self._resource, problem=str(bad))

    # -- failing

    def _recovered(self, started: float) -> None:
        status = self.status
        self._is_heard = True
        if self._clock() - started >= HEALTHY_AFTER:
            self._backoff.reset()
        over = self._outage.end(self._clock())
        if over is not None:
            log.info("watch recovered", resource=self._resource, failures=over.failures, lasted=round(over.lasted, 1))
            status.consecutive_failures = 0
            status.last_error = ""

    def _failed(self, error: ApiError) -> float:
        """Take note of a failure; return the seconds to wait."""
        if isinstance(error, GoneError | StreamError):
            self._version = None
        # After the read timeout a watch has waited enough; a fault that persists shows at the next connection.
        has_waited = isinstance(error, SilentError) and self._version is not None
        delay = self._random() if has_waited else self._backoff.next()
        if error.retry_after is not None:
            delay = max(delay, min(error.retry_after, MAX_RETRY_AFTER))
        status = self.status
        self._is_heard = isinstance(error, SilentError)
        if not isinstance(error, SilentError):
            self._expects_events = True
        is_told = self._outage.fail(str(error), self._clock())
        status.consecutive_failures = self._outage.failures
        status.last_error = str(error)
        lasted = self._outage.lasted(self._clock())
        level = log.warning if is_told else log.debug
        level(
            "watch failed" if lasted < REMINDERS[0] else "watch still failing",
            resource=self._resource,
            error=str(error),
            failures=status.consecutive_failures,
            since=datetime.fromtimestamp(self._wall() - lasted, UTC).isoformat(timespec="seconds"),
            retry_in=round(delay, 1),
            then="list" if self._version is None else "watch",
        )
        return delay
