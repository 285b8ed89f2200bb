"""The Status bodies that a kube-apiserver answers failures with, word for word (recorded from 1.36.2).

Only words and codes; deciding when to say them is the business of the callers.
"""

from __future__ import annotations

from typing import Any

import msgspec

Json = dict[str, Any]


class ApiFailureError(Exception):
    """A request is answered with this Status and HTTP code."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Json | None = None,
        metadata: Json | None = None,
        retry_after: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)
        self.body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata or {},
            "status": "Failure",
            "message": message,
        }
        if reason:
            self.body["reason"] = reason
        if details is not None:
            self.body["details"] = details
        self.body["code"] = code

    def encoded(self) -> bytes:
        """Return the Status as JSON."""
        return msgspec.json.encode(self.body)


def _details(name: str, group: str, kind: str) -> Json:
    return {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}


def _qualified(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


def bad_request(message: str) -> ApiFailureError:
    """Return 400."""
    return ApiFailureError(400, "BadRequest", message)


def unauthorized() -> ApiFailureError:
    """Return 401: the token is unknown."""
    return ApiFailureError(401, "Unauthorized", "Unauthorized")


def forbidden(
    user: str, verb: str, resource: str, group: str, *, namespace: str = "", name: str = ""
) -> ApiFailureError:
    """Return 403: the user is known and has no such right."""
    what = _qualified(resource, group) + (f' "{name}"' if name else "")
    scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    return ApiFailureError(
        403,
        "Forbidden",
        f'{what} is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group "{group}" {scope}',
        details=_details(name, group, resource),
        headers={"X-Content-Type-Options": "nosniff"},
    )


def forbidden_path(user: str, verb: str, path: str) -> ApiFailureError:
    """Return 403 for a path that is no resource."""
    return ApiFailureError(
        403,
        "Forbidden",
        f'forbidden: User "{user}" cannot {verb} path "{path}"',
        details={},
        headers={"X-Content-Type-Options": "nosniff"},
    )


def no_such_resource() -> ApiFailureError:
    """Return 404 for a path that the server does not serve."""
    return ApiFailureError(404, "NotFound", "the server could not find the requested resource", details={})


def not_found(resource: str, group: str, name: str) -> ApiFailureError:
    """Return 404 for an object."""
    return ApiFailureError(
        404, "NotFound", f'{_qualified(resource, group)} "{name}" not found', details=_details(name, group, resource)
    )


def method_not_allowed() -> ApiFailureError:
    """Return 405."""
    return ApiFailureError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def not_acceptable() -> ApiFailureError:
    """Return 406: the client takes nothing that is spoken here."""
    spoken = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    return ApiFailureError(
        406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {spoken}", details={}
    )


def already_exists(resource: str, group: str, name: str) -> ApiFailureError:
    """Return 409 for a create."""
    return ApiFailureError(
        409,
        "AlreadyExists",
        f'{_qualified(resource, group)} "{name}" already exists',
        details=_details(name, group, resource),
    )


def conflict(resource: str, group: str, name: str, why: str = "") -> ApiFailureError:
    """Return 409 for an update of an old version."""
    because = why or "the object has been modified; please apply your changes to the latest version and try again"
    return ApiFailureError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {_qualified(resource, group)} "{name}": {because}',
        details=_details(name, group, resource),
    )


def expired(message: str, token: str = "") -> ApiFailureError:
    """Return 410; ``token`` is the continue token to go on with inconsistently."""
    return ApiFailureError(410, "Expired", message, metadata={"continue": token} if token else {})


def unsupported_media_type(accepted: list[str]) -> ApiFailureError:
    """Return 415."""
    return ApiFailureError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted),
    )


def unsupported_patch() -> ApiFailureError:
    """Return 415 for a patch of a kind that is not known."""
    return ApiFailureError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


def rejected_patch() -> ApiFailureError:
    """Return 422 for a JSON patch that does not apply."""
    message = "the server rejected our request due to an error in our request"
    return ApiFailureError(422, "Invalid", message, details={})


def name_required(kind: str, group: str) -> ApiFailureError:
    """Return 422 for an object without a name."""
    return invalid_options(
        kind, group, [("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")]
    )


def bad_watch_version(text: str) -> ApiFailureError:
    """Return 500, as the real server does for a watch from a version that is no number."""
    message = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
    return ApiFailureError(500, "", message)


def invalid_options(kind: str, group: str, faults: list[tuple[str, str, str]]) -> ApiFailureError:
    """Return 422 for options that do not go together; each fault is (field, reason, message)."""
    texts = [f"{field}: {message}" for field, _, message in faults]
    message = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return ApiFailureError(
        422,
        "Invalid",
        f'{_qualified(kind, group)} "" is invalid: {message}',
        details={
            **_details("", group, kind),
            "causes": [{"reason": reason, "message": message, "field": field} for field, reason, message in faults],
        },
    )


def future_version(asked: int, current: int) -> ApiFailureError:
    """Return 504: the version has not been reached within the server's wait."""
    return ApiFailureError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        retry_after=1,
    )
