"""List a cluster's objects once, for ``--dry-run`` and other commands that answer and end."""

from __future__ import annotations

from typing import Any

import msgspec

from pykubeproxy.errors import ApiError
from pykubeproxy.watch.client import ApiClient
from pykubeproxy.watch.decode import decoder_of
from pykubeproxy.watch.manifests import ClusterObjects
from pykubeproxy.watch.selectors import is_selected, selectors_of
from pykubeproxy.watch.source import RESOURCES


def list_once(client: ApiClient, node_name: str) -> ClusterObjects:
    """Return the Services, EndpointSlices and the own Node as the watch cache has them now.

    Raises:
        ApiError: the server does not answer, or refuses.

    """
    found: dict[str, list[Any]] = {}
    problems: list[str] = []
    session = client.session()
    try:
        for resource in RESOURCES:
            selectors = selectors_of(resource, node_name)
            params = {"resourceVersion": "0", "labelSelector": selectors.label, "fieldSelector": selectors.field}
            body = session.list(resource, {key: value for key, value in params.items() if value})
            try:
                page = decoder_of(resource).decode_list(body)
            except (msgspec.DecodeError, ValueError) as exc:
                raise ApiError(f"the list of {resource} cannot be read: {exc}") from exc
            found[resource] = [obj for obj in page.objects if is_selected(obj, node_name)]
            for mended in page.mended:
                problems += mended.lines()
            problems += map(str, page.bad)
    finally:
        session.close()
    return ClusterObjects(found["services"], found["endpointslices"], found["nodes"], problems)
