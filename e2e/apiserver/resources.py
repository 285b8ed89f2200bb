"""Which resources the stand-in serves: names, selectable fields, the empty object of a bookmark, defaults of a write.

A table and pure functions over JSON values. Events are stored once, in the core/v1 form, and shown in both API groups.
Source of defaults and field names: Kubernetes API types and pkg/apis of 1.36.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from e2e.apiserver.selectors import SelectorError

Json = dict[str, Any]

_META_FIELDS = {"metadata.name": "metadata.name", "metadata.namespace": "metadata.namespace"}


def _same(value: Json) -> Json:
    return value


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of one API version. ``selectable`` maps a field of this version to the path in the stored form."""

    name: str
    kind: str
    group: str
    version: str
    namespaced: bool
    singular: str
    short_names: tuple[str, ...] = ()
    selectable: Mapping[str, str] = field(default_factory=lambda: _META_FIELDS)
    names_fault: str = "field label not supported: {0}"
    empty: Json = field(default_factory=dict)
    shown: Callable[[Json], Json] = _same
    stored: Callable[[Json], Json] = _same
    has_generation: bool = False
    returns_deleted: bool = False

    @property
    def api_version(self) -> str:
        """Return the apiVersion that objects carry."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_converted(self) -> bool:
        """Tell whether objects are shown in another form than the stored one."""
        return self.shown is not _same

    def convert_field(self, name: str) -> str:
        """Return the stored path of a selectable field. Raises SelectorError."""
        try:
            return self.selectable[name]
        except KeyError:
            raise SelectorError(self.names_fault.format(name)) from None


_META_FAULT = '"{0}" is not a known field selector: only "metadata.name", "metadata.namespace"'

_EVENT_PAIRS = (  # core/v1 name, events.k8s.io/v1 name
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
_EVENT_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def _event_to_core(event: Json) -> Json:
    names = {new: old for old, new in _EVENT_PAIRS}
    return {names.get(key, key): value for key, value in event.items()}


def _event_from_core(event: Json) -> Json:
    names = dict(_EVENT_PAIRS)
    left_out = {key for key in ("reportingComponent", "reportingInstance") if not event.get(key)}
    return {names.get(key, key): value for key, value in event.items() if key not in left_out}


RESOURCES: tuple[Resource, ...] = (
    Resource(
        "services",
        "Service",
        "",
        "v1",
        namespaced=True,
        singular="service",
        short_names=("svc",),
        selectable={**_META_FIELDS, "spec.clusterIP": "spec.clusterIP", "spec.type": "spec.type"},
        empty={"spec": {}, "status": {"loadBalancer": {}}},
        returns_deleted=True,
    ),
    Resource(
        "nodes",
        "Node",
        "",
        "v1",
        namespaced=False,
        singular="node",
        short_names=("no",),
        selectable={"metadata.name": "metadata.name", "spec.unschedulable": "spec.unschedulable"},
        empty={
            "spec": {},
            "status": {
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
                "nodeInfo": dict.fromkeys(
                    (
                        "machineID",
                        "systemUUID",
                        "bootID",
                        "kernelVersion",
                        "osImage",
                        "containerRuntimeVersion",
                        "kubeletVersion",
                        "kubeProxyVersion",
                        "operatingSystem",
                        "architecture",
                    ),
                    "",
                ),
            },
        },
    ),
    Resource(
        "namespaces",
        "Namespace",
        "",
        "v1",
        namespaced=False,
        singular="namespace",
        short_names=("ns",),
        selectable={"metadata.name": "metadata.name", "status.phase": "status.phase"},
        empty={"spec": {}, "status": {}},
        returns_deleted=True,
    ),
    Resource(
        "events",
        "Event",
        "",
        "v1",
        namespaced=True,
        singular="event",
        short_names=("ev",),
        selectable={
            **_META_FIELDS,
            **{f"involvedObject.{name}": f"involvedObject.{name}" for name in _EVENT_FIELDS},
            "reason": "reason",
            "reportingComponent": "reportingComponent",
            "source": "source.component",
            "type": "type",
        },
        empty={
            "involvedObject": {},
            "source": {},
            "eventTime": None,
            "reportingComponent": "",
            "reportingInstance": "",
        },
    ),
    Resource(
        "endpointslices",
        "EndpointSlice",
        "discovery.k8s.io",
        "v1",
        namespaced=True,
        singular="endpointslice",
        names_fault=_META_FAULT,
        empty={"addressType": "", "endpoints": None, "ports": None},
        has_generation=True,
    ),
    Resource(
        "servicecidrs",
        "ServiceCIDR",
        "networking.k8s.io",
        "v1",
        namespaced=False,
        singular="servicecidr",
        names_fault=_META_FAULT,
        empty={"spec": {}, "status": {}},
    ),
    Resource(
        "events",
        "Event",
        "events.k8s.io",
        "v1",
        namespaced=True,
        singular="event",
        short_names=("ev",),
        selectable={
            **_META_FIELDS,
            **{f"regarding.{name}": f"involvedObject.{name}" for name in _EVENT_FIELDS},
            "reason": "reason",
            "reportingController": "reportingComponent",
            "type": "type",
        },
        empty={"eventTime": None, "regarding": {}, "deprecatedSource": {}},
        shown=_event_from_core,
        stored=_event_to_core,
    ),
)

BY_PATH: dict[tuple[str, str, str], Resource] = {(each.group, each.version, each.name): each for each in RESOURCES}
BY_KIND: dict[tuple[str, str], Resource] = {(each.api_version, each.kind): each for each in RESOURCES}


def find(name: str) -> Resource:
    """Return a resource by its plural name, singular, or kind, whatever the case. Raises KeyError."""
    wanted = name.lower()
    for each in RESOURCES:
        if wanted in {each.name, each.singular, *each.short_names}:
            return each
    raise KeyError(name)


def of_object(obj: Json) -> Resource:
    """Return the resource of an object by its apiVersion and kind. Raises ValueError."""
    key = (str(obj.get("apiVersion", "")), str(obj.get("kind", "")))
    try:
        return BY_KIND[key]
    except KeyError:
        raise ValueError(f"no resource for apiVersion {key[0]!r}, kind {key[1]!r}") from None


def stored_fields(resource: Resource, obj: Json) -> dict[str, str]:
    """Return the selectable fields of a stored object by their stored paths."""
    fields: dict[str, str] = {}
    for path in resource.selectable.values():
        value: Any = obj
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if path == "spec.unschedulable" and value is None:
            value = False
        fields[path] = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return fields


def normalised(resource: Resource, obj: Json) -> Json:
    """Return the object as the API server gives it back: empty fields that are never left out are null there."""
    if resource.name == "endpointslices":
        for key in ("endpoints", "ports"):
            obj[key] = obj.get(key) or None
    elif resource.name == "events":
        for key in ("firstTimestamp", "lastTimestamp", "eventTime"):
            obj[key] = obj.get(key) or None
        for key in ("reportingComponent", "reportingInstance"):
            obj.setdefault(key, "")
        obj.setdefault("source", {})
    return obj


def defaulted(resource: Resource, obj: Json, addresses: Callable[[], str], node_ports: Callable[[], int]) -> Json:
    """Return a copy with the defaults that the API server fills in on a write.

    ``addresses`` and ``node_ports`` allot what a Service leaves open; what is given stays as it is given.
    """
    obj = copy.deepcopy(obj)
    if resource.name == "services":
        _default_service(obj, addresses, node_ports)
    elif resource.name == "endpointslices":
        for port in obj.get("ports") or []:
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")
        for endpoint in obj.get("endpoints") or []:
            endpoint.setdefault("conditions", {})
    elif resource.name == "nodes":
        obj.setdefault("spec", {})
        _fill(obj.setdefault("status", {}), resource.empty["status"])
    elif resource.name == "namespaces":
        obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
        obj.setdefault("status", {}).setdefault("phase", "Active")
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")
    return obj


def _fill(target: Json, defaults: Json) -> None:
    for key, value in defaults.items():
        if isinstance(value, dict):
            _fill(target.setdefault(key, {}), value)
        else:
            target.setdefault(key, value)


def _default_service(obj: Json, addresses: Callable[[], str], node_ports: Callable[[], int]) -> None:
    spec = obj.setdefault("spec", {})
    kind = spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": client.get("timeoutSeconds", 10800)}}
    has_node_ports = kind in {"NodePort", "LoadBalancer"}
    allots = has_node_ports and (kind == "NodePort" or spec.setdefault("allocateLoadBalancerNodePorts", True))
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
        if allots and not port.get("nodePort"):
            port["nodePort"] = node_ports()
    if kind != "ExternalName":
        if not spec.get("clusterIP"):
            spec["clusterIP"] = (spec.get("clusterIPs") or [""])[0] or addresses()
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        families = ["IPv6" if ":" in address else "IPv4" for address in spec["clusterIPs"]]
        if spec["clusterIP"] == "None" and not spec.get("selector"):
            families = ["IPv4", "IPv6"]
        spec.setdefault("ipFamilies", families)
        spec.setdefault("ipFamilyPolicy", "SingleStack" if len(families) == 1 else "RequireDualStack")
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if has_node_ports or spec.get("externalIPs"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local" and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = node_ports()
    _fill(obj, {"status": {"loadBalancer": {}}})
