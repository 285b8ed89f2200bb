"""Objects as rows, for clients that ask for a Table (kubectl get): the columns and cells of a real server.

Pure: objects and the present time in, a Table out. Source: recordings of kube-apiserver 1.36.2.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

ACCEPT = "as=Table;v=v1;g=meta.k8s.io"
_NONE = "<none>"
_UNKNOWN = "<unknown>"
_SHOWN_MOST = 3

# Resource: (column, is shown only when asked for wide).
_COLUMNS: dict[str, tuple[tuple[str, bool], ...]] = {
    "services": (
        ("Name", False),
        ("Type", False),
        ("Cluster-IP", False),
        ("External-IP", False),
        ("Port(s)", False),
        ("Age", False),
        ("Selector", True),
    ),
    "endpointslices": (
        ("Name", False),
        ("AddressType", False),
        ("Ports", False),
        ("Endpoints", False),
        ("Age", False),
    ),
    "nodes": (
        ("Name", False),
        ("Status", False),
        ("Roles", False),
        ("Age", False),
        ("Version", False),
        ("Internal-IP", True),
        ("External-IP", True),
        ("OS-Image", True),
        ("Kernel-Version", True),
        ("Container-Runtime", True),
    ),
    "events": (
        ("Last Seen", False),
        ("Type", False),
        ("Reason", False),
        ("Object", False),
        ("Subobject", True),
        ("Source", True),
        ("Message", False),
        ("First Seen", True),
        ("Count", True),
        ("Name", True),
    ),
    "namespaces": (("Name", False), ("Status", False), ("Age", False)),
    "servicecidrs": (("Name", False), ("CIDRs", False), ("Age", False)),
}


def table(resource: str, objects: list[Json], meta: Json, now: dt.datetime, *, has_columns: bool = True) -> Json:
    """Return a Table of stored objects, with ``meta`` as its metadata."""
    cells = _CELLS[resource]
    columns = [
        {"name": name, "type": "string", "format": "name" if name == "Name" else "", "priority": int(is_wide)}
        for name, is_wide in _COLUMNS[resource]
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [{**column, "description": column["name"]} for column in columns] if has_columns else None,
        "rows": [
            {
                "cells": cells(obj, now),
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": obj.get("metadata") or {},
                },
            }
            for obj in objects
        ],
    }


def age(text: str | None, now: dt.datetime) -> str:
    """Return how long ago a timestamp was, in the two largest units that matter."""
    if not text:
        return _UNKNOWN
    seconds = int((now - dt.datetime.fromisoformat(text)).total_seconds())
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    years = days // 365
    steps = (
        (seconds < -1, "<invalid>"),
        (seconds < 0, "0s"),
        (seconds < 120, f"{seconds}s"),
        (minutes < 10, _two(minutes, "m", seconds % 60, "s")),
        (minutes < 180, f"{minutes}m"),
        (hours < 8, _two(hours, "h", minutes % 60, "m")),
        (hours < 48, f"{hours}h"),
        (days < 8, _two(days, "d", hours % 24, "h")),
        (years < 2, f"{days}d"),
        (years < 8, _two(years, "y", days % 365, "d")),
    )
    return next((text for holds, text in steps if holds), f"{years}y")


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"


def _age(obj: Json, now: dt.datetime) -> str:
    return age((obj.get("metadata") or {}).get("creationTimestamp"), now)


def _name(obj: Json) -> str:
    return str((obj.get("metadata") or {}).get("name") or "")


def _few(items: list[str]) -> str:
    if not items:
        return "<unset>"
    more = f" + {len(items) - _SHOWN_MOST} more..." if len(items) > _SHOWN_MOST else ""
    return ",".join(items[:_SHOWN_MOST]) + more


def _service(obj: Json, now: dt.datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    kind = spec.get("type") or ""
    ingress = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    outer = list(spec.get("externalIPs") or [])
    if kind == "LoadBalancer":
        outer = [str(each.get("ip") or each.get("hostname")) for each in ingress] + outer or ["<pending>"]
    elif kind == "ExternalName":
        outer = [str(spec.get("externalName") or "")]
    ports = [
        f"{port.get('port')}" + (f":{port['nodePort']}" if port.get("nodePort") else "") + f"/{port.get('protocol')}"
        for port in spec.get("ports") or []
    ]
    selector = ",".join(f"{key}={value}" for key, value in sorted((spec.get("selector") or {}).items()))
    return [
        _name(obj),
        kind,
        spec.get("clusterIP") or _NONE,
        ",".join(outer) or _NONE,
        ",".join(ports) or _NONE,
        _age(obj, now),
        selector or _NONE,
    ]


def _endpoint_slice(obj: Json, now: dt.datetime) -> list[Any]:
    ports = [str(port.get("port") or port.get("name") or "*") for port in obj.get("ports") or []]
    addresses = [address for endpoint in obj.get("endpoints") or [] for address in endpoint.get("addresses") or []]
    return [_name(obj), obj.get("addressType") or "", _few(ports), _few(addresses), _age(obj, now)]


def _node(obj: Json, now: dt.datetime) -> list[Any]:
    labels = (obj.get("metadata") or {}).get("labels") or {}
    state = obj.get("status") or {}
    info = state.get("nodeInfo") or {}
    ready = [each.get("status") for each in state.get("conditions") or [] if each.get("type") == "Ready"]
    condition = "Unknown" if not ready else "Ready" if ready[-1] == "True" else "NotReady"
    if (obj.get("spec") or {}).get("unschedulable"):
        condition += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix))
    addresses = {each.get("type"): each.get("address") for each in reversed(state.get("addresses") or [])}
    return [
        _name(obj),
        condition,
        ",".join(roles) or _NONE,
        _age(obj, now),
        info.get("kubeletVersion") or "",
        addresses.get("InternalIP") or _NONE,
        addresses.get("ExternalIP") or _NONE,
        info.get("osImage") or _UNKNOWN,
        info.get("kernelVersion") or _UNKNOWN,
        info.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def _event(obj: Json, now: dt.datetime) -> list[Any]:
    about, source, series = obj.get("involvedObject") or {}, obj.get("source") or {}, obj.get("series") or {}
    first = age(obj.get("firstTimestamp") or obj.get("eventTime"), now)
    last = age(obj["lastTimestamp"], now) if obj.get("lastTimestamp") else first
    if series:
        last = age(series.get("lastObservedTime"), now)
    component = source.get("component") or obj.get("reportingComponent") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""
    return [
        last,
        obj.get("type") or "",
        obj.get("reason") or "",
        "/".join(part for part in (str(about.get("kind") or "").lower(), about.get("name")) if part),
        about.get("fieldPath") or "",
        f"{component}, {instance}" if instance else component,
        str(obj.get("message") or "").strip(),
        first,
        series.get("count") or obj.get("count") or 1,
        _name(obj),
    ]


def _namespace(obj: Json, now: dt.datetime) -> list[Any]:
    return [_name(obj), (obj.get("status") or {}).get("phase") or "", _age(obj, now)]


def _service_cidr(obj: Json, now: dt.datetime) -> list[Any]:
    return [_name(obj), ",".join((obj.get("spec") or {}).get("cidrs") or []), _age(obj, now)]


_CELLS: dict[str, Callable[[Json, dt.datetime], list[Any]]] = {
    "services": _service,
    "endpointslices": _endpoint_slice,
    "nodes": _node,
    "events": _event,
    "namespaces": _namespace,
    "servicecidrs": _service_cidr,
}
