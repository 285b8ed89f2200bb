"""Small objects, and ways to ask a stand-in: each returns what came over the wire."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from e2e.apiserver import StandIn
from tests.apiserver.wireclient import WireClient

SERVICES = "/api/v1/services"
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"


def service(name: str, address: str = "10.96.0.10", **metadata: Any) -> dict[str, Any]:
    return {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"clusterIP": address, "ports": [{"port": 80, "protocol": "TCP"}]},
    }


def endpoint_slice(name: str, *addresses: str) -> dict[str, Any]:
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"name": name, "namespace": "default"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]} for address in addresses],
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
    }


def ask(
    server: StandIn, path: str, *, method: str = "GET", bearer: str = "", body: Any = None, context: Any = None
) -> WireClient:
    """Send one request and return the client, before anything of the answer is read."""
    client = WireClient("127.0.0.1", server.port, context)
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    if bearer:
        headers["Authorization"] = f"Bearer {bearer}"
    client.send(method, path, headers, b"" if body is None else json.dumps(body).encode())
    return client


def answer(server: StandIn, path: str, **how: Any) -> tuple[int, Any]:
    """Return (status, body) of a whole answer."""
    with ask(server, path, **how) as client:
        status, _ = client.head()
        body = client.body()
        assert not client.is_cut
    return status, json.loads(body)


def watch(server: StandIn, path: str = SERVICES, **options: Any) -> WireClient:
    """Open a watch and return it once the server counts it as open."""
    resource = path.rsplit("/", 1)[1]
    before = server.stats.open_watches(resource)
    client = ask(server, f"{path}?{urlencode({'watch': 1, **options})}")
    assert client.head()[0] == 200
    server.stats.wait(lambda stats: stats.open_watches(resource) > before)
    return client


def names(body: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in body["items"]]


def event(line: dict[str, Any]) -> tuple[str, str]:
    return line["type"], line["object"]["metadata"].get("name", "")
