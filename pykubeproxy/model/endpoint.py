"""Endpoints: what an EndpointSlice says, and the merged list of one service port.

A slice is kept as SliceData, stripped to what a proxy needs; ``merge`` makes the endpoints of one service port from all
slices of a service. Meaning follows kube-proxy (pkg/proxy/endpointslicecache.go): conditions that are absent count as
ready, serving and not terminating; only the first address of a record is used; a port without name or number is
ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import intern

import msgspec

from pykubeproxy.model.addresses import FAMILIES, Family, has_leading_zeros, parse_ip, with_port
from pykubeproxy.model.service import PROTOCOLS, Problem, ServiceKey, ServicePortName
from pykubeproxy.watch.objects import SERVICE_NAME_LABEL, EndpointSlice, ForZone

TRIGGER_ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time"


class Record(msgspec.Struct, frozen=True, gc=False):
    """One endpoint of a slice, before it is paired with the slice's ports."""

    address: str
    node: str
    is_ready: bool
    is_serving: bool
    is_terminating: bool
    zone_hints: tuple[str, ...] = ()
    node_hints: tuple[str, ...] = ()


class SlicePort(msgspec.Struct, frozen=True, gc=False):
    """One port of a slice: name ("" for unnamed), protocol, number."""

    name: str
    protocol: str
    number: int


class SliceData(msgspec.Struct, frozen=True, gc=False):
    """What is kept of one EndpointSlice."""

    service: ServiceKey
    ports: tuple[SlicePort, ...]
    records: tuple[Record, ...]


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """One endpoint of one service port. ``target``: ``ip:port`` or ``[ip]:port``, by which it is sorted and named."""

    target: str
    address: str
    port: int
    node: str
    is_ready: bool
    is_serving: bool
    is_terminating: bool
    zone_hints: tuple[str, ...] = ()
    node_hints: tuple[str, ...] = ()


def slice_data(obj: EndpointSlice, family: Family) -> tuple[SliceData | None, list[Problem]]:
    """Return what is kept of a slice, or None where it is of another address type or belongs to no service."""
    problems: list[Problem] = []
    meta = obj.metadata

    def problem(field: str, message: str) -> None:
        problems.append(Problem("EndpointSlice", meta.namespace, meta.name, field, message))

    if obj.address_type != family:
        if obj.address_type not in FAMILIES:
            problem("addressType", f"{obj.address_type!r} is not IPv4 or IPv6; the slice is ignored")
        return None, problems
    service = (meta.labels or {}).get(SERVICE_NAME_LABEL, "")
    if not service:
        problem(f"metadata.labels[{SERVICE_NAME_LABEL}]", "is missing; the slice belongs to no service")
        return None, problems

    ports = []
    for index, port in enumerate(obj.ports or ()):
        if port.name is None:
            problem(f"ports[{index}].name", "is null; the port is ignored")
        elif not port.port:
            problem(f"ports[{index}].port", "is missing; the port is ignored")
        elif not 0 < port.port < 65536:
            problem(f"ports[{index}].port", f"{port.port} is not between 1 and 65535; the port is ignored")
        elif (port.protocol or "TCP") not in PROTOCOLS:
            problem(f"ports[{index}].protocol", f"{port.protocol!r} is not TCP, UDP or SCTP; the port is ignored")
        else:
            ports.append(SlicePort(intern(port.name), intern(port.protocol or "TCP"), port.port))

    records = []
    for index, endpoint in enumerate(obj.endpoints or ()):
        if not endpoint.addresses:
            problem(f"endpoints[{index}].addresses", "is empty; the endpoint is ignored")
            continue
        text = endpoint.addresses[0]
        try:
            found, address = parse_ip(text)
        except ValueError as exc:
            problem(f"endpoints[{index}].addresses[0]", f"{exc}; the endpoint is ignored")
            continue
        if found != family:
            problem(f"endpoints[{index}].addresses[0]", f"{text!r} is not {family}; the endpoint is ignored")
            continue
        if text != address and has_leading_zeros(text):
            problem(f"endpoints[{index}].addresses[0]", f"{text!r} has leading zeros; it is read as {address}")
        conditions, hints = endpoint.conditions, endpoint.hints
        records.append(
            Record(
                address=address,
                node=intern(endpoint.node_name or ""),
                is_ready=conditions is None or conditions.ready is not False,
                is_serving=conditions is None or conditions.serving is not False,
                is_terminating=conditions is not None and conditions.terminating is True,
                zone_hints=_names(hints.for_zones) if hints is not None else (),
                node_hints=_names(hints.for_nodes) if hints is not None else (),
            )
        )
    return SliceData(ServiceKey(meta.namespace, service), tuple(ports), tuple(records)), problems


def merge(slices: Iterable[SliceData]) -> dict[ServicePortName, tuple[Endpoint, ...]]:
    """Return the endpoints of every service port that the slices of ONE service name, sorted by target text.

    Slices must come in a stable order (by name). Where the same address and port occurs more than once: inside one
    slice the later record that is not terminating wins, as in kube-proxy; between slices the better one wins (ready,
    then serving, then terminating), where kube-proxy lets the order of a map decide.
    """
    merged: dict[ServicePortName, dict[str, Endpoint]] = {}
    for data in slices:
        for port in data.ports:
            key = ServicePortName(data.service.namespace, data.service.name, port.name, port.protocol)
            own: dict[str, Endpoint] = {}
            for record in data.records:
                target = with_port(record.address, port.number)
                if target in own and record.is_terminating:
                    continue
                own[target] = Endpoint(
                    target,
                    record.address,
                    port.number,
                    record.node,
                    record.is_ready,
                    record.is_serving,
                    record.is_terminating,
                    record.zone_hints,
                    record.node_hints,
                )
            known = merged.setdefault(key, own)
            if known is not own:
                for target, endpoint in own.items():
                    other = known.get(target)
                    if other is None or _rank(endpoint) > _rank(other):
                        known[target] = endpoint
    return {key: tuple(sorted(found.values(), key=_target)) for key, found in merged.items() if found}


def repeated(slices: Iterable[tuple[str, SliceData]]) -> list[Problem]:
    """Return the endpoints that ONE service's slices (name, contents) name more than once, one Problem for each slice.

    That is no fault by itself: an endpoint that moves between slices stands in both for a moment.
    """
    seen: dict[tuple[str, str, str], str] = {}
    problems = []
    for name, data in slices:
        again: dict[str, str] = {}
        for port in data.ports:
            for record in data.records:
                target = with_port(record.address, port.number)
                known = seen.get((port.name, port.protocol, target))
                if known is None:
                    seen[port.name, port.protocol, target] = name
                else:
                    again.setdefault(target, known)
        if again:
            target, other = next(iter(again.items()))
            where = "twice" if other == name else f"in slice {other} too"
            more = f" (and {len(again) - 1} more)" if len(again) > 1 else ""
            message = f"{target} stands {where}{more}; it counts once"
            problems.append(Problem("EndpointSlice", data.service.namespace, name, "endpoints", message))
    return problems


def _rank(endpoint: Endpoint) -> int:
    if endpoint.is_ready and not endpoint.is_terminating:
        return 4
    if not endpoint.is_terminating:
        return 3
    return 2 if endpoint.is_ready else int(endpoint.is_serving)


def _target(endpoint: Endpoint) -> str:
    return endpoint.target


def _names(hints: list[ForZone] | None) -> tuple[str, ...]:
    return tuple(intern(hint.name) for hint in hints) if hints else ()
