"""The lines of a watch as events. Pure: what a line means can be tried without a connection and without a clock.

It must not decide what to do about an event; that is the reflector's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from pykubeproxy.errors import ApiError, StreamError
from pykubeproxy.watch.decode import (
    FAULTS,
    BadObject,
    Mended,
    ObjectDecoder,
    decode_status,
    excerpt,
    plain,
    status_error,
)
from pykubeproxy.watch.objects import KubeObject

T = TypeVar("T", bound=KubeObject)


@dataclass(frozen=True, slots=True)
class Upsert(Generic[T]):
    """An added or modified object. ``faults`` names what of it did not decode and was left out."""

    obj: T
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """A deleted object, or one that stopped matching the selectors."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A sign of life that carries a version."""


class _Line(msgspec.Struct):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


class _Meta(msgspec.Struct, rename="camel"):
    namespace: str = ""
    name: str = ""
    resource_version: str = ""


class _Named(msgspec.Struct):
    metadata: _Meta


_LINE = msgspec.json.Decoder(_Line)
_NAMED = msgspec.json.Decoder(_Named)

Event = Upsert[T] | Delete | Bookmark | BadObject | ApiError


class WatchDriver(Generic[T]):
    """A watch's lines into events, remembering the version to go on from. Pure: it never raises, reads or sleeps.

    An ApiError that comes back (GoneError for 410 in any form) ends the watch; a BadObject does not.
    """

    def __init__(self, decoder: ObjectDecoder[T], version: str) -> None:
        self._decoder = decoder
        self.version = version
        """The last version that the server named. It is handed back, and compared only where both are numbers."""

    def feed(self, line: bytes | bytearray) -> Event[T] | None:
        """Take one line; an empty one is None."""
        if not line.strip():
            return None
        try:
            event = _LINE.decode(line)
        except FAULTS as error:
            return StreamError(f"a watch line cannot be read ({plain(error)}): {excerpt(line)}")
        result: Event[T]
        match event.type:
            case "ADDED" | "MODIFIED":
                result = self._changed(event.object)
            case "DELETED":
                result = self._deleted(event.object)
            case "BOOKMARK":
                result = self._bookmark(event.object)
            case "ERROR":
                result = status_error(decode_status(event.object), excerpt(event.object))
            case unknown:
                result = StreamError(f"a watch event has the unknown type {unknown[:40]!r}")
        return result

    def _changed(self, raw: msgspec.Raw) -> Event[T]:
        found = self._decoder.decode_one(raw)
        if isinstance(found, BadObject):
            return self._see(found.resource_version) or found
        event = Upsert(found.obj, tuple(found.lines())) if isinstance(found, Mended) else Upsert(found)
        return self._see(event.obj.metadata.resource_version) or event

    def _deleted(self, raw: msgspec.Raw) -> Event[T]:
        # Only the name counts: an object that never decoded must still be deletable.
        try:
            meta = _NAMED.decode(raw).metadata
        except FAULTS as error:
            return StreamError(f"a DELETED event cannot be read: {plain(error)}")
        if not meta.name:
            return StreamError("a DELETED event names no object")
        return self._see(meta.resource_version) or Delete(meta.namespace, meta.name)

    def _bookmark(self, raw: msgspec.Raw) -> Event[T]:
        try:
            meta = _NAMED.decode(raw).metadata
        except FAULTS as error:
            return StreamError(f"a BOOKMARK event cannot be read: {plain(error)}")
        return self._see(meta.resource_version) or Bookmark()

    def _see(self, version: str) -> StreamError | None:
        """Remember a version. One that went back (KEP-5504: they can be compared) means that something was missed.

        A server that was restored from a backup lets us wait for a version that lies in its future, and sends nothing
        but bookmarks with its own; and events out of order may end with an older state of an object.
        """
        if version.isdigit() and self.version.isdigit() and int(version) < int(self.version):
            return StreamError(f"the server's version went back from {self.version} to {version}")
        if version:
            self.version = version
        return None
