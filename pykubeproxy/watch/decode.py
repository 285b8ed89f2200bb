"""JSON from an API server into the structs of :mod:`pykubeproxy.watch.objects`.

It exists because one odd object must never blind the daemon (kubernetes-client/python#2214): a whole list is decoded in
one go, and only if that fails object by object, so that the good ones come through; of a bad one, what can be used
(:mod:`pykubeproxy.watch.mend`), and each fault is named with its field. It must not log, count or remember anything;
problems are returned as values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from sys import intern
from typing import Any, Generic, TypeVar, cast

import msgspec

from pykubeproxy.errors import ApiError, GoneError
from pykubeproxy.watch.mend import mend
from pykubeproxy.watch.objects import EndpointSlice, KubeObject, Node, Service
from pykubeproxy.watch.source import Resource

T = TypeVar("T", bound=KubeObject)

KINDS: dict[Resource, type[KubeObject]] = {"services": Service, "endpointslices": EndpointSlice, "nodes": Node}
"""The struct of each resource; its class name is the API's kind."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""A copy of the whole object, left behind by kubectl: dropped, since nobody here reads it and it doubles the object."""

FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises on bad input; the last on input that is nested a thousand deep."""


class UndecodableError(ValueError):
    """A document that is no list of objects at all; ``str()`` is one clear line."""


@dataclass(frozen=True, slots=True)
class BadObject:
    """An object that cannot be used. ``namespace`` and ``name`` are None where not even they can be read."""

    kind: str
    namespace: str | None
    name: str | None
    resource_version: str
    problem: str
    """The field and what is wrong with it."""

    def __str__(self) -> str:
        return f"{describe(self.kind, self.namespace, self.name)}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Mended(Generic[T]):
    """An object that decodes without some of its parts; ``faults`` names each of them by its field."""

    obj: T
    faults: list[str]

    def lines(self) -> list[str]:
        """Return one line for each fault, headed by the object."""
        meta = self.obj.metadata
        about = describe(type(self.obj).__name__, meta.namespace, meta.name)
        return [f"{about}: {fault}" for fault in self.faults]


@dataclass(frozen=True, slots=True)
class Decoded(Generic[T]):
    """One answered list, or one page of it. ``mended`` of the ``objects`` lack what did not decode in them."""

    objects: list[T]
    mended: list[Mended[T]]
    bad: list[BadObject]
    resource_version: str
    continue_token: str


class Status(msgspec.Struct, rename="camel"):
    """The API's Status object: the body of a refusal, or of an ERROR event."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class StatusDetails(msgspec.Struct, rename="camel"):
    """The part of a Status that says when to come back."""

    retry_after_seconds: float | None = None


class _ListMeta(msgspec.Struct, rename="camel", gc=False):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _List(msgspec.Struct, Generic[T]):
    items: list[T] | None = None
    metadata: _ListMeta | None = None
    kind: str = ""


class _RawList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: _ListMeta | None = None
    kind: str = ""


_RAW_LIST = msgspec.json.Decoder(_RawList)
_STATUS = msgspec.json.Decoder(Status)


class ObjectDecoder(Generic[T]):
    """Decodes lists and single objects of one kind; made once, since making a decoder costs more than using it."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        self._one = msgspec.json.Decoder(kind)
        self._list = msgspec.json.Decoder(_List[kind])  # type: ignore[valid-type]

    def decode_list(self, data: bytes | bytearray) -> Decoded[T]:
        """Decode a list's answer.

        Raises UndecodableError when ``data`` is no JSON or no list; a bad object in it is no error.
        """
        expected = self.kind.__name__ + "List"
        bad: list[BadObject] = []
        mended: list[Mended[T]] = []
        objects: list[T]
        try:
            listing = self._list.decode(data)
            objects = listing.items or []
        except msgspec.ValidationError:
            try:
                raw = _RAW_LIST.decode(data)
            except FAULTS as error:
                raise UndecodableError(f"the answer is no {expected}: {plain(error)}") from error
            objects = []
            for item in raw.items or ():
                one = self.decode_one(item)
                if isinstance(one, BadObject):
                    bad.append(one)
                elif isinstance(one, Mended):
                    mended.append(one)
                    objects.append(one.obj)
                else:
                    objects.append(one)
            kind, meta = raw.kind, raw.metadata
        except FAULTS as error:
            raise UndecodableError(f"the answer is no {expected}: {plain(error)}") from error
        else:
            kind, meta = listing.kind, listing.metadata
            if not all(obj.metadata.name for obj in objects):
                bad = [self._nameless(obj) for obj in objects if not obj.metadata.name]
                objects = [obj for obj in objects if obj.metadata.name]
            trim(objects)
        if kind not in ("", expected):
            raise UndecodableError(f"the answer is a {kind}, not a {expected}")
        meta = meta or _ListMeta()
        return Decoded(objects, mended, bad, meta.resource_version, meta.continue_ or "")

    def decode_one(self, data: bytes | bytearray | msgspec.Raw) -> T | Mended[T] | BadObject:
        """Decode one object; what does not decode comes back named."""
        try:
            one = self._one.decode(data)
        except FAULTS as error:
            return self._mended(data, error)
        if not one.metadata.name:
            return self._nameless(one)
        trim((one,))
        return one

    def _mended(self, data: bytes | bytearray | msgspec.Raw, error: Exception) -> Mended[T] | BadObject:
        try:
            tree = msgspec.json.decode(data)
        except FAULTS:
            return bad_object(self.kind, None, plain(error))
        return mended(self.kind, tree)

    def _nameless(self, obj: T) -> BadObject:
        meta = obj.metadata
        return BadObject(self.kind.__name__, meta.namespace, None, meta.resource_version, "metadata.name: is missing")


def mended(kind: type[T], tree: object) -> Mended[T] | BadObject:
    """Make the best of an object that does not convert to ``kind`` as it is."""
    try:
        obj, faults = mend(kind, tree)
    except RecursionError:
        obj, faults = None, ["is nested too deeply"]
    if obj is None:
        return bad_object(kind, tree, faults[0])
    meta = obj.metadata
    if not meta.name:
        return BadObject(kind.__name__, meta.namespace, None, meta.resource_version, "metadata.name: is missing")
    trim((obj,))
    return Mended(obj, faults)


def bad_object(kind: type[Any], tree: object, problem: str) -> BadObject:
    """Name an object that does not decode, as far as its ``tree`` (plain dicts and lists) allows."""
    meta = tree.get("metadata") if isinstance(tree, dict) else None
    meta = meta if isinstance(meta, dict) else {}

    def text(key: str) -> str | None:
        value = meta.get(key)
        return value if isinstance(value, str) else None

    namespace = text("namespace")
    if namespace is None and "namespace" not in meta:
        namespace = ""
    return BadObject(kind.__name__, namespace, text("name"), text("resourceVersion") or "", problem)


def decode_status(data: bytes | bytearray | msgspec.Raw) -> Status | None:
    """Decode a Status; None when it is none (a proxy's HTML page, a cut body)."""
    try:
        return _STATUS.decode(data)
    except FAULTS:
        return None


def status_error(status: Status | None, otherwise: str) -> ApiError:
    """Turn a Status into the error that it means: GoneError for 410, which comes with or without reason or code."""
    if status is None or not (status.message or status.reason or status.code):
        return ApiError(otherwise)
    retry_after = status.details.retry_after_seconds if status.details else None
    said = " ".join(f"{status.code or ''} {status.reason}".split())
    message = ": ".join(part for part in (said, " ".join(status.message.split())[:500]) if part)
    is_gone = (
        status.code == 410
        or status.reason in ("Expired", "Gone")
        or (status.code == 0 and status.message.startswith("too old resource version"))
    )
    return (GoneError if is_gone else ApiError)(message, code=status.code, retry_after=retry_after)


def excerpt(data: bytes | bytearray | msgspec.Raw) -> str:
    """Return the beginning of a document for a log line."""
    text = bytes(data[:120] if isinstance(data, bytes | bytearray) else memoryview(data)[:120])
    return text.decode("utf-8", "replace")


def trim(objects: Iterable[KubeObject]) -> None:
    """Make objects cheap to keep: share strings that repeat in thousands of them, drop kubectl's copy of the object."""
    shared = _SHARED
    for obj in objects:
        meta = obj.metadata
        meta.namespace = intern(meta.namespace)
        if meta.annotations and LAST_APPLIED in meta.annotations:
            del meta.annotations[LAST_APPLIED]
        if type(obj) is EndpointSlice:
            obj.address_type = shared.get(obj.address_type, obj.address_type)
            for endpoint in obj.endpoints or ():
                if endpoint.node_name is not None:
                    endpoint.node_name = intern(endpoint.node_name)


_SHARED = {text: text for text in ("IPv4", "IPv6", "FQDN")}

_AT = re.compile(r" - at `(?P<path>[^`]*)`$")


def plain(error: Exception) -> str:
    """Turn a decoder's complaint into ``field: what is wrong``."""
    text = " ".join(str(error).split())
    found = _AT.search(text)
    said = (text[: found.start()] if found else text).replace("`", "")
    path = found["path"].removeprefix("$").removeprefix(".") if found else ""
    said = said[:1].lower() + said[1:]
    return f"{path}: {said}" if path else said


def describe(kind: str, namespace: str | None, name: str | None) -> str:
    """Name an object as people do: ``Service default/web``."""
    if name is None:
        return f"{kind} without a readable name"
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def decoder_of(resource: Resource) -> ObjectDecoder[Any]:
    """Return a decoder of the resource's kind."""
    return ObjectDecoder(cast("type[Any]", KINDS[resource]))
