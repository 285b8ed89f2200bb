"""Lists, pages, gets, and the options of a watch, with a real server's rules about versions and continue tokens.

Source of behaviour: recordings of kube-apiserver 1.36.2; of messages also k8s.io/apiserver, pkg/storage. Never waits.
"""

from __future__ import annotations

import base64
import binascii
import json
import posixpath
import random
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from e2e.apiserver import selectors, status
from e2e.apiserver.requests import Answer, NeedsVersion, Request, Target
from e2e.apiserver.resources import Resource
from e2e.apiserver.selectors import Selector, SelectorError
from e2e.apiserver.store import Entry, Store, listed, shown
from e2e.apiserver.watching import WatchOptions

Json = dict[str, Any]

MIN_REQUEST_TIMEOUT = 1800
_LIST_OLD = "The resourceVersion for the provided list is too old."
_CONTINUE_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class _Scope:
    """What a list is about. ``limit`` 0: everything."""

    resource: Resource
    namespace: str
    selector: Selector
    limit: int

    @property
    def prefix(self) -> str:
        """What continue tokens leave out of a key: they are relative to what is listed."""
        return f"/{self.namespace}" if self.namespace else ""

    def is_meant(self, entry: Entry) -> bool:
        return is_meant(entry, self.namespace, self.selector)


class Reader:
    """Answers what changes nothing."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        self._store = store
        self._rng = rng
        self._lists: dict[tuple[object, ...], tuple[int, bytes]] = {}

    def selector(self, request: Request, target: Target, resource: Resource) -> Selector:
        """Return what a request selects. Raises ApiFailureError (400)."""
        try:
            labels = selectors.parse_labels(request.option("labelSelector"))
            fields = selectors.parse_fields(request.option("fieldSelector"), resource.convert_field)
        except SelectorError as fault:
            raise status.bad_request(str(fault)) from None
        if target.name:
            fields = (*fields, ("metadata.name", True, target.name))
        return Selector(labels, fields)

    def list(self, request: Request, target: Target, resource: Resource) -> Answer | NeedsVersion:
        """Answer a list: whole, a page, or of an old version. Raises ApiFailureError."""
        _check_list_options(request)
        selector = self.selector(request, target, resource)
        scope = _Scope(resource, target.namespace, selector, _number(request.option("limit")))
        asked = _version(request.option("resourceVersion"), "resourceVersion")
        if request.option("continue"):
            if asked:
                raise status.bad_request("specifying resource version is not allowed when using continue")
            return self._next_page(scope, request.option("continue"))
        if asked is not None and asked > self._store.version:
            return NeedsVersion(asked)
        match = request.option("resourceVersionMatch")
        if asked and (match == "Exact" or (not match and scope.limit > 0)):
            try:
                version, entries = self._store.entries(resource, asked)
            except LookupError:
                raise status.expired(_LIST_OLD) from None
            return _page(scope, version, entries)
        if scope.limit and asked is None:
            return _page(scope, *self._store.entries(resource))
        return self._whole(scope)

    def _whole(self, scope: _Scope) -> Answer:
        """List everything that is meant, from an answer that is kept until something changes."""
        resource = scope.resource
        with self._store.atomically():
            version, entries = self._store.entries(resource)
        key = (resource.api_version, resource.name, scope.namespace, scope.selector)
        kept = self._lists.get(key)
        if kept is None or kept[0] != version:
            items = [listed(resource, entry) for entry in entries if scope.is_meant(entry)]
            body = list_head(resource, {"resourceVersion": str(version)}) + b",".join(items) + b"]}\n"
            kept = self._lists[key] = (version, body)
            if len(self._lists) > 8:
                self._lists.pop(next(iter(self._lists)))
        return Answer(200, kept[1])

    def _next_page(self, scope: _Scope, token: str) -> Answer:
        version, start = _decode_continue(token)
        try:
            at, entries = self._store.entries(scope.resource, version if version > 0 else None)
        except LookupError:
            raise status.expired(_CONTINUE_OLD, _encode_continue(-1, start.removeprefix("/"))) from None
        return _page(scope, at, entries, scope.prefix + start)

    def watch(self, request: Request, target: Target, resource: Resource) -> WatchOptions | NeedsVersion:
        """Return what a watch asks for. Raises ApiFailureError."""
        _check_watch_options(request)
        selector = self.selector(request, target, resource)
        given = request.option("resourceVersion")
        if given and not given.isdecimal():
            raise status.bad_watch_version(given)
        asked = _version(given, "resourceVersion")
        timeout = _number(request.option("timeoutSeconds"))
        initial = request.option("sendInitialEvents").lower()
        wants_initial = initial in {"true", "1"}
        since: int | None
        if wants_initial:
            if asked is not None and asked > self._store.version:
                return NeedsVersion(asked)
            since = None
        elif initial:
            since = asked or self._store.version
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

    def get(self, _request: Request, target: Target, resource: Resource) -> Answer:
        """Answer with one object. Raises ApiFailureError (404)."""
        return Answer(200, shown(resource, self.existing(resource, target)) + b"\n")

    def existing(self, resource: Resource, target: Target) -> Entry:
        """Return the object that a path names. Raises ApiFailureError (404)."""
        entry = self._store.get(resource, target.namespace if resource.namespaced else "", target.name)
        if entry is None:
            raise status.not_found(resource.name, resource.group, target.name)
        return entry


def _page(scope: _Scope, version: int, entries: list[Entry], start: str = "") -> Answer:
    """Return the page from the key ``start`` on, with a token to go on if there is more."""
    meant = [entry for entry in entries if _key(entry) >= start and scope.is_meant(entry)]
    page = meant[: scope.limit] if scope.limit else meant
    meta: Json = {"resourceVersion": str(version)}
    if len(page) < len(meant):
        meta["continue"] = _encode_continue(version, _key(page[-1]).removeprefix(scope.prefix) + "\0")
        if not scope.selector:
            meta["remainingItemCount"] = len(meant) - len(page)
    items = [listed(scope.resource, entry) for entry in page]
    return Answer(200, list_head(scope.resource, meta) + b",".join(items) + b"]}\n")


def is_meant(entry: Entry, namespace: str, selector: Selector) -> bool:
    """Tell whether an object is in a namespace ("": any) and selected."""
    return (not namespace or entry.namespace == namespace) and (
        not selector or selector.matches(entry.labels, entry.fields)
    )


def _key(entry: Entry) -> str:
    """Return the key as continue tokens carry it."""
    return f"/{entry.namespace}/{entry.name}" if entry.namespace else f"/{entry.name}"


def list_head(resource: Resource, meta: Json) -> bytes:
    """Return the JSON of a list up to its first item."""
    head = f'{{"kind":"{resource.kind}List","apiVersion":"{resource.api_version}","metadata":'.encode()
    return head + msgspec.json.encode(meta) + b',"items":['


def _encode_continue(version: int, start: str) -> str:
    token = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(token.encode()).rstrip(b"=").decode()


def _decode_continue(token: str) -> tuple[int, str]:
    """Return (version, first key). Raises ApiFailureError with the words of Go's decoder where they are known."""
    prefix = "invalid continue token: continue key is not valid"
    try:
        odd = re.search(r"[^A-Za-z0-9_-]", token)
        raw = b"" if odd else base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError):
        odd = re.search(r".\Z", token)
    if odd:
        raise status.bad_request(f"{prefix}: illegal base64 data at input byte {odd.start()}")
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
            faults.append(f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""')
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
