"""HTTP messages as values: a request, an answer, which handler answers what, and their form on the wire. Pure.

It exists so that parsing, where a stranger's bytes come in, can be read and tested apart from sockets. It reads no more
of HTTP/1 than probers, scrapers and browsers send, and refuses what could be understood in two ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import parse_qs, unquote

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
NOSNIFF = ("X-Content-Type-Options", "nosniff")

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VERSION = re.compile(r"HTTP/\d\.\d")
_MAX_HEADERS = 100


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``path`` is decoded; header names are lower case, repeated headers joined by a comma."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    client: str = ""
    """The address that it came from, and the one of this machine that it came to."""
    server: str = ""

    def parameter(self, name: str) -> str | None:
        """Return the first value of a query parameter."""
        values = parse_qs(self.query, keep_blank_values=True, max_num_fields=50).get(name)
        return values[0] if values else None


@dataclass(frozen=True, slots=True)
class Response:
    """One answer; Date, Content-Length and Connection are added by the server."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = (NOSNIFF,)


Handler = Callable[[Request], Response]


def plain(text: str, status: int = HTTPStatus.OK) -> Response:
    """Answer with a line of text, no line feed added."""
    return Response(status, text.encode())


def error(status: int, text: str) -> Response:
    """Answer as Go's http.Error does: the text and a line feed."""
    return Response(status, f"{text}\n".encode())


NOT_FOUND = error(HTTPStatus.NOT_FOUND, "404 page not found")
METHOD_NOT_ALLOWED = error(HTTPStatus.METHOD_NOT_ALLOWED, "Method Not Allowed")
BUSY = Response(
    HTTPStatus.SERVICE_UNAVAILABLE, b"busy with other answers; ask again\n", TEXT, (NOSNIFF, ("Retry-After", "5"))
)


@dataclass(frozen=True, slots=True)
class Route:
    """What answers a path, and how."""

    handler: Handler
    is_quick: bool
    is_slow: bool
    methods: frozenset[str] | None


class Routes:
    """Which handler answers which path: exact paths, then the longest prefix."""

    def __init__(self) -> None:
        self._exact: dict[str, Route] = {}
        self._prefixes: list[tuple[str, Route]] = []

    def add(
        self,
        path: str,
        handler: Handler,
        *,
        is_quick: bool = False,
        is_slow: bool = False,
        methods: Sequence[str] | None = ("GET", "HEAD"),
    ) -> None:
        """Register a handler; a path that ends with "/" stands for everything below it.

        ``is_quick``: it only reads values and may run on the loop. ``is_slow``: such answers are made one at a time, by
        a thread of their own, so that no scraper waits for them. ``methods``: others are answered with 405; None takes
        any method, as kube-proxy's own pages do.
        """
        route = Route(handler, is_quick, is_slow, None if methods is None else frozenset(methods))
        if path.endswith("/"):
            self._prefixes.append((path, route))
            self._prefixes.sort(key=lambda item: -len(item[0]))
        else:
            self._exact[path] = route

    def paths(self) -> list[str]:
        """Return what is registered, sorted."""
        return sorted([*self._exact, *(prefix for prefix, _ in self._prefixes)])

    def find(self, path: str) -> Route | None:
        """Return the route of a path."""
        route = self._exact.get(path)
        if route is not None:
            return route
        return next((route for prefix, route in self._prefixes if path.startswith(prefix)), None)


class Refused(Exception):
    """A request that is not taken, and what is answered to it."""

    def __init__(self, status: HTTPStatus, detail: str = "") -> None:
        super().__init__(detail)
        text = f"{status.value} {status.phrase}"
        self.response = Response(status, f"{text}: {detail}".encode() if detail else text.encode(), headers=())


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request."""

    request: Request
    is_http11: bool
    wants_close: bool
    body_length: int | None
    """None: a body of unknown length (chunked), which is not read."""


def parse_head(raw: bytes) -> Head:
    """Read a request head.

    Raises Refused: it is no HTTP/1 request, or one that invites misunderstanding (RFC 9112, sections 5 and 6).
    """
    lines = raw.decode("latin-1").replace("\r\n", "\n").split("\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not _TOKEN.fullmatch(parts[0]) or not _VERSION.fullmatch(parts[2]):
        raise Refused(HTTPStatus.BAD_REQUEST)
    method, target, version = parts
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    is_http11 = version == "HTTP/1.1"
    headers = _parse_headers(lines[1:])
    if is_http11 and "host" not in headers:
        raise Refused(HTTPStatus.BAD_REQUEST, "missing required Host header")
    if target.startswith(("http://", "https://")):
        target = "/" + target.split("/", 3)[3] if target.count("/") > 2 else "/"
    if not target.startswith("/") or any(c < "!" or c == "\x7f" for c in target):
        raise Refused(HTTPStatus.BAD_REQUEST)
    path, _, query = target.partition("?")
    length = _body_length(headers)
    connection = {token.strip().lower() for token in headers.get("connection", "").split(",")}
    wants_close = "close" in connection or (not is_http11 and "keep-alive" not in connection)
    wants_close = wants_close or length is None
    if headers.get("expect", "100-continue").lower() != "100-continue":
        raise Refused(HTTPStatus.EXPECTATION_FAILED)
    return Head(Request(method, unquote(path), query, headers), is_http11, wants_close, length)


def _parse_headers(lines: Sequence[str]) -> dict[str, str]:
    if len(lines) > _MAX_HEADERS:
        raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name) or "\0" in value or "\r" in value:
            raise Refused(HTTPStatus.BAD_REQUEST)
        key = name.lower()
        value = value.strip(" \t")
        if key == "host" and key in headers:
            raise Refused(HTTPStatus.BAD_REQUEST, "too many Host headers")
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers


def _body_length(headers: Mapping[str, str]) -> int | None:
    if "transfer-encoding" in headers:
        if "content-length" in headers:
            raise Refused(HTTPStatus.BAD_REQUEST)
        return None
    values = {value.strip() for value in headers.get("content-length", "0").split(",")}
    text = values.pop()
    if values or not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise Refused(HTTPStatus.BAD_REQUEST, "bad Content-Length")
    return int(text)


def render(response: Response, *, is_http11: bool, is_head: bool, closes: bool) -> bytes:
    """Return an answer as it goes over the wire."""
    try:
        phrase = HTTPStatus(response.status).phrase
    except ValueError:
        phrase = f"status code {response.status}"
    version = "HTTP/1.1" if is_http11 else "HTTP/1.0"
    lines = [f"{version} {response.status} {phrase}", f"Content-Type: {response.content_type}"]
    lines += [f"{name}: {value}" for name, value in response.headers]
    lines += [f"Date: {formatdate(usegmt=True)}", f"Content-Length: {len(response.body)}"]
    if closes and is_http11:
        lines.append("Connection: close")
    elif not closes and not is_http11:
        lines.append("Connection: keep-alive")
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return head if is_head else head + response.body
