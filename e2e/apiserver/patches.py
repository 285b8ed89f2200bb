"""Patches: JSON patch, merge patch, and strategic merge patch for the resources that are served here.

Server-side apply is taken as a strategic merge without managed fields: enough for ``kubectl apply --server-side``, no
model of ownership. Source: RFC 6902, RFC 7396, and the patch tags of the Kubernetes API types.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import yaml

Json = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
KINDS = (JSON_PATCH, MERGE, STRATEGIC, APPLY)

# Lists that are merged item by item, and by which key; others are replaced whole.
_MERGE_KEYS = {
    "spec.ports": "port",
    "status.addresses": "type",
    "status.conditions": "type",
    "metadata.ownerReferences": "uid",
}
_MERGED_VALUES = {"spec.podCIDRs", "metadata.finalizers"}


def decode(body: bytes, *, is_yaml: bool = False) -> Any:
    """Return the value in a body. Raises ValueError."""
    if not is_yaml:
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError as fault:
            raise ValueError(str(fault)) from None
    try:
        return yaml.safe_load(body)
    except yaml.YAMLError as fault:
        raise ValueError(str(fault)) from None


def apply(kind: str, body: bytes, obj: Json) -> Json:
    """Return ``obj`` with a patch of this content type applied. Raises ValueError, KeyError, TypeError, IndexError."""
    patch = decode(body, is_yaml=kind == APPLY)
    obj = copy.deepcopy(obj)
    if kind == JSON_PATCH:
        result = _json_patch(obj, patch)
    elif kind == MERGE:
        result = _merge(obj, patch)
    else:
        result = _strategic(obj, patch, "")
    if not isinstance(result, dict):
        raise TypeError("the patched object is no object")
    return result


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


def _strategic(target: Any, patch: Json, path: str) -> Any:
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if patch.get("$patch") == "delete":
        return {}
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith("$"):
            _direct(merged, key, value)
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = _strategic_value(
                merged.get(key), value, f"{path}.{key}" if path else key, patch.get(f"$setElementOrder/{key}")
            )
    for key, order in patch.items():
        field = key.removeprefix("$setElementOrder/")
        if field != key and field not in patch and merged.get(field):
            merged[field] = _ordered(merged[field], order, _MERGE_KEYS.get(f"{path}.{field}" if path else field))
    return merged


def _direct(merged: Json, directive: str, value: list[Any]) -> None:
    """Follow a directive that takes things away; those of order come later."""
    if directive.startswith("$deleteFromPrimitiveList/"):
        field = directive.partition("/")[2]
        merged[field] = [item for item in merged.get(field) or [] if item not in value]
    elif directive == "$retainKeys":
        for name in set(merged) - set(value):
            del merged[name]


def _strategic_value(old: Any, new: Any, path: str, order: list[Any] | None) -> Any:
    if isinstance(new, dict):
        return _strategic(old, new, path)
    if isinstance(new, list):
        return _strategic_list(old or [], new, path, order)
    return new


def _strategic_list(target: list[Any], patch: list[Any], path: str, order: list[Any] | None) -> list[Any]:
    if path in _MERGED_VALUES:
        merged = target + [item for item in patch if item not in target]
        return _ordered(merged, order, None) if order else merged
    key = _MERGE_KEYS.get(path)
    if key is None:
        return patch
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item.get("$patch") != "replace"]
    merged = list(target)
    for item in patch:
        at = next((i for i, old in enumerate(merged) if old.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del merged[at]
        elif at is None:
            merged.append({name: value for name, value in item.items() if not name.startswith("$")})
        else:
            merged[at] = _strategic(merged[at], item, f"{path}[]")
    return _interleaved(merged, [item.get(key) for item in target], order or patch, key)


def _interleaved(items: list[Json], stood: list[Any], order: list[Any], key: str) -> list[Json]:
    """Put what the patch names into the patch's order, the rest among it where the live object had it.

    Source: mergeSortedSlice of apimachinery's strategicpatch.
    """
    named = [entry.get(key) for entry in order]
    right = sorted((item for item in items if item.get(key) in named), key=lambda item: named.index(item.get(key)))
    left = [item for item in items if item.get(key) not in named]
    merged: list[Json] = []
    while left and right:
        first, second = left[0].get(key), right[0].get(key)
        both_stood = first in stood and second in stood
        merged.append((left if both_stood and stood.index(first) < stood.index(second) else right).pop(0))
    return merged + left + right


def _ordered(items: list[Any], order: list[Any], key: str | None) -> list[Any]:
    """Sort by the place in ``order``; what it does not name stays behind, in its own order."""
    wanted = [entry.get(key) if key and isinstance(entry, dict) else entry for entry in order]

    def place(item: Any) -> int:
        value = item.get(key) if key and isinstance(item, dict) else item
        return wanted.index(value) if value in wanted else len(wanted)

    return sorted(items, key=place)


def apply_owned(before: Json, wanted: Json, live: Json) -> Json:
    """Return ``live`` with ``wanted`` applied, and without what was in ``before`` and is not wanted any more."""
    merged = _strategic(_without(live, before, wanted, ""), wanted, "")
    if not isinstance(merged, dict):
        raise TypeError("the applied object is no object")
    return merged


def _without(live: Any, before: Any, wanted: Any, path: str) -> Any:
    if isinstance(before, dict) and isinstance(live, dict) and isinstance(wanted, dict):
        return {
            name: _without(value, before.get(name), wanted.get(name), f"{path}.{name}" if path else name)
            for name, value in live.items()
            if name not in before or name in wanted
        }
    key = _MERGE_KEYS.get(path)
    if key and all(isinstance(part, list) for part in (live, before, wanted)):
        gone = {item.get(key) for item in before} - {item.get(key) for item in wanted}
        return [item for item in live if item.get(key) not in gone]
    return live


def _json_patch(target: Any, steps: list[Json]) -> Any:
    for step in steps:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        operation = step["op"]
        if operation in {"move", "copy"}:
            source = [part.replace("~1", "/").replace("~0", "~") for part in step["from"].split("/")[1:]]
            value = copy.deepcopy(_reach(target, source))
            if operation == "move":
                _edit(target, source, "remove", None)
            target = _edit(target, parts, "add", value)
        elif operation == "test":
            if _reach(target, parts) != step.get("value"):
                raise ValueError(f"testing path {step['path']} failed")
        else:
            target = _edit(target, parts, operation, step.get("value"))
    return target


def _reach(target: Any, parts: list[str]) -> Any:
    for part in parts:
        target = target[int(part)] if isinstance(target, list) else target[part]
    return target


def _edit(target: Any, parts: list[str], operation: str, value: Any) -> Any:
    if not parts:
        return value
    parent, last = _reach(target, parts[:-1]), parts[-1]
    if isinstance(parent, list):
        at = len(parent) if last == "-" else int(last)
        if operation == "add":
            parent.insert(at, value)
        elif operation == "remove":
            del parent[at]
        else:
            parent[at] = value
    elif operation == "remove":
        del parent[last]
    elif operation == "replace" and last not in parent:
        raise KeyError(f"replace operation does not apply: doc is missing key: /{'/'.join(parts)}")
    else:
        parent[last] = value
    return target
