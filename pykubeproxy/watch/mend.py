"""Make the best of an object in which values have the wrong JSON type.

It exists for manifests that people write (`port: "80"`, `ready: "yes"`) and for servers that are none of Kubernetes'
own: decoding is strict and fast, and only an object that fails it comes here. The smallest part that cannot be used
goes, and each that goes is named with its field. Nothing is ever read as something else: "80" is no port, and an
endpoint of which nobody can tell whether it is ready is no endpoint. Where leaving a part out would send traffic
elsewhere or open what was closed, what holds the part goes with it, up to the whole object. ``null`` is as good as
absent, as for Go. The object remembers which places of a list were left out, so that what is told of the rest later
names the places that a person finds in the file. It must not judge values of the right type: that is the model's
business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

from pykubeproxy.watch import objects as api

T = TypeVar("T", bound=msgspec.Struct)

MOST_LINES = 20
"""More faults of one object than these are only counted."""

_NEEDED: Mapping[type, frozenset[str]] = {
    api.ObjectMeta: frozenset(("name", "namespace", "labels")),
    api.Service: frozenset(("metadata", "spec")),
    # A service without its ports, addresses or source ranges would be another one.
    api.ServiceSpec: frozenset(("ports", "clusterIP", "clusterIPs", "ipFamilies", "loadBalancerSourceRanges")),
    api.ServicePortSpec: frozenset(("port", "name", "protocol")),
    api.LoadBalancerIngress: frozenset(("ip", "ipMode")),
    api.EndpointSlice: frozenset(("metadata", "addressType", "endpoints", "ports")),
    api.Endpoint: frozenset(("addresses", "conditions", "nodeName")),
    api.EndpointConditions: frozenset(("ready", "serving", "terminating")),
    api.EndpointPort: frozenset(("name", "port", "protocol")),
    api.EndpointHints: frozenset(("forZones", "forNodes")),
    api.ForZone: frozenset(("name",)),
    api.Node: frozenset(("metadata", "spec", "status")),
    api.NodeSpec: frozenset(("podCIDR", "podCIDRs")),
    api.NodeStatus: frozenset(("addresses",)),
    api.Taint: frozenset(("key",)),
    api.NodeAddress: frozenset(("type", "address")),
}
"""Fields without which the struct that holds them cannot be used. Any other bad field is left out alone."""

_INDIVISIBLE = frozenset(("addresses", "forZones", "forNodes", "podCIDRs", "clusterIPs", "ipFamilies"))
"""Lists whose items count by their place or only all together: one bad item spoils them."""

_NEVER_EMPTIED = frozenset(("ports", "endpoints", "loadBalancerSourceRanges"))
"""Lists that mean something else when they are empty: no traffic at all, or traffic from everybody."""

_TELLING_LABELS = frozenset((api.PROXY_NAME_LABEL, api.HEADLESS_LABEL, api.SERVICE_NAME_LABEL))
"""Labels that decide whether or whose an object is. Without one of these it would be another object."""

_NOUNS: Mapping[type, str] = {
    api.ServicePortSpec: "the port is",
    api.EndpointPort: "the port is",
    api.Endpoint: "the endpoint is",
    api.LoadBalancerIngress: "the address is",
    api.NodeAddress: "the address is",
    api.Taint: "the taint is",
}


@dataclass(frozen=True, slots=True)
class _Bad:
    """A part that cannot be used: where, and why."""

    path: str
    said: str


def mend(kind: type[T], tree: object) -> tuple[T | None, list[str]]:
    """Return what of an object can be used, and one line for each part that was left out: ``field: why; what goes``.

    None where the object as a whole cannot be used; the one line then is the fault that decided.
    """
    mending = _Mending()
    found = mending.value(tree, kind, "")
    if isinstance(found, _Bad):
        return None, [f"{found.path}: {found.said}" if found.path else found.said]
    lines = mending.lines
    if mending.count > len(lines):
        lines.append(f"and {mending.count - len(lines)} more faults of this kind")
    obj = msgspec.convert(found, kind)
    if mending.places and isinstance(obj, api.Service | api.EndpointSlice):
        obj.places = mending.places
    return obj, lines


@dataclass(slots=True)
class _Mending:
    lines: list[str] = field(default_factory=list)
    count: int = 0
    places: api.Places = field(default_factory=dict)

    def value(self, tree: object, kind: Any, path: str) -> object:
        """Return ``tree`` with what cannot be used left out, or a _Bad. Descends only into what does not convert."""
        try:
            msgspec.convert(tree, kind)
        except msgspec.ValidationError as error:
            said = str(error).replace("`", "").partition(" - at ")[0]
            fault = _Bad(path, said[:1].lower() + said[1:])
        else:
            return tree
        kind = _present(kind)
        if isinstance(tree, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._struct(tree, kind, path)
        if isinstance(tree, list) and get_origin(kind) is list:
            return self._list(tree, get_args(kind)[0], path)
        if isinstance(tree, dict) and get_origin(kind) is dict:
            return self._texts(tree, path)
        return fault

    def _struct(self, tree: dict[Any, Any], kind: type[msgspec.Struct], path: str) -> object:
        out: dict[str, object] = {}
        needed = _NEEDED.get(kind, frozenset())
        for each in _fields(kind):
            name = each.encode_name
            inner = f"{path}.{name}" if path else name
            value = tree.get(name)
            if value is None:
                if each.required:
                    return _Bad(inner, "is missing")
                continue
            found = self.value(value, each.type, inner)
            if not isinstance(found, _Bad):
                out[name] = found
            elif name in needed:
                return found
            else:
                self._leave_out(found, "it is" if found.path == inner else f"{name} is")
        return out

    def _list(self, items: list[Any], kind: Any, path: str) -> object:
        name = path.rpartition(".")[2]
        noun = _NOUNS.get(_present(kind), "it is")
        out: list[object] = []
        kept: list[int] = []
        fault = _Bad(path, "is empty")
        for index, item in enumerate(items):
            found = self.value(item, kind, f"{path}[{index}]")
            if not isinstance(found, _Bad):
                out.append(found)
                kept.append(index)
            elif name in _INDIVISIBLE:
                return found
            else:
                self._leave_out(found, noun)
                fault = found
        if len(kept) < len(items):
            self.places[path] = kept
        return fault if name in _NEVER_EMPTIED and items and not out else out

    def _texts(self, tree: dict[Any, Any], path: str) -> object:
        out: dict[str, str] = {}
        for key, value in tree.items():
            if isinstance(key, str) and (value is None or isinstance(value, str)):
                out[key] = value or ""
                continue
            fault = _Bad(f"{path}[{key}]", "expected str")
            if key in _TELLING_LABELS:
                return fault
            self._leave_out(fault, "it is")
        return out

    def _leave_out(self, fault: _Bad, noun: str) -> None:
        self.count += 1
        if len(self.lines) < MOST_LINES:
            self.lines.append(f"{fault.path}: {fault.said}; {noun} left out")


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)  # which works out type hints anew each time


def _present(kind: Any) -> Any:
    """Return the type without its None."""
    if get_origin(kind) in (Union, UnionType):
        return next(one for one in get_args(kind) if one is not type(None))
    return kind
