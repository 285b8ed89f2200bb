"""What was recorded of a real kube-apiserver, and the history of objects that the recordings imply."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]

FOLDER = Path(__file__).parent / "wire"

# The version of the whole cluster when a recording was made, where its answer does not say so itself.
FIRST_STATE = 232
AFTER_CHANGES = 241
AFTER_RESTART = 1017

# A field that the recordings leave out and that counts for the size of an answer, and so for how it is sent.
MANAGED_FIELDS = [
    {
        "manager": "recorder",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-11-30T12:47:27Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:spec": {
                "f:clusterIP": {},
                "f:internalTrafficPolicy": {},
                "f:ports": {".": {}, 'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}, "f:targetPort": {}}},
                "f:sessionAffinity": {},
                "f:type": {},
            }
        },
    }
]


@dataclass(frozen=True)
class Recording:
    name: str
    about: str
    method: str
    path: str
    token: str
    accept: dict[str, str]
    status: int
    headers: dict[str, str]
    body: Any

    @property
    def is_watch(self) -> bool:
        return isinstance(self.body, dict) and "lines" in self.body

    @property
    def number(self) -> int:
        return int(self.name[:2])


@dataclass(frozen=True)
class Step:
    """One change of history; ``obj`` is None for a deletion, of the service ``name``."""

    version: int
    name: str
    obj: Json | None


def load() -> list[Recording]:
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        raw = json.loads(path.read_text())
        asked = raw["request"]
        found.append(
            Recording(
                path.stem,
                raw["about"],
                asked["method"],
                asked["path"],
                asked["token"],
                asked["headers"],
                raw["status"],
                raw["headers"],
                raw["body"],
            )
        )
    return found


def get(number: int) -> Recording:
    return next(each for each in load() if each.number == number)


def history() -> list[Step]:
    """Every change that the recordings show, in order of versions."""
    steps = {step.version: step for step in _service_changes()}
    for item in get(3).body["items"]:
        obj = {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", **item}
        steps.setdefault(_version(item), Step(_version(item), item["metadata"]["name"], obj))
    hidden = copy.deepcopy(steps[208].obj)
    assert hidden is not None
    meta = {"name": "headless-a", "namespace": "default", "labels": {"service.kubernetes.io/headless": ""}}
    steps[228] = Step(228, "headless-a", {**hidden, "metadata": meta})
    node = get(18).body
    steps[_version(node)] = Step(_version(node), node["metadata"]["name"], node)
    for item in get(34).body["items"]:
        obj = {"kind": "Service", "apiVersion": "v1", **item}
        steps.setdefault(_version(item), Step(_version(item), item["metadata"]["name"], obj))
    return [_with_managed_fields(steps[version]) for version in sorted(steps)]


def _service_changes() -> Iterator[Step]:
    for line in get(28).body["lines"]:
        obj = line["line"]["object"]
        deleted = line["line"]["type"] == "DELETED"
        yield Step(_version(obj), obj["metadata"]["name"], None if deleted else obj)


def _with_managed_fields(step: Step) -> Step:
    if step.obj is None:
        return step
    meta = {**step.obj["metadata"], "managedFields": MANAGED_FIELDS}
    return Step(step.version, step.name, {**step.obj, "metadata": meta})


def _version(obj: Json) -> int:
    return int(obj["metadata"]["resourceVersion"])
