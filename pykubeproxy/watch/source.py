"""What a source of objects (API server or manifests) hands to the rest of the house."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from pykubeproxy.watch.objects import EndpointSlice, KubeObject, Node, Service

T_contra = TypeVar("T_contra", bound=KubeObject, contravariant=True)

Resource = Literal["services", "endpointslices", "nodes"]
RESOURCES: tuple[Resource, ...] = ("services", "endpointslices", "nodes")


class Handler(Protocol[T_contra]):
    """Receives one resource's objects. Called from the source's thread of that resource, one call at a time.

    The source keeps no store: the receiver keys by (namespace, name) and is level-triggered, so a repeated,
    out-of-order or unknown object is no error.
    """

    def replace(self, objects: Sequence[T_contra]) -> None:
        """Take a whole list: objects that were known and are not in it are gone. The first call means "has synced"."""

    def upsert(self, obj: T_contra) -> None:
        """Take one added or modified object."""

    def delete(self, namespace: str, name: str) -> None:
        """Forget one object; unknown ones are ignored."""


@dataclass(frozen=True, slots=True)
class Handlers:
    """One receiver for each resource; ``nodes`` gets the own Node only, where its name is known."""

    services: Handler[Service]
    endpointslices: Handler[EndpointSlice]
    nodes: Handler[Node]


class WatchStatus:
    """How one resource is doing. Written by its source's thread only, read by anyone; times are those of ``clock``."""

    def __init__(self, resource: Resource, clock: Callable[[], float]) -> None:
        self.resource = resource
        self._clock = clock
        self.has_synced = False
        self.last_list_at: float | None = None
        self.last_event_at: float | None = None
        """When the last event came, bookmarks included."""
        self.last_heard_at: float | None = None
        """When the server last gave a sign of life for this resource: an answered list, an accepted watch, an event."""
        self.consecutive_failures = 0
        self.last_error = ""
        """What the present failures are about; empty while there are none."""
        self.reconnects = 0
        self.relists = 0
        """Lists after the first."""
        self.bad_objects = 0
        self.events = 0

    @property
    def watch_age(self) -> float | None:
        """Seconds since the server was last heard, None before the first time; bookmarks keep it to about a minute."""
        return None if self.last_heard_at is None else max(0.0, self._clock() - self.last_heard_at)


class Source(Protocol):
    """What the daemon starts and stops: an API server's three watches, or manifest files."""

    @property
    def has_synced(self) -> bool:
        """Whether Services and EndpointSlices have both been handed over once. A missing Node is a known state."""

    @property
    def statuses(self) -> Mapping[Resource, WatchStatus]:
        """The health of each resource."""

    def start(self) -> None:
        """Start the threads."""

    def stop(self, timeout: float = 2.0) -> None:
        """End the threads; wait for them at most ``timeout`` seconds."""
