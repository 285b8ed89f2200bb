"""List a cluster's objects once, for ``--dry-run`` and other commands that answer and end."""

from __future__ import annotations

from typing import Any

import msgspec

from pykubeproxy.errors import ApiError
from pykubeproxy.watch.client import ApiClient
from pykubeproxy.watch.decode import Decoded, decoder_of
from pykubeproxy.watch.manifests import ClusterObjects, Fault
from pykubeproxy.watch.objects import Service
from pykubeproxy.watch.selectors import is_selected, selectors_of
from pykubeproxy.watch.source import RESOURCES, Resource


def find_service(client: ApiClient, namespace: str, name: str) -> Service | None:
    """Return a Service whether it is selected or not; None where there is none.

    It is listed, not got: that is what a proxy's role allows.

    Raises:
        ApiError: the server does not answer, or refuses.

    """
    session = client.session()
    try:
        only = f"metadata.namespace={namespace},metadata.name={name}"
        body = session.list("services", {"resourceVersion": "0", "fieldSelector": only})
        return next(iter(_decoded("services", body).objects), None)
    finally:
        session.close()


def _decoded(resource: Resource, body: bytearray) -> Decoded[Any]:
    try:
        return decoder_of(resource).decode_list(body)
    except (msgspec.DecodeError, ValueError) as exc:
        raise ApiError(f"the list of {resource} cannot be read: {exc}") from exc


def list_once(client: ApiClient, node_name: str) -> ClusterObjects:
    """Return the Services, EndpointSlices and the own Node as the watch cache has them now.

    Raises:
        ApiError: the server does not answer, or refuses.

    """
    found: dict[str, list[Any]] = {}
    problems: list[str] = []
    faults: list[Fault] = []
    session = client.session()
    try:
        for resource in RESOURCES:
            selectors = selectors_of(resource, node_name)
            params = {"resourceVersion": "0", "labelSelector": selectors.label, "fieldSelector": selectors.field}
            body = session.list(resource, {key: value for key, value in params.items() if value})
            page = _decoded(resource, body)
            found[resource] = [obj for obj in page.objects if is_selected(obj, node_name)]
            for mended in page.mended:
                meta, kind = mended.obj.metadata, type(mended.obj).__name__
                faults += (Fault(kind, (meta.namespace, meta.name), said) for said in mended.faults)
                problems += mended.lines()
            for bad in page.bad:
                if bad.name is not None:
                    faults.append(Fault(bad.kind, (bad.namespace or "", bad.name), bad.problem))
                problems.append(str(bad))
    finally:
        session.close()
    return ClusterObjects(found["services"], found["endpointslices"], found["nodes"], problems, faults=faults)
