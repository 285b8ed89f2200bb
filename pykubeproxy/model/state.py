"""What the cluster says, for one IP family: objects in, dirty services out.

Model: two tables, services by key and slices by name, plus the index from a service to its slices. Events replace
entries; a service whose meaning changed is marked dirty. Nothing else happens here: no rule text, no kernel.

Goals, and how each is met:
1. Level-triggered: ``dirty`` names services, never changes. It is drained by the engine in the same critical section
   in which the engine reads the services' present meaning, so no event can fall between.
2. An update that changes nothing a proxy reads (annotations, resourceVersion) marks nothing: values are compared.
3. A slice is keyed by its own name and remembers its service, so that a relabelled slice moves from one service to
   another.
4. Small: objects are kept as the stripped values of model.service and model.endpoint.

Threads: source threads call the setters, the family's engine calls the readers; one lock guards all. ``on_change`` is
called outside the lock, with a word for what changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import datetime

from pykubeproxy.model.addresses import Family
from pykubeproxy.model.endpoint import TRIGGER_ANNOTATION, Endpoint, SliceData, merge, repeated, slice_data
from pykubeproxy.model.service import Problem, ServiceKey, ServicePort, ServicePortName, service_ports
from pykubeproxy.watch.objects import EndpointSlice, Service, place

SliceKey = tuple[str, str]


class ClusterState:
    """Services and EndpointSlices of one IP family. See the module's docstring for the design."""

    def __init__(
        self,
        family: Family,
        *,
        on_change: Callable[[str], None] = lambda _: None,
        on_problem: Callable[[Problem], None] = lambda _: None,
        started_at: float = 0.0,
    ) -> None:
        """Make an empty state.

        ``started_at`` is wall-clock seconds: trigger times before it are not kept, since the objects were there
        already.
        """
        self.family = family
        self.lock = threading.RLock()
        self._on_change = on_change
        self._on_problem = on_problem
        self._started_at = started_at
        self._services: dict[ServiceKey, tuple[ServicePort, ...]] = {}
        self._udp: dict[ServiceKey, None] = {}
        self._slices: dict[SliceKey, SliceData] = {}
        self._slices_of: dict[ServiceKey, dict[str, None]] = {}
        self._dirty: dict[ServiceKey, None] = {}
        self._triggers: dict[ServiceKey, list[float]] = {}
        self._uids: dict[ServiceKey, str] = {}
        self._problems: dict[tuple[str, str, str], tuple[Problem, ...]] = {}
        self._service_changes = 0
        self._endpoint_changes = 0
        self.services_synced = False
        self.slices_synced = False
        self.is_partial = False
        """Whether there may be more objects than the lists held: what stands of unknown services is not in the way."""

    @property
    def has_synced(self) -> bool:
        """Whether both resources have been listed once; before that nothing may be written."""
        return self.services_synced and self.slices_synced

    def pending(self) -> tuple[int, int]:
        """Return how many service and endpoint changes wait for a sync."""
        with self.lock:
            return self._service_changes, self._endpoint_changes

    # -- setters, called by sources

    def set_service(self, service: Service) -> bool:
        """Take one Service; tell whether it changed anything."""
        with self.lock:
            changed = self._put_service(service)
        return self._notify("service", changed=changed)

    def delete_service(self, namespace: str, name: str) -> bool:
        """Forget one Service; unknown ones are ignored."""
        with self.lock:
            changed = self._drop_service(ServiceKey(namespace, name))
        return self._notify("service", changed=changed)

    def replace_services(self, services: Iterable[Service]) -> bool:
        """Take a whole list: what is not in it is gone. Always notifies, since it means "has synced"."""
        with self.lock:
            gone = set(self._services)
            for service in services:
                gone.discard(ServiceKey(service.metadata.namespace, service.metadata.name))
                self._put_service(service)
            for key in sorted(gone):
                self._drop_service(key)
            self.services_synced = True
        return self._notify("services listed", changed=True)

    def set_slice(self, obj: EndpointSlice) -> bool:
        """Take one EndpointSlice; tell whether it changed anything."""
        with self.lock:
            changed = self._put_slice(obj)
        return self._notify("endpoints", changed=changed)

    def delete_slice(self, namespace: str, name: str) -> bool:
        """Forget one EndpointSlice; unknown ones are ignored."""
        with self.lock:
            changed = self._drop_slice((namespace, name))
        return self._notify("endpoints", changed=changed)

    def replace_slices(self, slices: Iterable[EndpointSlice]) -> bool:
        """Take a whole list: what is not in it is gone. Always notifies, since it means "has synced"."""
        with self.lock:
            gone = set(self._slices)
            for obj in slices:
                gone.discard((obj.metadata.namespace, obj.metadata.name))
                self._put_slice(obj)
            for key in sorted(gone):
                self._drop_slice(key)
            self.slices_synced = True
        return self._notify("endpoints listed", changed=True)

    def set_partial(self, *, is_partial: bool) -> None:
        """Say whether the lists hold everything that could be read only; to be said before them."""
        with self.lock:
            changed, self.is_partial = self.is_partial != is_partial, is_partial
        self._notify("all read", changed=changed and not is_partial)

    # -- readers, called by the engine under ``lock``

    def is_unknown(self, key: ServiceKey) -> bool:
        """Tell whether a service, or all that serves it, is among the objects that could not be read, if any."""
        return self.is_partial and not (key in self._services and key in self._slices_of)

    def take_dirty(self) -> list[ServiceKey]:
        """Return the services to render and clear the marks. The caller holds ``lock`` until it has read them."""
        dirty = list(self._dirty)
        self._dirty.clear()
        self._service_changes = self._endpoint_changes = 0
        return dirty

    def take_triggers(self, keys: Iterable[ServiceKey]) -> list[float]:
        """Return and forget the trigger times (wall-clock seconds) of these services' endpoint changes."""
        return [time for key in keys for time in self._triggers.pop(key, ())]

    def ports(self, key: ServiceKey) -> tuple[ServicePort, ...]:
        """Return a service's ports; empty when it is unknown."""
        return self._services.get(key, ())

    def endpoints(self, key: ServiceKey) -> dict[ServicePortName, tuple[Endpoint, ...]]:
        """Return the merged endpoints of a service's ports."""
        names = self._slices_of.get(key)
        if not names:
            return {}
        return merge(self._slices[(key.namespace, name)] for name in sorted(names))

    def keys(self) -> list[ServiceKey]:
        """Return the keys of all services that have ports in this family."""
        return list(self._services)

    def uid(self, key: ServiceKey) -> str:
        """Return a service's uid, which an Event about it must carry to be shown with it; "" when it is unknown."""
        with self.lock:
            return self._uids.get(key, "")

    def udp_keys(self) -> list[ServiceKey]:
        """Return the keys of the services that have a UDP port: a few of many, as a rule."""
        return list(self._udp)

    def problems(self) -> list[Problem]:
        """Return what is wrong with the objects now."""
        with self.lock:
            return [problem for found in self._problems.values() for problem in found]

    def problems_of(self, key: ServiceKey) -> list[Problem]:
        """Return what is wrong with a service and its slices now; those that repeat an endpoint among it."""
        with self.lock:
            own = self._slices_of.get(key, {})
            found = [
                problem
                for (kind, namespace, name), problems in self._problems.items()
                if namespace == key.namespace and self._is_about(key, kind, name)
                for problem in problems
            ]
            return found + repeated((name, self._slices[(key.namespace, name)]) for name in sorted(own))

    def _is_about(self, key: ServiceKey, kind: str, name: str) -> bool:
        if kind == "Service":
            return name == key.name
        known = self._slices.get((key.namespace, name))
        # A slice that could not be used at all is known by the name that its controller gives it.
        return name.startswith(f"{key.name}-") if known is None else known.service == key

    def only(self, key: ServiceKey) -> ClusterState:
        """Return a state of this service alone, which does not change: to be looked at for long without the lock."""
        alone = ClusterState(self.family)
        with self.lock:
            if key in self._services:
                alone._services[key] = self._services[key]
            names = self._slices_of.get(key)
            if names:
                alone._slices_of[key] = dict(names)
                alone._slices.update({(key.namespace, name): self._slices[(key.namespace, name)] for name in names})
        return alone

    # -- inside

    def _notify(self, what: str, *, changed: bool) -> bool:
        if changed:
            self._on_change(what)
        return changed

    def _note(self, kind: str, namespace: str, name: str, found: list[Problem]) -> None:
        key = (kind, namespace, name)
        if not found:
            self._problems.pop(key, None)
        elif self._problems.get(key) != (now := tuple(found)):
            known = self._problems.get(key, ())
            self._problems[key] = now
            for problem in now:
                if problem not in known:
                    self._on_problem(problem)

    def _put_service(self, service: Service) -> bool:
        key = ServiceKey(service.metadata.namespace, service.metadata.name)
        ports, found = service_ports(service, self.family)
        found = _placed(found, service)
        self._uids[key] = service.metadata.uid
        self._note("Service", *key, found)
        if ports == self._services.get(key, ()):
            return False
        if ports:
            self._services[key] = ports
        else:
            del self._services[key]
        if any(port.id.protocol == "UDP" for port in ports):
            self._udp[key] = None
        else:
            self._udp.pop(key, None)
        self._dirty[key] = None
        self._service_changes += 1
        return True

    def _drop_service(self, key: ServiceKey) -> bool:
        self._problems.pop(("Service", *key), None)
        self._uids.pop(key, None)
        self._udp.pop(key, None)
        if self._services.pop(key, None) is None:
            return False
        self._dirty[key] = None
        self._service_changes += 1
        return True

    def _put_slice(self, obj: EndpointSlice) -> bool:
        meta = obj.metadata
        key = (meta.namespace, meta.name)
        data, found = slice_data(obj, self.family)
        found = _placed(found, obj)
        self._note("EndpointSlice", *key, found)
        if data is None:
            return self._drop_slice(key, forget_problems=False)
        known = self._slices.get(key)
        if known == data:
            return False
        if known is not None and known.service != data.service:
            self._drop_slice(key, forget_problems=False)
        self._slices[key] = data
        self._slices_of.setdefault(data.service, {})[meta.name] = None
        self._dirty[data.service] = None
        self._endpoint_changes += 1
        trigger = _trigger_time((meta.annotations or {}).get(TRIGGER_ANNOTATION))
        if trigger is not None and trigger > self._started_at:
            self._triggers.setdefault(data.service, []).append(trigger)
        return True

    def _drop_slice(self, key: SliceKey, *, forget_problems: bool = True) -> bool:
        if forget_problems:
            self._problems.pop(("EndpointSlice", *key), None)
        data = self._slices.pop(key, None)
        if data is None:
            return False
        names = self._slices_of[data.service]
        del names[key[1]]
        if not names:
            del self._slices_of[data.service]
        self._dirty[data.service] = None
        self._endpoint_changes += 1
        # A deletion's annotation tells of the update before it: such times would measure nothing.
        self._triggers.pop(data.service, None)
        return True


def _placed(found: list[Problem], obj: Service | EndpointSlice) -> list[Problem]:
    """Name the places of lists as the object was written, not as it was mended."""
    if not obj.places:
        return found
    return [problem._replace(field=place(problem.field, obj.places)) for problem in found]


def _trigger_time(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
