"""Creates, updates, patches and deletes, with the defaults and refusals of a real server. Never waits."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from e2e.apiserver import patches, protobuf, resources, status
from e2e.apiserver.reading import Reader, is_meant, list_head
from e2e.apiserver.requests import Answer, Request, Target
from e2e.apiserver.resources import Resource
from e2e.apiserver.store import Entry, Store, listed, shown

Json = dict[str, Any]

_MEDIA_TYPES = ["application/json", "application/yaml", protobuf.CONTENT_TYPE]


class Writer:
    """Answers what changes something."""

    def __init__(self, store: Store, reader: Reader, rng: random.Random) -> None:
        self._store = store
        self._reader = reader
        self._rng = rng
        self._applied: dict[tuple[str, str, str, str], Json] = {}

    def create(self, request: Request, target: Target, resource: Resource) -> Answer:
        """Create an object; 409 if there is one of that name. Raises ApiFailureError."""
        obj = _decode_body(request, resource)
        meta = obj.setdefault("metadata", {})
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + "".join(self._rng.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
        if not meta.get("name"):
            raise status.name_required(resource.kind, resource.group)
        _settle_namespace(meta, target, resource)
        with self._store.atomically():
            if self._store.get(resource, meta.get("namespace", ""), meta["name"]) is not None:
                raise status.already_exists(resource.name, resource.group, meta["name"])
            entry = self._write(resource, obj)
        return Answer(201, shown(resource, entry) + b"\n")

    def update(self, request: Request, target: Target, resource: Resource) -> Answer:
        """Replace an object; 409 for an old version. Raises ApiFailureError."""
        obj = _decode_body(request, resource)
        meta = obj.setdefault("metadata", {})
        _settle_namespace(meta, target, resource)
        with self._store.atomically():
            before = self._reader.existing(resource, target)
            if meta.get("name") != target.name:
                given = meta.get("name", "")
                raise status.bad_request(
                    f"the name of the object ({given}) does not match the name on the URL ({target.name})"
                )
            return Answer(200, shown(resource, self._replace(resource, before, obj)) + b"\n")

    def patch(self, request: Request, target: Target, resource: Resource) -> Answer:
        """Patch an object; server-side apply may create it. Raises ApiFailureError."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if kind not in patches.KINDS:
            raise status.unsupported_patch()
        with self._store.atomically():
            before = self._store.get(resource, target.namespace if resource.namespaced else "", target.name)
            if kind == patches.APPLY:
                return self._apply(request, target, resource, before)
            before = before or self._reader.existing(resource, target)
            obj = _patched(kind, request.body, resource.shown(before.value()))
            return Answer(200, shown(resource, self._replace(resource, before, obj)) + b"\n")

    def _apply(self, request: Request, target: Target, resource: Resource, before: Entry | None) -> Answer:
        """Apply on the server's side: what the same manager applied before and leaves out now goes."""
        key = (resource.name, target.namespace, target.name, request.option("fieldManager"))
        try:
            wanted = patches.decode(request.body, is_yaml=True)
        except ValueError as fault:
            raise status.bad_request(f"error decoding YAML: {fault}") from None
        live = {"metadata": {"name": target.name}} if before is None else resource.shown(before.value())
        obj = patches.apply_owned(self._applied.get(key, {}), wanted, live)
        self._applied[key] = wanted
        if before is not None:
            return Answer(200, shown(resource, self._replace(resource, before, obj)) + b"\n")
        _settle_namespace(obj["metadata"], target, resource)
        return Answer(201, shown(resource, self._write(resource, obj)) + b"\n")

    def delete(self, _request: Request, target: Target, resource: Resource) -> Answer:
        """Delete one object. Raises ApiFailureError."""
        with self._store.atomically():
            before = self._reader.existing(resource, target)
            gone = self._store.delete(resource, before.namespace, before.name)
        if resource.name == "namespaces":
            self._empty_namespace(target.name)
        if resource.returns_deleted and gone is not None:
            return Answer(200, shown(resource, before) + b"\n")
        details: Json = {"name": before.name}
        if resource.group:
            details["group"] = resource.group
        details |= {"kind": resource.name, "uid": before.value()["metadata"]["uid"]}
        success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return Answer(200, msgspec.json.encode(success) + b"\n")

    def delete_all(self, request: Request, target: Target, resource: Resource) -> Answer:
        """Delete everything that is selected. Raises ApiFailureError."""
        selector = self._reader.selector(request, target, resource)
        with self._store.atomically():
            version, entries = self._store.entries(resource)
            meant = [entry for entry in entries if is_meant(entry, target.namespace, selector)]
            for entry in meant:
                self._store.delete(resource, entry.namespace, entry.name)
        head = list_head(resource, {"resourceVersion": str(version)})
        return Answer(200, head + b",".join(listed(resource, entry) for entry in meant) + b"]}\n")

    def _empty_namespace(self, namespace: str) -> None:
        for resource in resources.RESOURCES:
            if resource.namespaced:
                for entry in list(self._store.entries(resource)[1]):
                    if entry.namespace == namespace:
                        self._store.delete(resource, entry.namespace, entry.name)

    def _replace(self, resource: Resource, before: Entry, obj: Json) -> Entry:
        """Write a new state of an object: nothing happens where nothing differs, and an old version is refused."""
        meta = obj["metadata"]
        if meta.get("resourceVersion") not in {None, "", str(before.version)}:
            raise status.conflict(resource.name, resource.group, before.name)
        old = before.value()
        if meta.get("uid") not in {None, "", old["metadata"]["uid"]}:
            raise status.conflict(
                resource.name,
                resource.group,
                before.name,
                f"Precondition failed: UID in precondition: {meta['uid']}, "
                f"UID in object meta: {old['metadata']['uid']}",
            )
        for key in ("uid", "creationTimestamp", "resourceVersion", "generation", "namespace"):
            if key in old["metadata"]:
                meta[key] = old["metadata"][key]
        if resource.name == "services":
            spec, had = obj.setdefault("spec", {}), old.get("spec", {})
            if spec.get("type", "ClusterIP") != "ExternalName" and not spec.get("clusterIP") and had.get("clusterIP"):
                spec["clusterIP"] = had["clusterIP"]
            if "clusterIPs" not in spec and had.get("clusterIP") == spec.get("clusterIP") and "clusterIPs" in had:
                spec["clusterIPs"] = had["clusterIPs"]
        if "status" in old:
            obj.setdefault("status", old["status"])
        full = self._defaulted(resource, obj)
        if _comparable(resource, full) == _comparable(resource, resource.shown(old)):
            return before
        return self._store.put(full, resource=resource)

    def _write(self, resource: Resource, obj: Json) -> Entry:
        meta = obj["metadata"]
        for key in ("uid", "creationTimestamp", "resourceVersion", "generation", "managedFields"):
            meta.pop(key, None)
        return self._store.put(self._defaulted(resource, obj), resource=resource)

    def _defaulted(self, resource: Resource, obj: Json) -> Json:
        return resources.defaulted(resource, obj, self._free_address, self._free_node_port)

    def _free_address(self) -> str:
        services = resources.find("services")
        taken = {entry.fields["spec.clusterIP"] for entry in self._store.entries(services)[1]}
        while True:
            address = f"10.{self._rng.randrange(96, 112)}.{self._rng.randrange(256)}.{self._rng.randrange(2, 255)}"
            if address not in taken:
                return address

    def _free_node_port(self) -> int:
        services = resources.find("services")
        taken = set()
        for entry in self._store.entries(services)[1]:
            if b'"nodePort"' in entry.body or b'"healthCheckNodePort"' in entry.body:
                spec = entry.value()["spec"]
                taken |= {port.get("nodePort") for port in spec.get("ports") or []} | {spec.get("healthCheckNodePort")}
        while True:
            port = self._rng.randrange(30000, 32768)
            if port not in taken:
                return port


def _comparable(resource: Resource, obj: Json) -> Json:
    obj = resources.normalised(resource, dict(obj))
    meta = {key: part for key, part in obj["metadata"].items() if part not in (None, {}, []) and key != "managedFields"}
    return {**{key: part for key, part in obj.items() if key not in {"kind", "apiVersion"}}, "metadata": meta}


def _settle_namespace(meta: Json, target: Target, resource: Resource) -> None:
    if not resource.namespaced:
        meta.pop("namespace", None)
        return
    given = meta.get("namespace") or target.namespace
    if target.namespace and given != target.namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    meta["namespace"] = given or "default"


def _decode_body(request: Request, resource: Resource) -> Json:
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip()
    if kind not in _MEDIA_TYPES:
        raise status.unsupported_media_type(_MEDIA_TYPES)
    try:
        obj: Any
        if kind == protobuf.CONTENT_TYPE:
            obj = protobuf.decode(request.body)
        else:
            obj = patches.decode(request.body, is_yaml=kind == "application/yaml")
    except ValueError as fault:
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): "
            f"couldn't get version/kind; json parse error: {fault}"
        ) from None
    if not isinstance(obj, dict):
        raise status.bad_request(f"the object provided is unrecognized (must be of type {resource.kind})")
    kind = obj.get("kind") or resource.kind
    if kind != resource.kind:
        version = str(obj.get("apiVersion", "")).rpartition("/")[2]
        internal = resource.group.partition(".")[0] or "core"
        raise status.bad_request(
            f'{kind} in version "{version}" cannot be handled as a {resource.kind}: '
            f"converting ({version}.{kind}) to ({internal}.{resource.kind}): unknown conversion"
        )
    return obj


def _patched(kind: str, body: bytes, obj: Json) -> Json:
    """Return ``obj`` patched. Raises ApiFailureError."""
    try:
        return patches.apply(kind, body, obj)
    except (ValueError, KeyError, TypeError, IndexError) as fault:
        if kind == patches.JSON_PATCH:
            raise status.rejected_patch() from None
        raise status.bad_request(f"error decoding patch: {fault}") from None
