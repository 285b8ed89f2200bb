"""Clusters of any size as API objects, and what they are to become in the kernel. Pure.

The objects are as large as real ones: with owner references, target references and managed fields, which a proxy has to
skip. Addresses: services 10.96.0.0/12, endpoints 10.128.0.0/9, so that one route answers for all endpoints.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

PORT = 80
TARGET_PORT = 8080
PER_SLICE = 100
"""Endpoints in one slice, as the controller makes them."""
NAMESPACE = "bench"
NODE = "node-a"
POD_CIDR = "10.128.0.0/9"
"""Where endpoints live; at the same time the cluster CIDR of the proxies."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """``services`` services with ``endpoints`` endpoints each."""

    services: int
    endpoints: int

    def __str__(self) -> str:
        return f"{self.services:,} x {self.endpoints:,}"

    def objects(self) -> Iterator[Json]:
        """Yield the Node, then each Service with its slice or slices."""
        yield node()
        for number in range(self.services):
            yield service(number)
            yield from slices(number, list(range(self.endpoints)))

    @property
    def rules_of_service(self) -> int:
        """Rules of a KUBE-SVC chain: masquerading what comes from outside, and one for each endpoint."""
        return 1 + self.endpoints

    @property
    def least_entries(self) -> int:
        """Entries that a legacy nat table has at the least: rules, and two for each chain."""
        per_service = 1 + self.rules_of_service + 2 + self.endpoints * (2 + 2)
        return self.services * per_service


def name_of(number: int) -> str:
    """Return a service's name."""
    return f"svc-{number:05d}"


def cluster_ip(number: int) -> str:
    """Return a service's address: allocated all over the range, as API servers do, yet without a repetition."""
    place = (number * 40503) % (1 << 20)  # odd, so a permutation of the /12
    return f"10.{96 + (place >> 16)}.{place >> 8 & 255}.{place & 255}"


def endpoint_ip(number: int, index: int) -> str:
    """Return an endpoint's address; ``index`` counts on for endpoints that come later."""
    place = (number << 12 | index) + 256
    return f"10.{128 + (place >> 16)}.{place >> 8 & 255}.{place & 255}" if place < 1 << 23 else _far(place)


def _far(place: int) -> str:
    return endpoint_ip(0, place % (1 << 22))


def node() -> Json:
    """Return the own Node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}},
        "spec": {"podCIDR": "10.128.0.0/24", "podCIDRs": ["10.128.0.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.168.77.1"}]},
    }


def service(number: int) -> Json:
    """Return a Service."""
    name, address = name_of(number), cluster_ip(number)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": name, "team": f"team-{number % 50}"},
            "managedFields": _managed("kubectl-create"),
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address,
            "clusterIPs": [address],
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
            "sessionAffinity": "None",
            "selector": {"app": name},
            "ports": [{"name": "http", "port": PORT, "protocol": "TCP", "targetPort": TARGET_PORT}],
        },
    }


def slices(number: int, indices: list[int]) -> Iterator[Json]:
    """Yield the EndpointSlices of a service with these endpoints."""
    for first in range(0, max(1, len(indices)), PER_SLICE):
        yield endpoint_slice(number, indices[first : first + PER_SLICE], first // PER_SLICE)


def endpoint_slice(number: int, indices: list[int], place: int = 0) -> Json:
    """Return one EndpointSlice."""
    name = name_of(number)
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{name}-{place:05d}",
            "namespace": NAMESPACE,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "app": name,
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                "kubernetes.io/service-name": name,
            },
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "name": name,
                    "uid": f"00000000-0000-4000-8000-{number:012d}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": _managed("kube-controller-manager"),
        },
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": [endpoint_ip(number, index)],
                "conditions": {"ready": True, "serving": True, "terminating": False},
                "nodeName": f"node-{index % 100:03d}",
                "zone": f"zone-{index % 3}",
                "targetRef": {
                    "kind": "Pod",
                    "namespace": NAMESPACE,
                    "name": f"{name}-7d4b9c6f5-{index:05d}",
                    "uid": f"10000000-0000-4000-8000-{number:06d}{index:06d}",
                },
            }
            for index in indices
        ],
        "ports": [{"name": "http", "port": TARGET_PORT, "protocol": "TCP"}],
    }


def _managed(manager: str) -> list[Json]:
    fields = {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:ports": {}, "f:selector": {}}}
    return [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
    ]


# What it becomes


def service_chain(number: int) -> str:
    """Return the chain of a service (kube-proxy's servicePortChainName)."""
    return "KUBE-SVC-" + _hash(_seed(number))


def endpoint_chain(number: int, index: int) -> str:
    """Return the chain of an endpoint (kube-proxy's servicePortEndpointChainName)."""
    return "KUBE-SEP-" + _hash(f"{_seed(number)}{endpoint_ip(number, index)}:{TARGET_PORT}")


def _seed(number: int) -> str:
    return f"{NAMESPACE}/{name_of(number)}:httptcp"


def _hash(text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest())[:16].decode()
