"""The API server's answers as a function: a request and a store in, a status, headers and bytes out.

It opens no socket and never waits: a request that must wait for a version, or that is a watch, is answered with a value
that says so, and the edge does the waiting.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from dataclasses import replace

import msgspec

from e2e.apiserver import discovery, status, tables
from e2e.apiserver.reading import Reader
from e2e.apiserver.requests import Answer, NeedsVersion, Request, Target
from e2e.apiserver.resources import Resource
from e2e.apiserver.store import Store
from e2e.apiserver.watching import WatchOptions
from e2e.apiserver.writing import Writer

Reply = Answer | WatchOptions | NeedsVersion

GZIP_FROM = 128 * 1024


class Api:
    """Answers requests from one store. Any thread may call."""

    def __init__(self, store: Store, rng: random.Random | None = None) -> None:
        self.store = store
        rng = rng or random.Random()
        reader = Reader(store, rng)
        writer = Writer(store, reader, rng)
        self._on_collection: dict[str, Callable[[Request, Target, Resource], Reply]] = {
            "list": reader.list,
            "watch": reader.watch,
            "create": writer.create,
            "deletecollection": writer.delete_all,
        }
        self._on_object: dict[str, Callable[[Request, Target, Resource], Reply]] = {
            "get": reader.get,
            "update": writer.update,
            "patch": writer.patch,
            "delete": writer.delete,
        }
        self._zipped: tuple[bytes, bytes] = (b"", b"")

    def handle(self, request: Request, target: Target) -> Reply:
        """Answer one request that is allowed. Raises ApiFailureError."""
        if target.resource is None or target.subresource not in {"", "status"}:
            found = discovery.answer(request.path) if request.method == "GET" else None
            if found is not None:
                return Answer(200, found[1], content_type=found[0])
            if discovery.is_served(request.path):
                raise status.no_such_resource()
            return Answer(404, b"404 page not found\n", {"X-Content-Type-Options": "nosniff"}, discovery.TEXT)
        accepted = request.headers.get("accept", "*/*")
        if not any(kind in accepted for kind in ("json", "*/*", "application/*")):
            raise status.not_acceptable()
        try:
            do = (self._on_object if target.name else self._on_collection)[target.verb]
        except KeyError:
            raise status.method_not_allowed() from None
        reply = do(request, target, target.resource)
        if tables.ACCEPT in accepted:
            return self._as_table(reply, target.resource)
        return reply

    def _as_table(self, reply: Reply, resource: Resource) -> Reply:
        if isinstance(reply, WatchOptions):
            return replace(reply, is_table=True)
        if isinstance(reply, NeedsVersion):
            return reply
        value = msgspec.json.decode(reply.body)
        if value.get("kind") not in {resource.kind, f"{resource.kind}List"}:
            return reply
        is_list = "items" in value
        objects = value.get("items", [value])
        meta = value["metadata"] if is_list else {"resourceVersion": value["metadata"]["resourceVersion"]}
        rows = [resource.stored(obj) for obj in objects]
        shown = tables.table(resource.name, rows, meta, self.store.clock.wall())
        return replace(reply, body=msgspec.json.encode(shown) + b"\n")

    def compressed(self, body: bytes) -> bytes:
        """Return ``body`` gzipped; the last one is remembered, since many clients ask for the same list."""
        if self._zipped[0] is not body:
            self._zipped = (body, gzip.compress(body, compresslevel=1))
        return self._zipped[1]
