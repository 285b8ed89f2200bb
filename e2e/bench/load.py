"""Changes of objects through the API server's ordinary paths, over a connection inside the namespace."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterable
from typing import Any

from e2e.bench import clusters
from e2e.bench.namespaces import inside

Json = dict[str, Any]

SERVICES = f"/api/v1/namespaces/{clusters.NAMESPACE}/services"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{clusters.NAMESPACE}/endpointslices"


class Api:
    """The API server. Each call returns the monotonic time just before the request was sent."""

    def __init__(self, netns: str, port: int) -> None:
        def connect() -> socket.socket:
            sock = socket.create_connection(("127.0.0.1", port), timeout=60)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock

        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._connection.sock = inside(netns, connect)

    def create_service(self, number: int) -> float:
        """Create a Service."""
        return self._send("POST", SERVICES, clusters.service(number))

    def delete_service(self, number: int) -> float:
        """Delete a Service; its slice stays."""
        return self._send("DELETE", f"{SERVICES}/{clusters.name_of(number)}")

    def put_slice(self, obj: Json) -> float:
        """Replace an EndpointSlice."""
        return self._send("PUT", f"{SLICES}/{obj['metadata']['name']}", obj)

    def create_slice(self, obj: Json) -> float:
        """Create an EndpointSlice."""
        return self._send("POST", SLICES, obj)

    def delete_slice(self, number: int, place: int = 0) -> float:
        """Delete an EndpointSlice."""
        return self._send("DELETE", f"{SLICES}/{clusters.name_of(number)}-{place:05d}")

    def put_at_once(self, objects: Iterable[Json]) -> float:
        """Put many objects; those who watch are told at once."""
        return self._send("POST", "/_standin/objects", {"kind": "List", "apiVersion": "v1", "items": list(objects)})

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _send(self, method: str, path: str, body: Json | None = None) -> float:
        data = json.dumps(body).encode() if body is not None else None
        head = {"Content-Type": "application/json"} if data is not None else {}
        at = time.monotonic()
        self._connection.request(method, path, data, head)
        answer = self._connection.getresponse()
        told = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {told[:300]!r}")
        return at
