"""What can be made to go wrong, and the list of what is to go wrong next.

Two kinds. A *plan* is taken by the next requests that match it (resource and verb, ``*`` for any) and changes their
answer: refused, withheld, cut, slow. An *act* changes the server or its open watches at once. Any thread may call;
an act has happened when its call returns.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from e2e.apiserver import resources, status, watching
from e2e.apiserver.requests import Answer, Request, Target
from e2e.apiserver.store import shown

if TYPE_CHECKING:
    from e2e.apiserver.standin import StandIn

ALWAYS = None

_REASONS = {
    400: ("BadRequest", "bad request"),
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "forbidden"),
    404: ("NotFound", "the server could not find the requested resource"),
    410: ("Expired", "The resourceVersion for the provided list is too old."),
    429: ("TooManyRequests", "Too many requests, please try again later."),
    500: ("InternalError", "Internal error occurred: asked for by a fault"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "the request timed out"),
}


@dataclass(slots=True)
class Plan:
    """What happens to one matching request. ``times`` None: to every one."""

    resource: str = "*"
    verb: str = "*"
    times: int | None = 1
    failure: status.ApiFailureError | None = None
    in_stream: bool = False
    hangs: bool = False
    delay: float = 0.0
    cut_at: int | None = None
    cuts_character: bool = False
    resets: bool = False
    rate: float | None = None
    needs_field_selector: bool = False
    page: Answer | None = None
    replaces: tuple[bytes, bytes] | None = None

    def matches(self, request: Request, target: Target) -> bool:
        """Tell whether this request is meant."""
        return (
            self.resource in {"*", target.resource_name}
            and self.verb in {"*", target.verb}
            and (not self.needs_field_selector or bool(request.option("fieldSelector")))
        )

    def substituted(self, data: bytes) -> bytes:
        """Return ``data`` with what is to be replaced in it replaced."""
        return data.replace(*self.replaces) if self.replaces is not None else data

    def cut(self, data: bytes, sent: int) -> tuple[bytes, bool]:
        """Return (what of ``data`` still goes out, whether that is the end) when ``sent`` bytes went before."""
        at = (self.cut_at or 0) - sent
        if at >= len(data):
            return data, False
        at = max(at, 0)
        if not self.cuts_character:
            return data[:at], True
        for place in range(at, len(data)):
            if data[place] >= 0xC2:
                return data[: place + 1], True
        return data[:at] + b"\xc3", True


@dataclass(slots=True)
class _State:
    """What holds until it is taken back."""

    sends_bookmarks: bool = True
    watch_seconds: float | None = None
    stalled: set[str] = field(default_factory=set)


class Faults:
    """The faults of one server. Public methods are also callable by name over HTTP (``/_standin/faults``)."""

    def __init__(self, server: StandIn) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._plans: list[Plan] = []
        self._state = _State()

    # Asked by the edge

    def take(self, request: Request, target: Target) -> Plan | None:
        """Return the first plan that matches, and use it up by one."""
        with self._lock:
            for plan in self._plans:
                if plan.matches(request, target):
                    if plan.times is not None:
                        plan.times -= 1
                        if plan.times <= 0:
                            self._plans.remove(plan)
                    return plan
        return None

    @property
    def sends_bookmarks(self) -> bool:
        """Tell whether bookmarks are sent."""
        return self._state.sends_bookmarks

    @property
    def watch_seconds(self) -> float | None:
        """Return after how many seconds each watch is closed, None for what its client asked for."""
        return self._state.watch_seconds

    def is_stalled(self, resource: str) -> bool:
        """Tell whether watches of this resource send nothing."""
        return not self._state.stalled.isdisjoint({"*", resource})

    # Plans

    def answer(
        self,
        code: int,
        *,
        resource: str = "*",
        verb: str = "*",
        times: int | None = 1,
        reason: str | None = None,
        message: str | None = None,
        retry_after: int | None = None,
        in_stream: bool = False,
    ) -> None:
        """Answer with this HTTP code; ``in_stream``: a watch answers 200 and an ERROR line with that code."""
        default = _REASONS.get(code, ("InternalError", f"answered {code} by a fault"))
        failure = status.ApiFailureError(
            code,
            default[0] if reason is None else reason,
            default[1] if message is None else message,
            retry_after=retry_after,
        )
        self._add(Plan(resource, verb, times, failure=failure, in_stream=in_stream))

    def answer_page(
        self,
        code: int = 502,
        body: str = "<html><body>Bad Gateway</body></html>",
        *,
        content_type: str = "text/html",
        resource: str = "*",
        verb: str = "*",
        times: int | None = 1,
    ) -> None:
        """Answer with this body as it is, as a proxy on the way would."""
        self._add(Plan(resource, verb, times, page=Answer(code, body.encode(), content_type=content_type)))

    def substitute(self, old: str, new: str, *, resource: str = "*", verb: str = "*", times: int | None = 1) -> None:
        """Replace a piece of text in the answer, wherever it stands: any object or JSON can be spoilt by it."""
        self._add(Plan(resource, verb, times, replaces=(old.encode(), new.encode())))

    def hang(self, *, resource: str = "*", verb: str = "*", times: int | None = 1) -> None:
        """Take the request and never answer."""
        self._add(Plan(resource, verb, times, hangs=True))

    def delay(self, seconds: float, *, resource: str = "*", verb: str = "*", times: int | None = 1) -> None:
        """Answer rightly, but later."""
        self._add(Plan(resource, verb, times, delay=seconds))

    def cut(self, at: int, *, resource: str = "*", verb: str = "*", times: int | None = 1, reset: bool = False) -> None:
        """End the connection after ``at`` bytes of the body, cleanly or with a reset."""
        self._add(Plan(resource, verb, times, cut_at=at, resets=reset))

    def cut_in_character(
        self, at: int = 0, *, resource: str = "*", verb: str = "*", times: int | None = 1, reset: bool = False
    ) -> None:
        """End the connection inside the first UTF-8 character of several bytes at or after ``at``.

        Where the data holds none, a lone first byte of one is sent at ``at``.
        """
        self._add(Plan(resource, verb, times, cut_at=at, cuts_character=True, resets=reset))

    def trickle(self, rate: float = 1.0, *, resource: str = "*", verb: str = "*", times: int | None = 1) -> None:
        """Send the body at ``rate`` bytes a second."""
        self._add(Plan(resource, verb, times, rate=rate))

    def reject_field_selectors(self, *, resource: str = "services", times: int | None = ALWAYS) -> None:
        """Answer 400 to every request with a field selector, as old or foreign servers do."""
        failure = status.bad_request("field label not supported: spec.clusterIP")
        self._add(Plan(resource, "*", times, failure=failure, needs_field_selector=True))

    def clear(self) -> None:
        """Take back every plan and lasting state; listen again if that was stopped."""
        with self._lock:
            self._plans.clear()
            self._state = _State()
        if self._server.edge.is_running:
            self.accept_connections()
        self._server.edge.wake()

    # Lasting states

    def bookmarks(self, *, on: bool) -> None:
        """Send bookmarks or not; without them a quiet server is silent."""
        self._state.sends_bookmarks = on

    def close_watches_after(self, seconds: float | None) -> None:
        """End each watch that begins from now on after so many seconds."""
        self._state.watch_seconds = seconds

    def stall_watches(self, resource: str = "*") -> None:
        """Send nothing more on watches, open ones and new ones, and keep them open."""
        with self._lock:
            self._state.stalled = {*self._state.stalled, resource}

    def resume_watches(self) -> None:
        """Let stalled watches go on with everything that happened meanwhile."""
        with self._lock:
            self._state.stalled = set()
        self._server.edge.wake()

    def refuse_connections(self, *, drop: bool = True) -> None:
        """Refuse new connections, and end the open ones unless told otherwise."""
        edge = self._server.edge
        edge.call(edge.refuse)
        if drop:
            edge.call(lambda: edge.drop_connections(reset=True))

    def mute_connections(self, *, drop: bool = True) -> None:
        """Let connections be made and never read from them, not even a TLS handshake."""
        edge = self._server.edge
        edge.call(edge.mute)
        if drop:
            edge.call(lambda: edge.drop_connections(reset=True))

    def accept_connections(self) -> None:
        """Listen again after ``refuse_connections`` or ``mute_connections``."""
        edge = self._server.edge
        edge.call(edge.accept)

    def drop_connections(self, *, reset: bool = False) -> None:
        """End every open connection at once."""
        edge = self._server.edge
        edge.call(lambda: edge.drop_connections(reset=reset))

    # Acts on open watches; each returns how many it reached

    def end_watches(self, resource: str = "*", *, reset: bool = False) -> int:
        """End the open watches without a last chunk."""
        edge = self._server.edge

        def do() -> int:
            reached = 0
            for stream in edge.streams:
                if resource in {"*", stream.resource}:
                    stream.ends = "reset" if reset else "close"
                    stream.wake.set()
                    reached += 1
            return reached

        return int(str(edge.call(do)))

    def send_line(self, resource: str, line: bytes | str | dict[str, Any]) -> int:
        """Send raw bytes, text, or a JSON value as one line, on the open watches of a resource."""
        if isinstance(line, dict):
            line = json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n"
        raw = line.encode() if isinstance(line, str) else line
        edge = self._server.edge

        def do() -> int:
            reached = 0
            for stream in edge.streams:
                if resource in {"*", stream.resource}:
                    stream.injected.append(raw)
                    stream.wake.set()
                    reached += 1
            return reached

        reached = int(str(edge.call(do)))
        edge.settle()
        return reached

    def send_blank_lines(self, resource: str = "*", count: int = 3) -> int:
        """Send empty lines."""
        return self.send_line(resource, b"\n" * count)

    def send_bookmark(self, resource: str, version: str = "") -> int:
        """Send a BOOKMARK with this version, by default without any."""
        found = resources.find(resource)
        bookmark = watching.Watch(
            self._server.store, watching.WatchOptions(found), self._server.clock.monotonic()
        ).bookmark(version=version)
        return self.send_line(resource, bookmark.encoded)

    def send_duplicate_added(self, resource: str, namespace: str = "", name: str = "") -> int:
        """Send ADDED once more for an object that stands (any, unless named)."""
        found = resources.find(resource)
        entry = self._any(found, namespace, name)
        return self.send_line(resource, watching.line("ADDED", shown(found, entry)).encoded)

    def send_unknown_deleted(self, resource: str, name: str = "never-was", namespace: str = "default") -> int:
        """Send DELETED for an object that never was."""
        found = resources.find(resource)
        meta = {"name": name, "uid": "00000000-0000-4000-8000-000000000000"}
        meta |= {"namespace": namespace} if found.namespaced else {}
        meta |= {"resourceVersion": str(self._server.store.bump())}
        obj = {"kind": found.kind, "apiVersion": found.api_version, "metadata": meta, **found.empty}
        return self.send_line(resource, watching.line("DELETED", msgspec.json.encode(obj)).encoded)

    def send_error(
        self, resource: str, code: int | None = None, reason: str | None = None, message: str | None = None
    ) -> int:
        """Send an ERROR event: by default a Status with neither code nor reason."""
        body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body |= {key: value for key, value in (("message", message), ("reason", reason), ("code", code)) if value}
        return self.send_line(resource, {"type": "ERROR", "object": body})

    def cut_watches(self, resource: str = "*", *, in_character: bool = False, reset: bool = False) -> int:
        """Send the first half of an event on the open watches, then end them."""
        half = b'{"type":"MODIFIED","object":{"kind":"Service","apiVersion":"v1","metadata":{"name":"caf'
        reached = self.send_line(resource, half + (b"\xc3" if in_character else b""))
        self.end_watches(resource, reset=reset)
        return reached

    def reorder_events(self, resource: str, count: int = 2) -> int:
        """Hold the next ``count`` events of each open watch, then send them last first."""
        edge = self._server.edge

        def do() -> int:
            streams = [stream for stream in edge.streams if resource in {"*", stream.resource}]
            for stream in streams:
                stream.hold = count
            return len(streams)

        return int(str(edge.call(do)))

    # Acts on the store and the server

    def grow_object(self, resource: str, size: int = 5 << 20, namespace: str = "", name: str = "") -> None:
        """Change an object (any, unless named) so that its event is ``size`` bytes larger."""
        found = resources.find(resource)
        value = self._any(found, namespace, name).value()
        value["metadata"].setdefault("annotations", {})["standin/ballast"] = "x" * size
        self._server.store.put(value, resource=found)

    def compact(self, *, watch_cache: bool = True) -> None:
        """Forget the past: older versions are 410 for lists and (unless told otherwise) for watches."""
        self._server.store.compact()
        if watch_cache:
            self._server.store.restart_watch_cache()

    def restart(self, version: int | None = None) -> None:
        """Restart: connections are cut, watches cannot begin in the past.

        With ``version`` the server comes back from a backup: it goes on from that version, though it be lower.
        """
        edge = self._server.edge
        edge.call(edge.refuse)
        edge.call(lambda: edge.drop_connections(reset=False))
        self._server.store.restart_watch_cache()
        if version is not None:
            self._server.store.renumber(version)
        edge.call(edge.accept)

    def set_tokens(self, tokens: list[str] | None) -> None:
        """Accept these bearer tokens from now on, and no others; None: no token is needed."""
        self._server.access.set_tokens(tokens)

    def rotate_ca(self, *, drop: bool = True) -> str:
        """Serve with a certificate of a new CA from now on; return the path of the new CA's certificate."""
        path = self._server.rotate_ca()
        if drop:
            self.drop_connections()
        return str(path)

    def _any(self, resource: resources.Resource, namespace: str, name: str) -> Any:
        store = self._server.store
        if name:
            entry = store.get(resource, (namespace or "default") if resource.namespaced else "", name)
        else:
            entry = next(iter(store.entries(resource)[1]), None)
        if entry is None:
            raise ValueError(f"no such {resource.kind}: {name or 'there is none'}")
        return entry

    def _add(self, plan: Plan) -> None:
        with self._lock:
            self._plans.append(plan)
