"""What a source of objects (API server or manifests) hands to the rest of the house."""

from __future__ import annotations

from typing import Literal, Protocol, TypeVar

from pykubeproxy.watch.objects import KubeObject

T_contra = TypeVar("T_contra", bound=KubeObject, contravariant=True)

Resource = Literal["services", "endpointslices", "nodes"]
RESOURCES: tuple[Resource, ...] = ("services", "endpointslices", "nodes")


class Handler(Protocol[T_contra]):
    """Receives one resource's objects. Called from the source's thread of that resource, one call at a time.

    The source keeps no store: the receiver keys by (namespace, name) and is level-triggered, so a repeated,
    out-of-order or unknown object is no error.
    """

    def replace(self, objects: list[T_contra]) -> None:
        """Take a whole list: objects that were known and are not in it are gone. The first call means "has synced"."""

    def upsert(self, obj: T_contra) -> None:
        """Take one added or modified object."""

    def delete(self, namespace: str, name: str) -> None:
        """Forget one object; unknown ones are ignored."""
