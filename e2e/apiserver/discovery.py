"""The documents by which clients find out what is served: enough for kubectl and client-go, nothing more."""

from __future__ import annotations

from typing import Any

import msgspec

from e2e.apiserver.resources import RESOURCES

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


def _groups() -> list[dict[str, Any]]:
    groups: dict[str, list[dict[str, str]]] = {}
    for each in RESOURCES:
        if each.group:
            version = {"groupVersion": each.api_version, "version": each.version}
            known = groups.setdefault(each.group, [])
            if version not in known:
                known.append(version)
    return [{"name": name, "versions": versions, "preferredVersion": versions[0]} for name, versions in groups.items()]


def _resource_list(api_version: str) -> dict[str, Any] | None:
    found = []
    for each in RESOURCES:
        if each.api_version == api_version:
            entry: dict[str, Any] = {
                "name": each.name,
                "singularName": each.singular,
                "namespaced": each.namespaced,
                "kind": each.kind,
                "verbs": _VERBS,
            }
            if each.short_names:
                entry["shortNames"] = list(each.short_names)
            found.append(entry)
            if "status" in each.empty:
                shared = {"name": f"{each.name}/status", "singularName": "", "namespaced": each.namespaced}
                found.append({**shared, "kind": each.kind, "verbs": ["get", "patch", "update"]})
    if not found:
        return None
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": found}


def _group(name: str) -> dict[str, Any] | None:
    found = next((each for each in _groups() if each["name"] == name), None)
    return None if found is None else {"kind": "APIGroup", "apiVersion": "v1", **found}


def _document(path: str) -> dict[str, Any] | None:
    fixed: dict[str, dict[str, Any]] = {
        "/version": _VERSION,
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups()},
        "/openapi/v3": {"paths": {}},
    }
    if path in fixed:
        return fixed[path]
    match path.strip("/").split("/"):
        case ["api", version]:
            return _resource_list(version)
        case ["apis", group]:
            return _group(group)
        case ["apis", group, version]:
            return _resource_list(f"{group}/{version}")
    return None


def answer(path: str) -> tuple[str, bytes] | None:
    """Return (content type, body) for a path that is not about objects; None where there is none."""
    path = path.rstrip("/") or "/"
    if path in {"/healthz", "/livez", "/readyz"}:
        return TEXT, b"ok"
    document = _document(path)
    return None if document is None else (_JSON, msgspec.json.encode(document) + b"\n")


def is_served(path: str) -> bool:
    """Tell whether a path lies in a group and version that are served: what is missing there is told as a Status."""
    prefixes = [f"/apis/{each.api_version}/" if each.group else f"/api/{each.version}/" for each in RESOURCES]
    return path.startswith(tuple(prefixes))
