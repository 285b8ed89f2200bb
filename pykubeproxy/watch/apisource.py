"""An API server as a source of objects: one reflector for each resource."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from pykubeproxy.watch.reflector import Reflector, Session
from pykubeproxy.watch.source import Handler, Handlers, Resource, WatchStatus


class ApiSource:
    """An API server as a source: the reflectors of Services, EndpointSlices and the own Node, each with its session."""

    def __init__(
        self,
        new_session: Callable[[], Session],
        handlers: Handlers,
        *,
        node_name: str,
        on_crash: Callable[[BaseException], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        by_resource: dict[Resource, Handler[Any]] = {
            "services": handlers.services,
            "endpointslices": handlers.endpointslices,
            "nodes": handlers.nodes,
        }
        self._reflectors: dict[Resource, Reflector[Any]] = {
            resource: Reflector(resource, new_session(), handler, node_name=node_name, on_crash=on_crash, clock=clock)
            for resource, handler in by_resource.items()
        }

    @property
    def has_synced(self) -> bool:
        """Whether Services and EndpointSlices have been listed. A missing Node is a known state."""
        return all(self._reflectors[resource].has_synced for resource in ("services", "endpointslices"))

    @property
    def statuses(self) -> Mapping[Resource, WatchStatus]:
        """The health of each resource."""
        return {resource: reflector.status for resource, reflector in self._reflectors.items()}

    def start(self) -> None:
        """Start the threads."""
        for reflector in self._reflectors.values():
            reflector.start()

    def stop(self, timeout: float = 2.0) -> None:
        """End the threads, all at once; wait for them at most ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        for reflector in self._reflectors.values():
            reflector.stop(0.0)
        for reflector in self._reflectors.values():
            reflector.stop(max(0.0, deadline - time.monotonic()))
