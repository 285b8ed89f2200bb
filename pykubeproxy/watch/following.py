"""Manifest files as a source of objects: read, handed over whole, then followed.

Files are looked at by their stat, twice a second. That notices edits, renames and the symlink swap of a ConfigMap
alike, and needs no inotify instance, which busy nodes run out of.

What people do to files must not cost a rule for a moment, so a change is believed slowly:

1. A file that is written in place, or is new in a folder, is read once it has stayed the same for ``SETTLED`` seconds;
   a file that was renamed over another (or a symlink swapped) at the second look. Neither is read while a program has
   it open for writing, as far as the kernel tells, though for ``OPEN_PATIENCE`` seconds at most.
2. An empty file is one that is being written: `command > file` empties it first. So is an emptied folder. What was read
   last stays; a file with nothing but a comment in it says that there is nothing.
3. A file that does not parse, or cannot be read, keeps its last good content, and so does an object that cannot be
   used. What lacks a name or a kind might be any object: then the file keeps all that it held.
4. At the start there is nothing to keep. What can be read is handed over at once, as *partial*: the receiver is told
   so, that it may leave alone what stands, until all can be read and has stayed the same for ``SETTLED`` seconds.
5. While anything of this lasts, nothing is taken away: no object is deleted until all files are read. It may have moved
   to the file in question.

Only regular files are read: a pipe would hold up the thread, a device might never end. It must not know what is in a
file.
"""

from __future__ import annotations

import errno
import stat
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog

from pykubeproxy import files
from pykubeproxy.settling import SETTLE_INTERVAL, SETTLED, Settling, is_being_written, stamp_of
from pykubeproxy.watch.decode import KINDS
from pykubeproxy.watch.manifests import SUFFIXES, Key, Manifest, ManifestError, Repeat, files_of, merge, parse
from pykubeproxy.watch.objects import KubeObject
from pykubeproxy.watch.selectors import is_selected
from pykubeproxy.watch.source import Handler, Handlers, Resource, WatchStatus

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubeObject)

POLL_INTERVAL = 0.5
"""Seconds between two looks at the files."""

LATE = 60.0
"""Seconds without a look after which something must be wrong: reading a file hangs, as on a server that is gone."""
MOST_NOTES = 20
"""More notes about objects than these are only counted."""


@dataclass(slots=True)
class _File:
    """What is known of one file while it is followed."""

    settling: Settling = field(default_factory=Settling)
    manifest: Manifest | None = None
    """The last good content."""
    fault: str = ""
    """Why the present content is not used, or not whole."""
    is_read: bool = False
    """Whether its content has once been read as a whole."""
    lost: dict[tuple[str, Key], str] = field(default_factory=dict)
    """Why objects cannot be used of which no earlier state is known, though they may have been served before."""
    notes: tuple[str, ...] = ()
    """What else is wrong with its objects for which an earlier state stands in, or none is needed."""
    gone_at: float | None = None
    """When it is believed that it has left its folder, if it is not back by then; None while it is there."""


class ManifestSource:
    """Files and folders as a source: read, handed over whole, then followed. One thread for all resources.

    ``sleep`` returns early once the source is told to stop; ``on_crash`` gets what escapes the loop. ``on_partial`` is
    told, before the first objects are handed over, that there may be more of them, and later that these are all.
    """

    def __init__(
        self,
        paths: Sequence[str],
        handlers: Handlers,
        *,
        node_name: str = "",
        on_crash: Callable[[BaseException], None] = lambda _: None,
        on_partial: Callable[[bool], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._paths = tuple(paths)
        self._node_name = node_name
        self._on_crash = on_crash
        self._on_partial = on_partial
        self._is_partial = False
        self._whole_at = 0.0
        """When it is believed that the files of the start are all, if they stay the same until then."""
        self._holds_back = False
        """Whether objects are known that stand in no file any more."""
        self._faults: tuple[str, ...] = ()
        self._unread: tuple[str, ...] = ()
        self._clock = clock
        self._stopping = threading.Event()
        self._sleep = sleep or self._stopping.wait
        self._files: dict[str, _File] = {}
        self._listed: set[str] = set()
        """Paths that have been there."""
        self._path_faults: dict[str, str] = {}
        self._problems: set[str] = set()
        self._repeats: list[Repeat] = []
        self._notes: tuple[str, ...] = ()
        self._deliveries: tuple[_Delivery[Any], ...] = (
            _Delivery("services", handlers.services, clock),
            _Delivery("endpointslices", handlers.endpointslices, clock),
            _Delivery("nodes", handlers.nodes, clock),
        )
        self._thread = threading.Thread(target=self._main, name="manifests", daemon=True)

    @property
    def has_synced(self) -> bool:
        """Whether what can be read of the files has been handed over once."""
        return all(delivery.status.has_synced for delivery in self._deliveries)

    @property
    def statuses(self) -> Mapping[Resource, WatchStatus]:
        """The health of each resource; ``consecutive_failures`` counts the paths that cannot be used at present."""
        return {delivery.status.resource: delivery.status for delivery in self._deliveries}

    @property
    def faults(self) -> tuple[str, ...]:
        """Why files and folders cannot be used at present, a line each."""
        return self._faults

    @property
    def unread(self) -> tuple[str, ...]:
        """Those of the faults, and of those of objects, that keep content away which has never been read."""
        age = self._deliveries[0].status.watch_age or 0.0
        return (
            (f"no look at the files for {age:.0f} s, reading one hangs", *self._unread) if age > LATE else self._unread
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What is wrong with the objects of files that can be read, and costs nothing of what was known before."""
        more = len(self._notes) - MOST_NOTES
        return (*self._notes[:MOST_NOTES], f"and {more} more, see the log") if more > 0 else self._notes

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """End the thread; wait for it at most ``timeout`` seconds."""
        self._stopping.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _main(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - handed on, whatever it is
            self._on_crash(error)
            log.error("manifests crashed", error=repr(error))  # who is told shows the traceback

    def run(self) -> None:
        """Look at the files until told to stop."""
        while not self._stopping.is_set():
            self.look()
            self._sleep(SETTLE_INTERVAL if self._is_settling() else POLL_INTERVAL)

    def look(self) -> None:
        """Look at the files once and hand over what has changed."""
        listings = [self._list(path) for path in self._paths]
        listing = [file for found, _ in listings for file in found]
        changed: set[str] = set()
        for found, is_held in listings:
            for file in found:
                known = self._files.get(file)
                if known is None:
                    known = self._files[file] = _File()
                known.gone_at = None
                if not is_held and self._refresh(file, known):
                    changed.add(file)
        changed.update(self._forget(set(listing)))
        self._sum_up()
        is_first = not self.has_synced
        if is_first or (changed and self._clock() < self._whole_at):
            self._whole_at = self._clock() + SETTLED
        is_whole = not self._faults and not self._is_settling()
        if is_first:
            if self._unread:
                why = "what stands is left alone until all can be read"
                log.warning("manifests partial", unreadable=self._unread, consequence=why)
            self._set_partial(is_partial=True)
        if changed or is_first or (self._holds_back and is_whole):
            self._hand_over(changed, is_whole=is_whole)
        self._sum_up()
        if self._is_partial and is_whole and not self._unread:
            self._set_partial(is_partial=False)

    def _sum_up(self) -> None:
        """Tell anew what is wrong."""
        known = self._files.values()
        self._faults = (*self._path_faults.values(), *(one.fault for one in known if one.fault))
        unread = [fault for path, fault in self._path_faults.items() if path not in self._listed]
        unread += [one.fault for one in known if one.fault and not one.is_read]
        self._unread = (*unread, *(problem for one in known for problem in one.lost.values()))
        self._notes = (*(note for one in known for note in one.notes), *(repeat.problem for repeat in self._repeats))
        for delivery in self._deliveries:
            delivery.looked(self._faults)

    def _set_partial(self, *, is_partial: bool) -> None:
        self._is_partial = is_partial
        self._on_partial(is_partial)

    def _is_settling(self) -> bool:
        is_start = self._clock() < self._whole_at
        return is_start or any(one.settling.seen is not None or one.gone_at is not None for one in self._files.values())

    def _list(self, path: str) -> tuple[Sequence[str], bool]:
        """Return the files of a path, and whether they are those of before since there are none now."""
        try:
            found = tuple(files_of(path))
        except OSError as error:
            fault = f"{path}: {error.strerror}"
        else:
            if found:
                self._listed.add(path)
            fault = "" if found else f"{path}: no manifests in this folder ({', '.join('*' + end for end in SUFFIXES)})"
        if not fault:
            self._path_faults.pop(path, None)
            return found, False
        if self._path_faults.get(path) != fault:
            so = "the last known objects stay" if path in self._listed else "what stands stays"
            log.warning("manifests not found", problem=fault, so=so)
            self._path_faults[path] = fault
        # A file that is on its way out of a folder that is now empty is no more gone than the others.
        return [file for file in self._files if file == path or Path(file).parent == Path(path)], True

    def _forget(self, listing: Collection[str]) -> list[str]:
        """Forget the files that have left their folder for good; return them."""
        gone = [file for file in self._files if file not in listing]
        for file in gone:
            known = self._files[file]
            known.gone_at = self._clock() + SETTLED if known.gone_at is None else known.gone_at
        believed = [file for file in gone if (self._files[file].gone_at or 0.0) <= self._clock()]
        for file in believed:
            log.info("manifest removed", file=file)
            del self._files[file]
        return believed

    def _refresh(self, file: str, known: _File) -> bool:
        """Read a file if it has changed; tell whether there is new content."""
        stamp, settling = None, known.settling
        try:
            stamp = stamp_of(file)
            if stamp == settling.read:
                settling.seen = None
                return False
            # What is there at the start is read at once.
            if self.has_synced and not settling.has_settled(stamp, self._clock()):
                return False
            if not stat.S_ISREG(stamp[-1]):
                # Not even opened: whoever waits to write into a pipe shall not take us for its reader.
                raise ManifestError(f"{file}: is no regular file, and is not read")  # noqa: TRY301
            if (not self.has_synced or self._clock() < settling.late_at) and is_being_written(file):
                return self._fault(file, known, f"{file}: is being written")
            data = files.read(file, regular_only=True)
            manifest = parse(data, file) if data.strip() else None
            if stamp_of(file) != stamp:
                return self._fault(file, known, f"{file}: changed while it was read")
        except OSError as error:
            # What is too long is not read again before it has changed.
            settling.take(stamp if error.errno == errno.EFBIG else None)
            return self._fault(file, known, f"{file}: {error.strerror}")
        except ManifestError as error:
            settling.take(stamp)
            return self._fault(file, known, str(error))
        settling.take(stamp)
        if manifest is None:
            return self._fault(file, known, f"{file}: is empty, as a file that is being written")
        self._take(file, known, manifest)
        return True

    def _fault(self, file: str, known: _File, fault: str) -> bool:
        if fault != known.fault:
            known.fault = fault
            stays = "its last good content stays" if known.manifest else "what stands stays, the other files are used"
            log.warning("manifest unusable", file=file, problem=fault, so=stays)
        return False

    def _take(self, file: str, known: _File, manifest: Manifest) -> None:
        for delivery in self._deliveries:
            delivery.status.bad_objects += sum(kind == delivery.kind for kind, _ in manifest.unusable)
        known.lost, known.notes = self._make_do(known, manifest)
        for kind, count in manifest.skipped.items():
            log.debug("kind skipped", file=file, kind=kind, objects=count)
        log.info(
            "manifest read",
            file=file,
            services=len(manifest.services),
            endpointslices=len(manifest.slices),
            nodes=len(manifest.nodes),
            skipped=sum(manifest.skipped.values()),
            problems=len(manifest.problems),
        )
        known.manifest, known.fault = manifest, manifest.incomplete
        known.is_read |= not manifest.incomplete
        if manifest.incomplete:
            log.warning("manifest not whole", file=file, so="what it held stays, and what can be read of it is used")

    def _make_do(self, known: _File, manifest: Manifest) -> tuple[dict[tuple[str, Key], str], tuple[str, ...]]:
        """Let earlier states stand in for objects that cannot be used; return what is lost, and what is to be noted."""
        old = known.manifest or Manifest()
        lost, notes = {}, []
        may_be_lost = self._is_partial or not self.has_synced
        for (kind, key), problem in manifest.unusable.items():
            if (kind, key) in manifest.unreadable and key in manifest.table(kind):
                continue  # it comes twice in the file, and the other one can be used
            if key in old.table(kind) and (kind, key) not in old.unserved:
                manifest.table(kind)[key] = old.table(kind)[key]
                manifest.unserved.pop((kind, key), None)
                notes.append(f"{problem}; its last good state stays")
            elif (kind, key) in known.lost or (
                may_be_lost and not known.is_read and (kind, key) in manifest.unreadable
            ):
                lost[kind, key] = problem
                notes.append("")
            else:
                notes.append(f"{problem}; it is not served")
            manifest.problems[manifest.problems.index(problem)] = notes[-1] or f"{problem}; what stands of it stays"
        if manifest.incomplete:
            for kind in (delivery.kind for delivery in self._deliveries):
                for key, obj in old.table(kind).items():
                    manifest.table(kind).setdefault(key, obj)
        return lost, tuple(note for note in notes if note)

    def _hand_over(self, changed: AbstractSet[str], *, is_whole: bool) -> None:
        # In the order of the paths, then of their names: of an object that comes twice the later one counts.
        order = {path: place for place, path in enumerate(self._paths)}
        names = sorted(self._files, key=lambda file: (order.get(file, order.get(str(Path(file).parent), 0)), file))
        manifests = {file: self._files[file].manifest for file in names}
        merged = merge({file: manifest for file, manifest in manifests.items() if manifest is not None})
        told_again = {repeat.problem for repeat in merged.repeats if not changed.isdisjoint(repeat.files)}
        for problem in merged.problems:
            if problem not in self._problems or problem in told_again:
                log.warning("manifest problem", problem=problem)
        self._problems, self._repeats = set(merged.problems), merged.repeats
        nodes = [node for node in merged.nodes if is_selected(node, self._node_name)]
        found: tuple[list[Any], ...] = (merged.services, merged.slices, nodes)
        held = 0
        for delivery, objects in zip(self._deliveries, found, strict=True):
            held += delivery.hand_over(objects, may_delete=is_whole)
        if held and not self._holds_back and self._faults:
            log.warning("objects kept", objects=held, why="not all manifests can be read", unreadable=self._faults)
        self._holds_back = held > 0


class _Delivery(Generic[T]):
    """What one receiver holds, so that it is told of differences only."""

    def __init__(self, resource: Resource, handler: Handler[T], clock: Callable[[], float]) -> None:
        self.status = WatchStatus(resource, clock)
        self.kind = KINDS[resource].__name__
        self._handler = handler
        self._clock = clock
        self._given: dict[Key, T] = {}

    def looked(self, faults: Sequence[str]) -> None:
        self.status.last_heard_at = self._clock()
        self.status.consecutive_failures = len(faults)
        self.status.last_error = faults[0] if faults else ""

    def hand_over(self, objects: Sequence[T], *, may_delete: bool) -> int:
        """Tell of the differences; return how many objects are kept although they are gone."""
        given, self._given = self._given, {(obj.metadata.namespace, obj.metadata.name): obj for obj in objects}
        status = self.status
        if not status.has_synced:
            self._handler.replace(objects)
            status.has_synced = True
            status.last_list_at = self._clock()
            return 0
        for key, obj in self._given.items():
            if given.pop(key, None) != obj:
                self._handler.upsert(obj)
                status.events += 1
                status.last_event_at = self._clock()
        if not may_delete:
            self._given |= given
            return len(given)
        for namespace, name in given:
            self._handler.delete(namespace, name)
            status.events += 1
            status.last_event_at = self._clock()
        return 0
