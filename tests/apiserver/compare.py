"""Bring a recorded answer and a given one into a form in which they must be equal."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

_UNKNOWABLE_HEADERS = {"Audit-Id", "Date", "Content-Length"}
_UNKNOWABLE_META = {"managedFields"}
_SERVER_MADE_META = {"uid", "creationTimestamp", "resourceVersion"}


def headers(given: dict[str, str]) -> dict[str, str]:
    """The headers that mean something."""
    return {
        name: value
        for name, value in given.items()
        if name not in _UNKNOWABLE_HEADERS and not name.startswith("X-Kubernetes-Pf-")
    }


def body(value: Any) -> Any:
    """A body or line without what a recording leaves out; versions, uids and times count."""
    return _strip(value, _UNKNOWABLE_META)


def loosely(value: Any) -> Any:
    """The same for another cluster: versions, uids and times do not count, numbers in messages neither."""
    value = _strip(value, _UNKNOWABLE_META | _SERVER_MADE_META)
    if isinstance(value, dict):
        _loosen_lists(value)
        _loosen_table(value)
        if "message" in value:
            value["message"] = re.sub(
                r"((?<=json parse error: )|(?<=error decoding patch: )).*", "as Go says it", value["message"]
            )
            value["message"] = re.sub(r"\b\d+\b", "N", value["message"])
        if isinstance(value.get("details"), dict):
            value["details"].pop("uid", None)
        if "object" in value:
            value["object"] = loosely(value["object"])
        token = value.get("metadata", {}).get("continue") if isinstance(value.get("metadata"), dict) else None
        if token:
            decoded = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            value["metadata"]["continue"] = {"start": decoded["start"], "is inconsistent": decoded["rv"] == -1}
    return value


def _loosen_lists(value: dict[str, Any]) -> None:
    for item in [value, *(value.get("items") or [])]:
        if item.get("metadata", {}).get("name") == "kubernetes":
            for port in item["spec"]["ports"]:
                port["targetPort"] = "of the server"


def _loosen_table(value: dict[str, Any]) -> None:
    """How long ago something was does not count, nor do the texts that explain columns."""
    for column in value.get("columnDefinitions") or []:
        column.pop("description", None)
    for row in value.get("rows") or []:
        row["cells"] = ["some time" if re.fullmatch(r"(\d+[smhdy])+", str(cell)) else cell for cell in row["cells"]]


def _strip(value: Any, names: set[str]) -> Any:
    if isinstance(value, dict):
        return {
            key: {name: _strip(item, names) for name, item in part.items() if name not in names}
            if key == "metadata" and isinstance(part, dict)
            else _strip(part, names)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [_strip(item, names) for item in value]
    return value
