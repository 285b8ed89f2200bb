"""Read the protobuf bodies that client-go writes by default, for the few kinds that it writes here; answers stay JSON.

Field numbers are those of generated.proto in k8s.io/api 1.36; fields that are not in the tables are skipped.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

MAGIC = b"k8s\0"
CONTENT_TYPE = "application/vnd.kubernetes.protobuf"

# number: (name, type); a type is "str", "int", "bool", "bool?" (false is kept), "map", "time", "micro", "intstr" or a
# message's name, and "[]" in front for repeated fields.
_MESSAGES: dict[str, dict[int, tuple[str, str]]] = {
    "ObjectMeta": {
        1: ("name", "str"),
        2: ("generateName", "str"),
        3: ("namespace", "str"),
        5: ("uid", "str"),
        6: ("resourceVersion", "str"),
        7: ("generation", "int"),
        8: ("creationTimestamp", "time"),
        11: ("labels", "map"),
        12: ("annotations", "map"),
        14: ("finalizers", "[]str"),
    },
    "ObjectReference": {
        1: ("kind", "str"),
        2: ("namespace", "str"),
        3: ("name", "str"),
        4: ("uid", "str"),
        5: ("apiVersion", "str"),
        6: ("resourceVersion", "str"),
        7: ("fieldPath", "str"),
    },
    "EventSource": {1: ("component", "str"), 2: ("host", "str")},
    "EventSeries": {1: ("count", "int"), 2: ("lastObservedTime", "micro")},
    "v1 Event": {
        1: ("metadata", "ObjectMeta"),
        2: ("involvedObject", "ObjectReference"),
        3: ("reason", "str"),
        4: ("message", "str"),
        5: ("source", "EventSource"),
        6: ("firstTimestamp", "time"),
        7: ("lastTimestamp", "time"),
        8: ("count", "int"),
        9: ("type", "str"),
        10: ("eventTime", "micro"),
        11: ("series", "EventSeries"),
        12: ("action", "str"),
        13: ("related", "ObjectReference"),
        14: ("reportingComponent", "str"),
        15: ("reportingInstance", "str"),
    },
    "events.k8s.io/v1 Event": {
        1: ("metadata", "ObjectMeta"),
        2: ("eventTime", "micro"),
        3: ("series", "EventSeries"),
        4: ("reportingController", "str"),
        5: ("reportingInstance", "str"),
        6: ("action", "str"),
        7: ("reason", "str"),
        8: ("regarding", "ObjectReference"),
        9: ("related", "ObjectReference"),
        10: ("note", "str"),
        11: ("type", "str"),
        12: ("deprecatedSource", "EventSource"),
        13: ("deprecatedFirstTimestamp", "time"),
        14: ("deprecatedLastTimestamp", "time"),
        15: ("deprecatedCount", "int"),
    },
    "ClientIPConfig": {1: ("timeoutSeconds", "int")},
    "SessionAffinityConfig": {1: ("clientIP", "ClientIPConfig")},
    "ServicePort": {
        1: ("name", "str"),
        2: ("protocol", "str"),
        3: ("port", "int"),
        4: ("targetPort", "intstr"),
        5: ("nodePort", "int"),
        6: ("appProtocol", "str"),
    },
    "ServiceSpec": {
        1: ("ports", "[]ServicePort"),
        2: ("selector", "map"),
        3: ("clusterIP", "str"),
        4: ("type", "str"),
        5: ("externalIPs", "[]str"),
        7: ("sessionAffinity", "str"),
        8: ("loadBalancerIP", "str"),
        9: ("loadBalancerSourceRanges", "[]str"),
        10: ("externalName", "str"),
        11: ("externalTrafficPolicy", "str"),
        12: ("healthCheckNodePort", "int"),
        13: ("publishNotReadyAddresses", "bool"),
        14: ("sessionAffinityConfig", "SessionAffinityConfig"),
        17: ("ipFamilyPolicy", "str"),
        18: ("clusterIPs", "[]str"),
        19: ("ipFamilies", "[]str"),
        20: ("allocateLoadBalancerNodePorts", "bool?"),
        21: ("loadBalancerClass", "str"),
        22: ("internalTrafficPolicy", "str"),
        23: ("trafficDistribution", "str"),
    },
    "v1 Service": {1: ("metadata", "ObjectMeta"), 2: ("spec", "ServiceSpec")},
    "v1 Namespace": {1: ("metadata", "ObjectMeta")},
    "TypeMeta": {1: ("apiVersion", "str"), 2: ("kind", "str")},
    "Time": {1: ("seconds", "int"), 2: ("nanos", "int")},
    "IntOrString": {1: ("type", "int"), 2: ("intVal", "int"), 3: ("strVal", "str")},
}


def decode(body: bytes) -> Json:
    """Return the object in a body. Raises ValueError for what is no such body or a kind that is not in the tables."""
    if not body.startswith(MAGIC):
        raise ValueError("provided data does not appear to be a protobuf message")
    parts = dict(_fields(body[len(MAGIC) :]))
    kind = _message("TypeMeta", _bytes(parts.get(1, b"")))
    name = f"{kind.get('apiVersion', '')} {kind.get('kind', '')}"
    if name not in _MESSAGES:
        raise ValueError(f"no kind {name!r} is read from protobuf here")
    return {**kind, **_message(name, _bytes(parts.get(2, b"")))}


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where a message should")  # noqa: TRY004 - a malformed body, not a wrong call
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value); integers as they come, the rest as bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        size, at = {1: (8, at), 5: (4, at)}.get(wire) or (_varint(data, at) if wire == 2 else (-1, at))
        if size < 0 or at + size > len(data):
            raise ValueError("unexpected end of a protobuf message")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    raise ValueError("unexpected end of a protobuf message")


def _message(name: str, data: bytes) -> Json:
    table = _MESSAGES[name]
    message: Json = {}
    for number, raw in _fields(data):
        if number not in table:
            continue
        field, kind = table[number]
        if kind == "map":
            pair = dict(_fields(_bytes(raw)))
            key, value = (_bytes(pair.get(side, b"")).decode() for side in (1, 2))
            message.setdefault(field, {})[key] = value
        elif kind.startswith("[]"):
            message.setdefault(field, []).append(_value(kind[2:], raw))
        else:
            value = _value(kind, raw)
            if value not in ("", 0, None) or kind == "bool?":
                message[field] = value
    return message


def _value(kind: str, raw: int | bytes) -> Any:
    if kind == "int":
        number = int(raw) if isinstance(raw, int) else 0
        return number - (1 << 64) if number >> 63 else number
    if kind in {"bool", "bool?"}:
        return bool(raw)
    data = _bytes(raw)
    if kind == "str":
        return data.decode()
    if kind in {"time", "micro"}:
        return _time(data, with_fraction=kind == "micro")
    if kind == "intstr":
        either = _message("IntOrString", data)
        return either.get("strVal", "") if either.get("type") else either.get("intVal", 0)
    return _message(kind, data)


def _time(data: bytes, *, with_fraction: bool) -> str | None:
    time = _message("Time", data)
    if "seconds" not in time:
        return None
    moment = dt.datetime.fromtimestamp(time["seconds"], dt.UTC)
    fraction = f".{time.get('nanos', 0) // 1000:06d}" if with_fraction else ""
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + fraction + "Z"
