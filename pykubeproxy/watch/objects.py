"""The few fields of Kubernetes objects that a service proxy reads, as msgspec structs.

Field names are those of the API (camelCase renamed). Unknown fields are skipped by the decoder without being built.
``null`` is accepted wherever the API server may send it: it stores an empty ``endpoints`` or ``ports`` as null.
Source: Kubernetes API types core/v1 and discovery.k8s.io/v1.
"""

from __future__ import annotations

import msgspec

PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name"
"""Services that carry this label, with whatever value, are left to another proxy (KEP-2447)."""
HEADLESS_LABEL = "service.kubernetes.io/headless"
"""Slices of headless services carry it."""
SERVICE_NAME_LABEL = "kubernetes.io/service-name"
"""Whose a slice is."""


Places = dict[str, list[int]]
"""Of a list (by its path) from which items were left out: where the items that are left stood. See watch.mend."""


class _Api(msgspec.Struct, rename="camel", gc=False, omit_defaults=True):
    """Base of all structs read from the API: camelCase on the wire, no cycles, so no garbage collector tracking."""


class ObjectMeta(_Api):
    """What is read of metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class ServicePortSpec(_Api):
    """One port of a Service."""

    port: int = 0
    name: str | None = None
    protocol: str | None = None
    node_port: int | None = None


class ClientIPConfig(_Api):
    """How long ClientIP affinity lasts."""

    timeout_seconds: int | None = None


class SessionAffinityConfig(_Api):
    """Settings of session affinity."""

    client_ip: ClientIPConfig | None = msgspec.field(default=None, name="clientIP")


class ServiceSpec(_Api):
    """What is read of a Service's spec."""

    ports: list[ServicePortSpec] | None = None
    cluster_ip: str | None = msgspec.field(default=None, name="clusterIP")
    cluster_ips: list[str] | None = msgspec.field(default=None, name="clusterIPs")
    type: str | None = None
    external_ips: list[str] | None = msgspec.field(default=None, name="externalIPs")
    session_affinity: str | None = None
    session_affinity_config: SessionAffinityConfig | None = None
    external_traffic_policy: str | None = None
    internal_traffic_policy: str | None = None
    traffic_distribution: str | None = None
    health_check_node_port: int | None = None
    load_balancer_source_ranges: list[str] | None = None
    ip_families: list[str] | None = None


class LoadBalancerIngress(_Api):
    """One address that a load balancer was given."""

    ip: str | None = None
    hostname: str | None = None
    ip_mode: str | None = None


class LoadBalancerStatus(_Api):
    """What a cloud or MetalLB reported."""

    ingress: list[LoadBalancerIngress] | None = None


class ServiceStatus(_Api):
    """What is read of a Service's status."""

    load_balancer: LoadBalancerStatus | None = None


class Service(_Api):
    """A Service."""

    metadata: ObjectMeta
    spec: ServiceSpec | None = None
    status: ServiceStatus | None = None
    places: Places | None = msgspec.field(default=None, name=" places")  # no API server can name it


class EndpointConditions(_Api):
    """State of an endpoint; null means unknown, read as ready, serving and not terminating."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class ForZone(_Api):
    """A zone or node that an endpoint should serve."""

    name: str = ""


class EndpointHints(_Api):
    """Where an endpoint should be used."""

    for_zones: list[ForZone] | None = None
    for_nodes: list[ForZone] | None = None


class Endpoint(_Api):
    """One record of an EndpointSlice."""

    addresses: list[str] | None = None
    conditions: EndpointConditions | None = None
    node_name: str | None = None
    hints: EndpointHints | None = None


class EndpointPort(_Api):
    """One port of an EndpointSlice."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class EndpointSlice(_Api):
    """An EndpointSlice."""

    metadata: ObjectMeta
    address_type: str = ""
    endpoints: list[Endpoint] | None = None
    ports: list[EndpointPort] | None = None
    places: Places | None = msgspec.field(default=None, name=" places")


class Taint(_Api):
    """A taint of a Node, by its key."""

    key: str = ""


class NodeSpec(_Api):
    """What is read of a Node's spec."""

    pod_cidr: str | None = msgspec.field(default=None, name="podCIDR")
    pod_cidrs: list[str] | None = msgspec.field(default=None, name="podCIDRs")
    taints: list[Taint] | None = None


class NodeAddress(_Api):
    """One address of a Node."""

    type: str = ""
    address: str = ""


class NodeStatus(_Api):
    """What is read of a Node's status."""

    addresses: list[NodeAddress] | None = None


class Node(_Api):
    """A Node."""

    metadata: ObjectMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


KubeObject = Service | EndpointSlice | Node


def place(field: str, places: Places | None) -> str:
    """Return a field's path as the object was written, if items before it were left out of its list."""
    path, bracket, rest = field.partition("[")
    index, _, tail = rest.partition("]")
    if not places or not bracket or path not in places or not index.isdigit() or int(index) >= len(places[path]):
        return field
    return f"{path}[{places[path][int(index)]}]{tail}"
