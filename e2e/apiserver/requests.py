"""A request, what it is about, and an answer, as plain values; working out the target is all that happens here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote

from e2e.apiserver import resources
from e2e.apiserver.resources import Resource

_BODY_METHODS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


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
