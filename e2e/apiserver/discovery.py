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
_TEXT = "text/plain; charset=utf-8"


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


def _document(path: str) -> dict[str, Any] | None:
    parts = path.strip("/").split("/")
    if path == "/version":
        return dict(_VERSION)
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups()}
    if path == "/openapi/v3":
        return {"paths": {}}
    if parts[0] == "api" and len(parts) == 2:
        return _resource_list(parts[1])
    if parts[0] == "apis" and len(parts) == 2:
        group = next((each for each in _groups() if each["name"] == parts[1]), None)
        return None if group is None else {"kind": "APIGroup", "apiVersion": "v1", **group}
    if parts[0] == "apis" and len(parts) == 3:
        return _resource_list("/".join(parts[1:]))
    return None


def answer(path: str) -> tuple[str, bytes] | None:
    """Return (content type, body) for a path that is not about objects; None where there is none."""
    path = path.rstrip("/") or "/"
    if path in {"/healthz", "/livez", "/readyz"}:
        return _TEXT, b"ok"
    document = _document(path)
    return None if document is None else (_JSON, msgspec.json.encode(document) + b"\n")
