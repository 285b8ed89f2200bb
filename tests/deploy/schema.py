"""Check an object against schema.json: the types of a real 1.36.2 server (its /openapi/v2), without their texts.

``python -m tests.deploy.schema`` records it anew from the server that KUBEBUILDER_ASSETS names.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]
FILE = Path(__file__).parent / "schema.json"
ROOTS = {
    "v1/ServiceAccount": "io.k8s.api.core.v1.ServiceAccount",
    "v1/ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "apps/v1/DaemonSet": "io.k8s.api.apps.v1.DaemonSet",
    "rbac.authorization.k8s.io/v1/ClusterRoleBinding": "io.k8s.api.rbac.v1.ClusterRoleBinding",
}
_TYPES = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "object": dict, "array": list}
_QUANTITY = re.compile(r"^\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")
_PARTIAL = {"selector", "containers"}
"""Required fields that an object for server-side apply on an existing one may leave out."""


def faults(obj: Json, *, partial: bool = False) -> list[str]:
    """Return what is wrong, one line each, named by path. ``partial``: an object that changes one that is there."""
    schema = json.loads(FILE.read_text())
    kind = f"{obj.get('apiVersion')}/{obj.get('kind')}"
    if kind not in schema["roots"]:
        return [f"{kind}: no such type in the schema"]
    checker = _Checker(schema["definitions"], partial=partial)
    checker.check(obj, {"ref": schema["roots"][kind]}, kind)
    return checker.found


class _Checker:
    def __init__(self, definitions: Json, *, partial: bool) -> None:
        self._definitions = definitions
        self._partial = partial
        self.found: list[str] = []

    def check(self, value: Any, schema: Json, path: str) -> None:
        name = schema.get("ref", "")
        if name:
            schema = self._definitions[name]
        if name.endswith("Quantity") and not (isinstance(value, str) and _QUANTITY.match(value)):
            self.found.append(f"{path}: {value!r} is no quantity")
        if schema.get("format") == "int-or-string":
            if isinstance(value, bool) or not isinstance(value, int | str):
                self.found.append(f"{path}: {value!r} is no integer or string")
            return
        wanted = schema.get("type")
        if wanted and (not isinstance(value, _TYPES[wanted]) or (wanted != "boolean" and isinstance(value, bool))):
            self.found.append(f"{path}: {value!r} must be of type {wanted}")
            return
        if isinstance(value, list):
            for number, item in enumerate(value):
                self.check(item, schema.get("items", {}), f"{path}[{number}]")
        elif isinstance(value, dict):
            self._check_fields(value, schema, path)

    def _check_fields(self, value: Json, schema: Json, path: str) -> None:
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key, item in value.items():
            if key in properties:
                self.check(item, properties[key], f"{path}.{key}")
            elif isinstance(others, dict):
                self.check(item, others, f"{path}.{key}")
            elif properties:
                self.found.append(f"{path}.{key}: no such field")
        for key in schema.get("required", ()):
            if key not in value and not (self._partial and key in _PARTIAL):
                self.found.append(f"{path}.{key}: missing")


def record(definitions: Json) -> Json:
    """Return the schema of ROOTS and all that they are made of."""

    def short(name: str) -> str:
        return name.rpartition("/")[2].removeprefix("io.k8s.api.").removeprefix("io.k8s.apimachinery.pkg.")

    def strip(schema: Json) -> Json:
        kept: Json = {}
        for key, value in schema.items():
            if key == "$ref":
                kept["ref"] = short(value)
                waiting.append(value.rpartition("/")[2])
            elif key in ("type", "format", "required"):
                kept[key] = value
            elif key == "properties":
                kept[key] = {name: strip(inner) for name, inner in value.items()}
            elif key in ("items", "additionalProperties"):
                kept[key] = strip(value) if isinstance(value, dict) else value
        return kept

    found: Json = {}
    waiting = list(ROOTS.values())
    while waiting:
        name = waiting.pop()
        if short(name) not in found:
            found[short(name)] = {}
            found[short(name)] = strip(definitions[name])
    roots = {kind: short(name) for kind, name in ROOTS.items()}
    return {"roots": roots, "definitions": dict(sorted(found.items()))}


def main() -> int:
    """Record."""
    from e2e.lab import binaries  # noqa: PLC0415
    from e2e.lab.controlplane import ControlPlane, Here  # noqa: PLC0415

    programs, missing = binaries.control_plane(os.environ, "etcd", "kube-apiserver")
    if missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    with ControlPlane(programs, Here(), ports=(16443, 12379, 12380)) as control:
        made = record(json.loads(control.api.raw("/openapi/v2"))["definitions"])
    FILE.write_text(json.dumps(made, separators=(",", ":")) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
