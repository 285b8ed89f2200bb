"""Manifest files as a source of objects: read, handed over whole, then followed.

Files are looked at by their stat, twice a second. That notices edits, renames and the symlink swap of a ConfigMap
alike, and needs no inotify instance, which busy nodes run out of. A file that is written in place, or is new in a
folder, is taken once two looks in a row found it the same, so that a half-written one is not seen. A file that does not
parse keeps its last good content. Before each file has been read once, nothing is handed over. It must not know what is
in a file.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog

from pykubeproxy.watch.decode import KINDS
from pykubeproxy.watch.manifests import SUFFIXES, Key, Manifest, ManifestError, files_of, merge, parse
from pykubeproxy.watch.objects import KubeObject
from pykubeproxy.watch.selectors import is_selected
from pykubeproxy.watch.source import Handler, Handlers, Resource, WatchStatus

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubeObject)

POLL_INTERVAL = 0.5
"""Seconds between two looks at the files."""
SETTLE_INTERVAL = 0.2
"""The same while a change waits to be confirmed by a second look."""


@dataclass(slots=True)
class _File:
    """What is known of one file while it is followed."""

    stamp: tuple[int, ...] | None = None
    """Of the content that was read last, good or not."""
    seen: tuple[int, ...] | None = None
    """At the last look, while it differs from ``stamp``."""
    manifest: Manifest | None = None
    """The last good content."""
    fault: str = ""
    """Why the present content is not used."""
    missing: int = 0
    """Looks in a row that did not find it in its folder."""


class ManifestSource:
    """Files and folders as a source: read, handed over whole, then followed. One thread for all resources.

    ``sleep`` returns early once the source is told to stop; ``on_crash`` gets what escapes the loop.
    """

    def __init__(
        self,
        paths: Sequence[str],
        handlers: Handlers,
        *,
        node_name: str = "",
        on_crash: Callable[[BaseException], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._paths = tuple(paths)
        self._node_name = node_name
        self._on_crash = on_crash
        self._clock = clock
        self._stopping = threading.Event()
        self._sleep = sleep or self._stopping.wait
        self._files: dict[str, _File] = {}
        self._listings: dict[str, tuple[str, ...]] = {}
        self._path_faults: dict[str, str] = {}
        self._problems: set[str] = set()
        self._deliveries: tuple[_Delivery[Any], ...] = (
            _Delivery("services", handlers.services, clock),
            _Delivery("endpointslices", handlers.endpointslices, clock),
            _Delivery("nodes", handlers.nodes, clock),
        )
        self._thread = threading.Thread(target=self._main, name="manifests", daemon=True)

    @property
    def has_synced(self) -> bool:
        """Whether all files have been read once and handed over."""
        return all(delivery.status.has_synced for delivery in self._deliveries)

    @property
    def statuses(self) -> Mapping[Resource, WatchStatus]:
        """The health of each resource; ``consecutive_failures`` counts the paths that cannot be used at present."""
        return {delivery.status.resource: delivery.status for delivery in self._deliveries}

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
        except BaseException as error:
            self._on_crash(error)
            log.exception("manifests crashed")

    def run(self) -> None:
        """Look at the files until told to stop."""
        while not self._stopping.is_set():
            self.look()
            self._sleep(SETTLE_INTERVAL if self._is_settling() else POLL_INTERVAL)

    def look(self) -> None:
        """Look at the files once and hand over what has changed."""
        listing = [file for path in self._paths for file in self._list(path)]
        changed = False
        for file in listing:
            known = self._files.get(file)
            if known is None:
                known = self._files[file] = _File()
                changed = True
            known.missing = 0
            changed |= self._refresh(file, known)
        for file in [file for file in self._files if file not in set(listing)]:
            # An editor that saves by renaming leaves a gap: only the second look believes it.
            self._files[file].missing += 1
            if self._files[file].missing > 1:
                log.info("manifest removed", file=file)
                del self._files[file]
                changed = True
        faults = [*self._path_faults.values(), *(known.fault for known in self._files.values() if known.fault)]
        for delivery in self._deliveries:
            delivery.looked(faults)
        is_whole = not self._path_faults and all(known.manifest is not None for known in self._files.values())
        if (changed and self.has_synced) or (is_whole and not self.has_synced):
            self._hand_over(listing)

    def _is_settling(self) -> bool:
        return any(known.seen is not None or known.missing for known in self._files.values())

    def _list(self, path: str) -> tuple[str, ...]:
        try:
            found = tuple(files_of(path))
        except OSError as error:
            fault = f"{path}: {error.strerror}"
            if self._path_faults.get(path) != fault:
                log.warning("manifests not found, the last known objects stay", problem=fault)
                self._path_faults[path] = fault
            return self._listings.get(path, ())
        self._path_faults.pop(path, None)
        if not found and self._listings.get(path) != found:
            log.warning("no manifests in this folder", path=path, suffixes=SUFFIXES)
        self._listings[path] = found
        return found

    def _refresh(self, file: str, known: _File) -> bool:
        """Read a file if it has changed; tell whether there is new content."""
        try:
            stamp = _stamp(file)
            if stamp == known.stamp:
                known.seen = None
                return False
            is_replaced = known.stamp is not None and stamp[:2] != known.stamp[:2]
            is_settled = is_replaced or stamp == known.seen or not self.has_synced
            manifest = parse(Path(file).read_bytes(), file) if is_settled else None
            if manifest is None or _stamp(file) != stamp:
                known.seen = stamp
                return False
        except OSError as error:
            return self._fault(file, known, f"{file}: {error.strerror}")
        except ManifestError as error:
            known.stamp, known.seen = stamp, None
            return self._fault(file, known, str(error))
        known.stamp, known.seen = stamp, None
        self._take(file, known, manifest)
        return True

    def _fault(self, file: str, known: _File, fault: str) -> bool:
        if fault != known.fault:
            known.fault = fault
            stays = "its last good content stays" if known.manifest else "nothing of it is used"
            log.warning("manifest unusable", file=file, problem=fault, so=stays)
        return False

    def _take(self, file: str, known: _File, manifest: Manifest) -> None:
        for kind, key in manifest.unreadable:
            old = known.manifest.table(kind).get(key) if known.manifest else None
            if old is not None:
                manifest.table(kind).setdefault(key, old)
        for delivery in self._deliveries:
            delivery.status.bad_objects += sum(kind == delivery.kind for kind, _ in manifest.unreadable)
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
        known.manifest = manifest
        known.fault = ""

    def _hand_over(self, listing: Iterable[str]) -> None:
        files = {file: self._files[file] for file in listing if file in self._files}
        merged = merge({file: known.manifest for file, known in files.items() if known.manifest is not None})
        for problem in merged.problems:
            if problem not in self._problems:
                log.warning("manifest problem", problem=problem)
        self._problems = set(merged.problems)
        nodes = [node for node in merged.nodes if is_selected(node, self._node_name)]
        found: tuple[list[Any], ...] = (merged.services, merged.slices, nodes)
        for delivery, objects in zip(self._deliveries, found, strict=True):
            delivery.hand_over(objects)


class _Delivery(Generic[T]):
    """What one receiver holds, so that it is told of differences only."""

    def __init__(self, resource: Resource, handler: Handler[T], clock: Callable[[], float]) -> None:
        self.status = WatchStatus(resource, clock)
        self.kind = KINDS[resource].__name__
        self._handler = handler
        self._clock = clock
        self._given: dict[Key, T] = {}

    def looked(self, faults: list[str]) -> None:
        self.status.last_heard_at = self._clock()
        self.status.consecutive_failures = len(faults)
        self.status.last_error = faults[0] if faults else ""

    def hand_over(self, objects: Sequence[T]) -> None:
        given, self._given = self._given, {(obj.metadata.namespace, obj.metadata.name): obj for obj in objects}
        status = self.status
        if not status.has_synced:
            self._handler.replace(objects)
            status.has_synced = True
            status.last_list_at = self._clock()
            return
        for key, obj in self._given.items():
            if given.pop(key, None) != obj:
                self._handler.upsert(obj)
                status.events += 1
                status.last_event_at = self._clock()
        for namespace, name in given:
            self._handler.delete(namespace, name)
            status.events += 1
            status.last_event_at = self._clock()


def _stamp(file: str) -> tuple[int, ...]:
    found = os.stat(file)  # noqa: PTH116 - follows the symlinks of a ConfigMap volume
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
