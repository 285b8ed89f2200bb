"""One watch as a value that is asked what to send next: it knows the store and the time, and no socket.

Source of behaviour: recordings of kube-apiserver 1.36.2, and storage/cacher of k8s.io/apiserver.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from e2e.apiserver import status, tables
from e2e.apiserver.resources import Resource
from e2e.apiserver.selectors import EVERYTHING, Selector
from e2e.apiserver.store import Change, Entry, Store, shown

BOOKMARK_PERIOD = 60.0
BOOKMARK_BEFORE_END = 2.0
BACKGROUND_WRITE_PERIOD = 10.0


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What a client asked for. ``since`` None: begin with the present objects as ADDED."""

    resource: Resource
    namespace: str = ""
    selector: Selector = EVERYTHING
    since: int | None = None
    wants_bookmarks: bool = False
    wants_end_of_initial: bool = False
    timeout: float = 1800.0
    is_table: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the stream. ``kind`` is its event type; ``encoded`` ends with a newline."""

    kind: str
    encoded: bytes


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now: send ``lines``, then end, or ask again at ``wake_at`` or when the store changed."""

    lines: list[Line]
    wake_at: float
    has_ended: bool = False


class Watch:
    """The state of one watch: its place in history and the times of its bookmarks."""

    def __init__(self, store: Store, options: WatchOptions, now: float, *, sends_bookmarks: bool = True) -> None:
        self.options = options
        self.sends_bookmarks = sends_bookmarks
        self._store = store
        self._started = now
        self._ends_at = now + options.timeout
        self._next_bookmark = self._bookmark_after(now)
        self._place: int | None = None
        self._is_at = options.since or 0
        self._began_at = 0
        self._has_columns = False

    def step(self, now: float) -> Step:
        """Return what is due at ``now``."""
        lines: list[Line] = []
        begins = self._place is None
        try:
            lines += self._begin() if begins else []
            lines += self._changes()
        except status.ApiFailureError as failure:
            return Step([error_line(failure)], now, has_ended=True)
        except LookupError:  # too slow: the server forgets such a watcher
            return Step(lines, now, has_ended=True)
        if self.options.wants_bookmarks and now >= self._next_bookmark:
            self._next_bookmark = self._bookmark_after(now)
            self._let_versions_pass(now)
            if self.sends_bookmarks and self._is_at > self._began_at:
                lines.append(self.bookmark())
        if now >= self._ends_at:
            return Step(lines, now, has_ended=True)
        return Step(lines, min(self._ends_at, self._next_bookmark) if self.options.wants_bookmarks else self._ends_at)

    def bookmark(self, *, ends_initial: bool = False, version: str | None = None) -> Line:
        """Return a BOOKMARK for the version that this watch has reached, or the given one."""
        meta: dict[str, object] = {}
        reached = str(self._is_at) if version is None else version
        if reached:
            meta["resourceVersion"] = reached
        if ends_initial:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        resource = self.options.resource
        empty = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta, **resource.empty}
        return line("BOOKMARK", self._row(empty, meta) if self.options.is_table else msgspec.json.encode(empty))

    def _bookmark_after(self, now: float) -> float:
        before_end = self._ends_at - BOOKMARK_BEFORE_END
        return min(now + BOOKMARK_PERIOD, before_end) if now < before_end else now + BOOKMARK_PERIOD

    def _let_versions_pass(self, now: float) -> None:
        """Let a version pass where none did: in a real cluster leases are written every few seconds.

        A server sends no bookmark for a version that its watch began with.
        """
        if self._is_at <= self._began_at and now - self._started >= BACKGROUND_WRITE_PERIOD:
            self._is_at = max(self._is_at, self._store.bump())

    def _begin(self) -> list[Line]:
        options = self.options
        lines: list[Line] = []
        with self._store.atomically():
            if options.since is None:
                version, entries = self._store.entries(options.resource)
                self._is_at = version
                lines = [self._line("ADDED", entry) for entry in entries if self._is_meant(entry)]
                if options.wants_end_of_initial and options.wants_bookmarks:
                    lines.append(self.bookmark(ends_initial=True))
            else:
                version = options.since
                floor = self._store.watch_floor(options.resource)
                if version < floor:
                    raise status.expired(f"too old resource version: {version} ({floor})")
            self._place = self._store.position(options.resource, version)
            last = self._store.last_version(options.resource)
            self._began_at = version if options.since is None else max(version, last)
        return lines

    def _changes(self) -> list[Line]:
        lines = []
        with self._store.atomically():
            reached = self._store.version
            self._place, changes = self._store.read(self.options.resource, self._place or 0)
        for change in changes:
            if change.version > (self.options.since or 0):
                event = self._event(change)
                if event is not None:
                    lines.append(event)
        self._is_at = max(self._is_at, reached)
        return lines

    def _event(self, change: Change) -> Line | None:
        before = change.before if change.before is not None and self._is_meant(change.before) else None
        after = change.after if change.after is not None and self._is_meant(change.after) else None
        if after is not None:
            return self._line("ADDED" if before is None else "MODIFIED", after)
        if before is not None:
            return self._line("DELETED", before.at(change.version))
        return None

    def _line(self, kind: str, entry: Entry) -> Line:
        if self.options.is_table:
            return line(kind, self._row(entry.value(), {"resourceVersion": str(entry.version)}))
        return line(kind, shown(self.options.resource, entry))

    def _row(self, obj: dict[str, object], meta: dict[str, object]) -> bytes:
        """Return a Table of one row; only the first of a stream names the columns."""
        wall, has_columns = self._store.clock.wall(), not self._has_columns
        self._has_columns = True
        shown_meta = {"resourceVersion": meta.get("resourceVersion", "")}
        return msgspec.json.encode(
            tables.table(self.options.resource.name, [obj], shown_meta, wall, has_columns=has_columns)
        )

    def _is_meant(self, entry: Entry) -> bool:
        options = self.options
        return (not options.namespace or entry.namespace == options.namespace) and (
            not options.selector or options.selector.matches(entry.labels, entry.fields)
        )


def line(kind: str, obj: bytes) -> Line:
    """Return the line of an event about ``obj``, which is encoded already."""
    return Line(kind, b'{"type":"' + kind.encode() + b'","object":' + obj + b"}\n")


def error_line(failure: status.ApiFailureError) -> Line:
    """Return the ERROR line that tells of a failure inside a stream that answered 200."""
    return line("ERROR", failure.encoded())
