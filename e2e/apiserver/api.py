"""The API server's answers as a function: a request and a store in, a status, headers and bytes out.

It opens no socket and never waits: a request that must wait for a version, or that is a watch, is answered with a value
that says so, and the edge does the waiting.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import posixpath
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec

from e2e.apiserver import discovery, patches, resources, selectors, status
from e2e.apiserver.resources import Resource
from e2e.apiserver.selectors import Selector, SelectorError
from e2e.apiserver.store import Entry, Store, listed, shown
from e2e.apiserver.watching import WatchOptions

Json = dict[str, Any]

GZIP_FROM = 128 * 1024
MIN_REQUEST_TIMEOUT = 1800
_BODY_METHODS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_LIST_OLD = "The resourceVersion for the provided list is too old."
_CONTINUE_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def option(self, name: str) -> str:
        """Return the first value of a query parameter, or an empty string."""
        return (self.query.get(name) or [""])[0]

    def is_set(self, name: str) -> bool:
        """Tell whether a query parameter says yes."""
        return self.option(name).lower() in {"1", "true", "t"} or (name in self.query and self.option(name) == "")


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about, in the words of RBAC. ``resource`` is None for a path that is no served resource."""

    verb: str
    path: str
    resource: Resource | None = None
    resource_name: str = ""
    group: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class NeedsVersion:
    """Wait until the store has reached this version, then ask again; after the wait answer 504."""

    version: int


def parse_query(text: str) -> dict[str, list[str]]:
    """Return the parameters of a query string, empty ones included."""
    return parse_qs(text, keep_blank_values=True)


def target_of(request: Request) -> Target:
    """Work out what a request is about."""
    parts = [unquote(part) for part in request.path.strip("/").split("/")]
    method_verb = request.method.lower()
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return Target(method_verb, request.path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    verb = {
        "GET": "get" if name else "watch" if request.is_set("watch") else "list",
        "HEAD": "get" if name else "list",
        "DELETE": "delete" if name else "deletecollection",
        **_BODY_METHODS,
    }.get(request.method, method_verb)
    return Target(
        verb,
        request.path,
        resources.BY_PATH.get((group, version, rest[0])),
        rest[0],
        group,
        namespace,
        name,
        rest[2] if len(rest) > 2 else "",
    )


class Api:
    """Answers requests from one store. Any thread may call."""

    def __init__(self, store: Store, rng: random.Random | None = None) -> None:
        self.store = store
        self._rng = rng or random.Random()
        self._lists: dict[tuple[object, ...], tuple[int, bytes, int]] = {}
        self._zipped: tuple[bytes, bytes] = (b"", b"")

    def handle(self, request: Request, target: Target) -> Answer | WatchOptions | NeedsVersion:
        """Answer one request that is allowed. Raises ApiFailureError."""
        if target.resource is None or target.subresource not in {"", "status"}:
            found = discovery.answer(request.path) if request.method == "GET" else None
            if found is None:
                raise status.no_such_resource()
            return Answer(200, found[1], content_type=found[0])
        accepted = request.headers.get("accept", "*/*")
        if not any(kind in accepted for kind in ("json", "*/*", "application/*")):
            raise status.not_acceptable(accepted)
        resource = target.resource
        if target.verb == "list":
            return self._list(request, target, resource)
        if target.verb == "watch":
            return self._watch(request, target, resource)
        if target.verb == "get":
            return Answer(200, shown(resource, self._existing(resource, target)) + b"\n")
        if target.verb == "create" and not target.name:
            return self._create(request, target, resource)
        if target.verb == "update" and target.name:
            return self._update(request, target, resource)
        if target.verb == "patch" and target.name:
            return self._patch(request, target, resource)
        if target.verb == "delete":
            return self._delete(target, resource)
        if target.verb == "deletecollection":
            return self._delete_all(request, target, resource)
        raise status.method_not_allowed()

    def compressed(self, body: bytes) -> bytes:
        """Return ``body`` gzipped; the last one is remembered, since many clients ask for the same list."""
        if self._zipped[0] is not body:
            self._zipped = (body, gzip.compress(body, compresslevel=1))
        return self._zipped[1]

    # Reading

    def _selector(self, request: Request, target: Target, resource: Resource) -> Selector:
        try:
            labels = selectors.parse_labels(request.option("labelSelector"))
            fields = selectors.parse_fields(request.option("fieldSelector"), resource.convert_field)
        except SelectorError as fault:
            raise status.bad_request(str(fault)) from None
        if target.name:
            fields = (*fields, ("metadata.name", True, target.name))
        return Selector(labels, fields)

    def _list(self, request: Request, target: Target, resource: Resource) -> Answer | NeedsVersion:
        _check_list_options(request)
        selector = self._selector(request, target, resource)
        asked = _version(request.option("resourceVersion"), "resourceVersion")
        limit = _number(request.option("limit"))
        if request.option("continue"):
            if asked:
                raise status.bad_request("specifying resource version is not allowed when using continue")
            return self._page(target, resource, selector, limit, request.option("continue"))
        if asked is not None and asked > self.store.version:
            return NeedsVersion(asked)
        match = request.option("resourceVersionMatch")
        is_exact = bool(asked) and (match == "Exact" or (not match and limit > 0))
        if is_exact:
            try:
                version, entries = self.store.entries(resource, asked)
            except LookupError:
                raise status.expired(_LIST_OLD) from None
            return self._paged(target, resource, selector, limit, version, entries, "")
        if limit and asked is None:
            version, entries = self.store.entries(resource)
            return self._paged(target, resource, selector, limit, version, entries, "")
        return self._whole(target, resource, selector)

    def _whole(self, target: Target, resource: Resource, selector: Selector) -> Answer:
        """List everything that is meant, from encoded pieces that are kept until the resource changes."""
        with self.store.atomically():
            version, entries = self.store.entries(resource)
            last = self.store.last_version(resource)
        cached = (resource.api_version, resource.name, target.namespace, selector, version)
        kept = self._lists.get(cached)
        if kept is None or kept[0] != last:
            items = [listed(resource, entry) for entry in entries if _is_meant(entry, target.namespace, selector)]
            head = _list_head(resource, {"resourceVersion": str(version)})
            while len(self._lists) >= 8:
                self._lists.pop(next(iter(self._lists)))
            kept = self._lists[cached] = (last, head + b",".join(items) + b"]}\n", len(items))
        return Answer(200, kept[1])

    def _page(self, target: Target, resource: Resource, selector: Selector, limit: int, token: str) -> Answer:
        version, start = _decode_continue(token)
        try:
            at, entries = self.store.entries(resource, version if version > 0 else None)
        except LookupError:
            raise status.expired(_CONTINUE_OLD, _encode_continue(-1, start.removeprefix("/"))) from None
        return self._paged(target, resource, selector, limit, at, entries, start)

    def _paged(
        self,
        target: Target,
        resource: Resource,
        selector: Selector,
        limit: int,
        version: int,
        entries: list[Entry],
        start: str,
    ) -> Answer:
        meant = [entry for entry in entries if _key(entry) >= start and _is_meant(entry, target.namespace, selector)]
        meta: Json = {"resourceVersion": str(version)}
        page = meant[:limit] if limit else meant
        if len(page) < len(meant):
            meta["continue"] = _encode_continue(version, _key(page[-1]) + "\0")
            if not selector:
                meta["remainingItemCount"] = len(meant) - len(page)
        items = [listed(resource, entry) for entry in page]
        return Answer(200, _list_head(resource, meta) + b",".join(items) + b"]}\n")

    def _watch(self, request: Request, target: Target, resource: Resource) -> WatchOptions | NeedsVersion:
        _check_watch_options(request)
        selector = self._selector(request, target, resource)
        asked = _version(request.option("resourceVersion"), "resourceVersion")
        timeout = _number(request.option("timeoutSeconds"))
        initial = request.option("sendInitialEvents").lower()
        wants_initial = initial in {"true", "1"}
        since: int | None
        if wants_initial:
            if asked is not None and asked > self.store.version:
                return NeedsVersion(asked)
            since = None
        elif initial:
            since = asked or self.store.version
        else:
            since = asked or None
        return WatchOptions(
            resource,
            target.namespace,
            selector,
            since,
            wants_bookmarks=request.is_set("allowWatchBookmarks"),
            wants_end_of_initial=wants_initial,
            timeout=float(timeout or MIN_REQUEST_TIMEOUT * (1 + self._rng.random())),
        )

    def _existing(self, resource: Resource, target: Target) -> Entry:
        entry = self.store.get(resource, target.namespace if resource.namespaced else "", target.name)
        if entry is None:
            raise status.not_found(resource.name, resource.group, target.name)
        return entry

    # Writing

    def _create(self, request: Request, target: Target, resource: Resource) -> Answer:
        obj = _decode_body(request, resource)
        meta = obj.setdefault("metadata", {})
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + "".join(self._rng.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
        if not meta.get("name"):
            raise status.ApiFailureError(
                422,
                "Invalid",
                f'{resource.kind} "" is invalid: metadata.name: Required value: name or generateName is required',
                details={"kind": resource.kind},
            )
        _settle_namespace(meta, target, resource)
        with self.store.atomically():
            if self.store.get(resource, meta.get("namespace", ""), meta["name"]) is not None:
                raise status.already_exists(resource.name, resource.group, meta["name"])
            entry = self._write(resource, obj)
        return Answer(201, shown(resource, entry) + b"\n")

    def _update(self, request: Request, target: Target, resource: Resource) -> Answer:
        obj = _decode_body(request, resource)
        meta = obj.setdefault("metadata", {})
        _settle_namespace(meta, target, resource)
        with self.store.atomically():
            before = self._existing(resource, target)
            if meta.get("name") != target.name:
                raise status.bad_request(
                    f"the name of the object ({meta.get('name', '')}) does not match the name on the URL ({target.name})"
                )
            return Answer(200, shown(resource, self._replace(resource, before, obj)) + b"\n")

    def _patch(self, request: Request, target: Target, resource: Resource) -> Answer:
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if kind not in patches.KINDS:
            raise status.unsupported_media_type(list(patches.KINDS))
        with self.store.atomically():
            before = self.store.get(resource, target.namespace if resource.namespaced else "", target.name)
            if before is None and kind == patches.APPLY:
                obj = {"metadata": {"name": target.name}}
                obj = patches.apply(kind, request.body, obj)
                _settle_namespace(obj["metadata"], target, resource)
                return Answer(201, shown(resource, self._write(resource, obj)) + b"\n")
            before = before or self._existing(resource, target)
            try:
                obj = patches.apply(kind, request.body, resource.shown(before.value()))
            except (ValueError, KeyError, TypeError, IndexError) as fault:
                raise status.bad_request(f"error decoding patch: {fault}") from None
            return Answer(200, shown(resource, self._replace(resource, before, obj)) + b"\n")

    def _delete(self, target: Target, resource: Resource) -> Answer:
        with self.store.atomically():
            before = self._existing(resource, target)
            gone = self.store.delete(resource, before.namespace, before.name)
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

    def _delete_all(self, request: Request, target: Target, resource: Resource) -> Answer:
        selector = self._selector(request, target, resource)
        with self.store.atomically():
            version, entries = self.store.entries(resource)
            meant = [entry for entry in entries if _is_meant(entry, target.namespace, selector)]
            for entry in meant:
                self.store.delete(resource, entry.namespace, entry.name)
        head = _list_head(resource, {"resourceVersion": str(version)})
        return Answer(200, head + b",".join(listed(resource, entry) for entry in meant) + b"]}\n")

    def _empty_namespace(self, namespace: str) -> None:
        for resource in resources.RESOURCES:
            if resource.namespaced:
                for entry in list(self.store.entries(resource)[1]):
                    if entry.namespace == namespace:
                        self.store.delete(resource, entry.namespace, entry.name)

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
                f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {old['metadata']['uid']}",
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
        return self.store.put(full, resource=resource)

    def _write(self, resource: Resource, obj: Json) -> Entry:
        meta = obj["metadata"]
        for key in ("uid", "creationTimestamp", "resourceVersion", "generation", "managedFields"):
            meta.pop(key, None)
        return self.store.put(self._defaulted(resource, obj), resource=resource)

    def _defaulted(self, resource: Resource, obj: Json) -> Json:
        return resources.defaulted(resource, obj, self._free_address, self._free_node_port)

    def _free_address(self) -> str:
        services = resources.find("services")
        taken = {entry.fields["spec.clusterIP"] for entry in self.store.entries(services)[1]}
        while True:
            address = f"10.{self._rng.randrange(96, 112)}.{self._rng.randrange(256)}.{self._rng.randrange(2, 255)}"
            if address not in taken:
                return address

    def _free_node_port(self) -> int:
        services = resources.find("services")
        taken = set()
        for entry in self.store.entries(services)[1]:
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


def _is_meant(entry: Entry, namespace: str, selector: Selector) -> bool:
    return (not namespace or entry.namespace == namespace) and (
        not selector or selector.matches(entry.labels, entry.fields)
    )


def _key(entry: Entry) -> str:
    """Return the key as continue tokens carry it."""
    return f"/{entry.namespace}/{entry.name}" if entry.namespace else f"/{entry.name}"


def _list_head(resource: Resource, meta: Json) -> bytes:
    head = f'{{"kind":"{resource.kind}List","apiVersion":"{resource.api_version}","metadata":'.encode()
    return head + msgspec.json.encode(meta) + b',"items":['


def _encode_continue(version: int, start: str) -> str:
    token = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(token.encode()).rstrip(b"=").decode()


def _decode_continue(token: str) -> tuple[int, str]:
    """Return (version, first key). Raises ApiFailureError with the words of Go's decoder where they are known."""
    prefix = "invalid continue token: continue key is not valid"
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise status.bad_request(f"{prefix}: illegal base64 data at input byte {len(token) - 1}") from None
    try:
        value = json.loads(raw)
        version, start = int(value["rv"]), str(value["start"])
    except (ValueError, KeyError, TypeError):
        first = chr(raw[0]) if raw else ""
        raise status.bad_request(f"{prefix}: invalid character '{first}' looking for beginning of value") from None
    if value.get("v") != "meta.k8s.io/v1":
        raise status.bad_request(f"{prefix}: server does not recognize this encoded version {value.get('v')}")
    if version == 0:
        raise status.bad_request(f"{prefix}: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    if not start:
        raise status.bad_request(f"{prefix}: encoded start key empty (version meta.k8s.io/v1)")
    rooted = start if start.startswith("/") else "/" + start
    if posixpath.normpath(rooted) != rooted:
        raise status.bad_request(f"{prefix}: {start}")
    return version, rooted


def _version(text: str, name: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise status.bad_request(
            f'invalid resource version: {name}: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


_FORBIDDEN = "FieldValueForbidden"


def _check_list_options(request: Request) -> None:
    match = request.option("resourceVersionMatch")
    faults = []
    if match:
        if not request.option("resourceVersion"):
            faults.append("Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided")
        if request.option("continue"):
            faults.append("Forbidden: resourceVersionMatch is forbidden when continue is provided")
        if match not in {"Exact", "NotOlderThan"}:
            faults.append(f'Unsupported value: "{match}": supported values: "", "Exact", "NotOlderThan"')
        if match == "Exact" and request.option("resourceVersion") == "0":
            faults.append('Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    found = [("resourceVersionMatch", _reason(fault), fault) for fault in faults]
    if request.option("sendInitialEvents"):
        found.append(("sendInitialEvents", _FORBIDDEN, "Forbidden: sendInitialEvents is forbidden for list"))
    if found:
        raise status.invalid_options("ListOptions", "meta.k8s.io", found)


def _check_watch_options(request: Request) -> None:
    match = request.option("resourceVersionMatch")
    sends_initial = bool(request.option("sendInitialEvents"))
    faults = []
    if sends_initial and match != "NotOlderThan":
        faults.append("Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    if match and not sends_initial:
        faults.append("Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    if match and match != "NotOlderThan":
        faults.append(f'Unsupported value: "{match}": supported values: "NotOlderThan"')
    if match and request.option("continue"):
        faults.append("Forbidden: resourceVersionMatch is forbidden when continue is provided")
    if faults:
        raise status.invalid_options(
            "ListOptions", "meta.k8s.io", [("resourceVersionMatch", _reason(fault), fault) for fault in faults]
        )


def _reason(fault: str) -> str:
    return _FORBIDDEN if fault.startswith("Forbidden") else "FieldValueNotSupported"


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
    if kind not in {"application/json", "application/yaml"}:
        raise status.unsupported_media_type(["application/json", "application/yaml"])
    try:
        obj = patches.decode(request.body, is_yaml=kind == "application/yaml")
    except ValueError as fault:
        raise status.bad_request(f"couldn't get version/kind; json parse error: {fault}") from None
    if not isinstance(obj, dict) or obj.get("kind", resource.kind) != resource.kind:
        raise status.bad_request(f"the object provided is unrecognized (must be of type {resource.kind})")
    return obj
