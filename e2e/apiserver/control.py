"""The stand-in's own paths, for a server that runs as a program: faults, counts, and objects in bulk.

``POST /_standin/faults`` takes ``{"fault": NAME, ...arguments}`` where NAME is a public method of Faults; a list of
such is done in order. ``GET`` names them. ``GET /_standin/stats`` answers the counts, ``DELETE`` resets them.
``POST /_standin/objects`` puts the objects of a List (or one object) as they are given, watchers woken once.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import msgspec

from e2e.apiserver.requests import Answer, Request

if TYPE_CHECKING:
    from e2e.apiserver.standin import StandIn

_ASKED_BY_EDGE = {"take", "is_stalled"}


def answer(server: StandIn, request: Request) -> Answer:
    """Answer one of these paths; anything that fails is a 400 with its reason."""
    try:
        return _json(200, _do(server, request.method, request.path.rstrip("/"), request.body))
    except LookupError:
        return _json(404, {"error": f"no such path: {request.method} {request.path}"})
    except (TypeError, ValueError, RuntimeError, msgspec.MsgspecError) as fault:
        return _json(400, {"error": str(fault)})


def _do(server: StandIn, method: str, path: str, body: bytes) -> Any:
    if (method, path) == ("GET", "/_standin/stats"):
        return server.stats.as_json()
    if (method, path) == ("DELETE", "/_standin/stats"):
        server.stats.reset()
        return {}
    if (method, path) == ("GET", "/_standin/faults"):
        return {name: str(inspect.signature(call)) for name, call in _faults(server).items()}
    if (method, path) == ("POST", "/_standin/faults"):
        asked = msgspec.json.decode(body)
        results = [_inject(server, each) for each in (asked if isinstance(asked, list) else [asked])]
        return {"results": results}
    if (method, path) == ("POST", "/_standin/objects"):
        given = msgspec.json.decode(body)
        is_list = str(given.get("kind", "")).endswith("List")
        return {"resourceVersion": str(server.bulk_put(given.get("items") or [] if is_list else [given]))}
    raise LookupError(path)


def _inject(server: StandIn, asked: dict[str, Any]) -> Any:
    arguments = dict(asked)
    name = arguments.pop("fault", None)
    calls = _faults(server)
    if name not in calls:
        raise ValueError(f"no such fault: {name!r}; there are {', '.join(calls)}")
    return calls[name](**arguments)


def _faults(server: StandIn) -> dict[str, Any]:
    return {
        name: call
        for name, call in inspect.getmembers(server.faults, callable)
        if not name.startswith("_") and name not in _ASKED_BY_EDGE
    }


def _json(code: int, value: Any) -> Answer:
    return Answer(code, msgspec.json.encode(value) + b"\n")
