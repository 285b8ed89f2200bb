"""What an API server remembers: objects, one version counter, and the history of changes.

Model. One counter numbers all changes of all resources, as etcd's revision does. An object is kept as the JSON that
goes out (without kind and apiVersion, which a list leaves out) next to the few values that selectors ask for. The
history of a resource is a list of changes, each with the object before and after; from it come watches, and lists of an
old version, by undoing changes backwards.

Two ways to forget, as in the real server: *compaction* makes old versions unreadable for lists (etcd), a *restarted
watch cache* makes them unwatchable. The first does not imply the second.

Goals: a list of many thousands is a join of bytes; nothing here waits, opens a socket or reads a clock other than the
one given. Any thread may call; each call is atomic; listeners run in the caller's thread, after the change.
"""

from __future__ import annotations

import threading
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from e2e.apiserver import resources
from e2e.apiserver.clock import Clock, RealClock
from e2e.apiserver.resources import Resource

Json = dict[str, Any]
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Entry:
    """One object at one version; ``body`` is its JSON without kind and apiVersion."""

    namespace: str
    name: str
    version: int
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> Key:
        """Return (namespace, name)."""
        return self.namespace, self.name

    def value(self) -> Json:
        """Return the object as a fresh JSON value, without kind and apiVersion."""
        value: Json = msgspec.json.decode(self.body)
        return value

    def at(self, version: int) -> Entry:
        """Return the same object under another version, as a deletion shows it."""
        value = self.value()
        value["metadata"]["resourceVersion"] = str(version)
        return replace(self, version=version, body=msgspec.json.encode(value))


@dataclass(frozen=True, slots=True)
class Change:
    """One step of history: ``before`` is None for a creation, ``after`` for a deletion."""

    version: int
    before: Entry | None
    after: Entry | None


class _Shelf:
    """One resource's objects and history."""

    def __init__(self) -> None:
        self.objects: dict[Key, Entry] = {}
        self.changes: list[Change] = []
        self.dropped = 0  # how many changes were cut from the front of the list, ever
        self.watch_floor = 0
        self.history_floor = 0
        self.last_version = 0
        self.ordered: list[Entry] | None = None


class Store:
    """The objects of one cluster. See the module's docstring."""

    def __init__(
        self, clock: Clock | None = None, *, capacity: int = 50_000, new_uid: Callable[[], str] | None = None
    ) -> None:
        self.clock = clock or RealClock()
        self._capacity = capacity
        self._new_uid = new_uid or (lambda: str(uuid.uuid4()))
        self._lock = threading.RLock()
        self._shelves: dict[str, _Shelf] = {each.name: _Shelf() for each in resources.RESOURCES}
        self._version = 1  # as etcd begins: 0 has a meaning of its own in requests
        self._compacted = 0
        self._listeners: list[Callable[[str], None]] = []

    # What stands

    @property
    def version(self) -> int:
        """Return the version of the last change of anything."""
        return self._version

    @property
    def compacted(self) -> int:
        """Return the oldest version that a list may still ask for."""
        return self._compacted

    def last_version(self, resource: Resource) -> int:
        """Return the version of the last change of this resource."""
        return self._shelves[resource.name].last_version

    def get(self, resource: Resource, namespace: str, name: str) -> Entry | None:
        """Return one object."""
        return self._shelves[resource.name].objects.get((namespace, name))

    def entries(self, resource: Resource, version: int | None = None) -> tuple[int, list[Entry]]:
        """Return (version, all objects in the order of their keys), now or at an old version.

        Raises LookupError where that version is compacted away.
        """
        with self._lock:
            shelf = self._shelves[resource.name]
            if version is None or version >= self._version:
                if shelf.ordered is None:
                    shelf.ordered = sorted(shelf.objects.values(), key=_storage_key)
                return self._version, shelf.ordered
            if version < max(self._compacted, shelf.history_floor):
                raise LookupError(version)
            objects = dict(shelf.objects)
            for change in reversed(shelf.changes):
                if change.version <= version:
                    break
                undone = change.before or change.after
                if change.before is not None:
                    objects[change.before.key] = change.before
                elif undone is not None:
                    del objects[undone.key]
            return version, sorted(objects.values(), key=_storage_key)

    def watch_floor(self, resource: Resource) -> int:
        """Return the oldest version that a watch may start from."""
        return self._shelves[resource.name].watch_floor

    def position(self, resource: Resource, version: int) -> int:
        """Return the place in history right after ``version``, for ``read``."""
        with self._lock:
            shelf = self._shelves[resource.name]
            return shelf.dropped + bisect_right(shelf.changes, version, key=lambda change: change.version)

    def read(self, resource: Resource, position: int) -> tuple[int, list[Change]]:
        """Return (the next position, changes since ``position``). Raises LookupError if that place was cut off."""
        with self._lock:
            shelf = self._shelves[resource.name]
            if position < shelf.dropped:
                raise LookupError(position)
            return shelf.dropped + len(shelf.changes), shelf.changes[position - shelf.dropped :]

    # Changes

    def put(self, obj: Json, *, resource: Resource | None = None, version: int | None = None) -> Entry:
        """Create or replace one object, filling in what the server fills in: uid, times, version, generation.

        ``version`` sets the counter for a history that is given; it must be higher than the last one.
        """
        resource = resource or resources.of_object(obj)
        with self._lock:
            entry = self._put(resource, obj, version)
        self._tell(resource.name)
        return entry

    def put_all(self, objs: Iterable[Json]) -> list[Entry]:
        """Create or replace many objects; who watches is told once, at the end."""
        entries = []
        touched = set()
        with self._lock:
            for obj in objs:
                resource = resources.of_object(obj)
                entries.append(self._put(resource, obj, None))
                touched.add(resource.name)
        for name in touched:
            self._tell(name)
        return entries

    def delete(self, resource: Resource, namespace: str, name: str, *, version: int | None = None) -> Entry | None:
        """Delete one object; return it under the version of its deletion, None if there was none."""
        with self._lock:
            shelf = self._shelves[resource.name]
            before = shelf.objects.pop((namespace, name), None)
            if before is None:
                return None
            self._step(version)
            self._note(shelf, Change(self._version, before, None))
            gone = before.at(self._version)
        self._tell(resource.name)
        return gone

    def bump(self, steps: int = 1, *, to: int | None = None) -> int:
        """Let versions pass as if other resources had changed; return the new version."""
        with self._lock:
            self._version = max(self._version, to) if to is not None else self._version + steps
            return self._version

    def atomically(self) -> threading.RLock:
        """Return the lock for a read and a write that belong together."""
        return self._lock

    # Forgetting

    def compact(self, version: int | None = None) -> None:
        """Make versions before ``version`` (default: the present one) unreadable for lists."""
        with self._lock:
            self._compacted = max(self._compacted, self._version if version is None else version)

    def restart_watch_cache(self) -> None:
        """Make the past unwatchable: watches start from the present version or later."""
        with self._lock:
            for shelf in self._shelves.values():
                shelf.watch_floor = self._version

    def renumber(self, version: int) -> None:
        """Go on from ``version``, though it is lower: every object gets a new version at most that, history is gone."""
        with self._lock:
            everything = sorted(
                (
                    (entry.version, name, entry)
                    for name, shelf in self._shelves.items()
                    for entry in shelf.objects.values()
                ),
                key=lambda item: item[0],
            )
            first = max(0, version - len(everything))
            for shelf in self._shelves.values():
                shelf.dropped += len(shelf.changes)
                shelf.changes.clear()
                shelf.ordered = None
                shelf.watch_floor = shelf.history_floor = shelf.last_version = version
            for number, (_, name, entry) in enumerate(everything, start=first + 1):
                self._shelves[name].objects[entry.key] = entry.at(min(number, version) or 1)
            self._version = version
            self._compacted = version

    # Listeners

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call ``listener(resource name)`` after each change."""
        self._listeners.append(listener)

    def _tell(self, name: str) -> None:
        for listener in self._listeners:
            listener(name)

    def _step(self, version: int | None) -> None:
        if version is None:
            self._version += 1
        elif version <= self._version:
            raise ValueError(f"version {version} is not higher than {self._version}")
        else:
            self._version = version

    def _put(self, resource: Resource, obj: Json, version: int | None) -> Entry:
        shelf = self._shelves[resource.name]
        value = {key: part for key, part in resource.stored(obj).items() if key not in {"kind", "apiVersion"}}
        given = value.get("metadata") or {}
        namespace = (given.get("namespace") or "default") if resource.namespaced else ""
        before = shelf.objects.get((namespace, given["name"]))
        self._step(version)
        old = before.value() if before is not None else {"metadata": {}}
        meta: Json = {"name": given["name"]}
        if namespace:
            meta["namespace"] = namespace
        meta["uid"] = old["metadata"].get("uid") or given.get("uid") or self._new_uid()
        meta["resourceVersion"] = str(self._version)
        normal = resources.normalised(resource, value)
        if resource.has_generation:
            same = (old["metadata"].get("labels") or {}) == (given.get("labels") or {}) and all(
                old.get(key) == normal.get(key) for key in {*old, *normal} - {"metadata"}
            )
            meta["generation"] = old["metadata"].get("generation", 0 if before is None else 1) + (
                1 if before is None or not same else 0
            )
        meta["creationTimestamp"] = (
            old["metadata"].get("creationTimestamp")
            or given.get("creationTimestamp")
            or self.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ")
        )
        meta.update({key: part for key, part in given.items() if key not in meta and part not in (None, {}, [])})
        meta.pop("selfLink", None)
        body = {"metadata": meta, **{key: part for key, part in normal.items() if key != "metadata"}}
        entry = Entry(
            namespace,
            meta["name"],
            self._version,
            dict(labels) if isinstance(labels := meta.get("labels"), dict) else {},
            resources.stored_fields(resource, body),
            msgspec.json.encode(body),
        )
        shelf.objects[entry.key] = entry
        self._note(shelf, Change(self._version, before, entry))
        return entry

    def _note(self, shelf: _Shelf, change: Change) -> None:
        shelf.changes.append(change)
        shelf.last_version = change.version
        shelf.ordered = None
        if len(shelf.changes) > self._capacity:
            cut = len(shelf.changes) - self._capacity * 3 // 4
            floor = shelf.changes[cut - 1].version
            shelf.watch_floor = max(shelf.watch_floor, floor)
            shelf.history_floor = max(shelf.history_floor, floor)
            del shelf.changes[:cut]
            shelf.dropped += cut


def _storage_key(entry: Entry) -> str:
    return f"{entry.namespace}/{entry.name}" if entry.namespace else entry.name


def shown(resource: Resource, entry: Entry) -> bytes:
    """Return the object's JSON with kind and apiVersion in front."""
    head = f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'.encode()
    return head + listed(resource, entry)[1:]


def listed(resource: Resource, entry: Entry) -> bytes:
    """Return the object's JSON as it stands in a list."""
    if not resource.is_converted:
        return entry.body
    return msgspec.json.encode(resource.shown(entry.value()))
