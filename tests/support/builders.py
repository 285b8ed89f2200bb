"""Objects and settings for tests, written as the API has them: what a test leaves out is what does not matter to it."""

from __future__ import annotations

from typing import Any

import msgspec

from pykubeproxy.dryrun import desired as desired_of
from pykubeproxy.model.addresses import Family
from pykubeproxy.model.state import ClusterState
from pykubeproxy.model.topology import Placement
from pykubeproxy.rules.settings import LocalDetector, RuleSettings
from pykubeproxy.sync.desired import Desired
from pykubeproxy.watch.manifests import ClusterObjects
from pykubeproxy.watch.objects import EndpointSlice, Service

NODE = "node-a"


def port(number: int = 80, name: str = "", protocol: str = "TCP", node_port: int = 0) -> dict[str, Any]:
    """One port of a Service."""
    found: dict[str, Any] = {"port": number, "protocol": protocol}
    if name:
        found["name"] = name
    if node_port:
        found["nodePort"] = node_port
    return found


def service(
    name: str = "web",
    namespace: str = "default",
    *,
    ip: str | None = "10.96.0.10",
    ports: list[dict[str, Any]] | None = None,
    lb: list[Any] | None = None,
    created: str | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Service:
    """A Service. ``lb``: ingress addresses, or whole ingress records; ``spec``: fields by their API names."""
    addresses = [ip] if ip is not None else []
    families = ["IPv6" if ":" in address else "IPv4" for address in addresses]
    kind = (
        "LoadBalancer" if lb is not None else "NodePort" if any("nodePort" in p for p in ports or ()) else "ClusterIP"
    )
    tree = {
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "creationTimestamp": created},
        "spec": {
            "type": kind,
            "clusterIP": ip,
            "clusterIPs": addresses,
            "ipFamilies": families,
            "ports": ports if ports is not None else [port()],
            **spec,
        },
        "status": {"loadBalancer": {"ingress": [x if isinstance(x, dict) else {"ip": x} for x in lb or ()]}},
    }
    return msgspec.convert(tree, Service)


def endpoint(address: str, node: str | None = NODE, **more: Any) -> dict[str, Any]:
    """One record of a slice; ``more``: ready, serving, terminating, zones, nodes."""
    found: dict[str, Any] = {"addresses": [address], "nodeName": node}
    conditions = {key: more[key] for key in ("ready", "serving", "terminating") if key in more}
    if conditions:
        found["conditions"] = conditions
    hints = {}
    if "zones" in more:
        hints["forZones"] = [{"name": zone} for zone in more["zones"]]
    if "nodes" in more:
        hints["forNodes"] = [{"name": one} for one in more["nodes"]]
    if hints:
        found["hints"] = hints
    return found


def endpoint_slice(
    service_name: str = "web",
    endpoints: list[Any] | None = None,
    *,
    name: str | None = None,
    namespace: str = "default",
    family: str = "IPv4",
    ports: list[dict[str, Any]] | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> EndpointSlice:
    """An EndpointSlice of a service; endpoints are addresses or whole records."""
    tree = {
        "metadata": {
            "name": name or f"{service_name}-1",
            "namespace": namespace,
            "annotations": annotations,
            "labels": {"kubernetes.io/service-name": service_name} if labels is None else labels,
        },
        "addressType": family,
        "endpoints": [x if isinstance(x, dict) else endpoint(x) for x in endpoints or ()],
        "ports": ports if ports is not None else [slice_port()],
    }
    return msgspec.convert(tree, EndpointSlice)


def slice_port(number: int = 8080, name: str = "", protocol: str = "TCP") -> dict[str, Any]:
    """One port of a slice."""
    return {"port": number, "name": name, "protocol": protocol}


def settings(family: Family = "IPv4", **more: Any) -> RuleSettings:
    """Settings of a node named node-a whose pods are 10.244.0.0/16 and fd00:10:244::/48."""
    given: dict[str, Any] = {
        "here": Placement(NODE),
        "node_ip": "192.168.0.2" if family == "IPv4" else "fd00:168::2",
        "local_detector": LocalDetector(network="10.244.0.0/16" if family == "IPv4" else "fd00:10:244::/48"),
        "localhost_nodeports": family == "IPv4",
    }
    return RuleSettings(family, **(given | more))


def cluster(*objects: Service | EndpointSlice) -> ClusterObjects:
    """Objects as a source hands them over."""
    return ClusterObjects(
        [one for one in objects if isinstance(one, Service)],
        [one for one in objects if isinstance(one, EndpointSlice)],
        [],
        [],
    )


def desired(*objects: Service | EndpointSlice, at: RuleSettings | None = None, dispatch: str = "flat") -> Desired:
    """What is wanted for these objects, rendered at once."""
    at = at or settings()
    return desired_of(at.family, cluster(*objects), at, dispatch=dispatch)


def state(*objects: Service | EndpointSlice, family: Family = "IPv4", **more: Any) -> ClusterState:
    """A synced state that holds these objects."""
    found = ClusterState(family, **more)
    whole = cluster(*objects)
    found.replace_services(whole.services)
    found.replace_slices(whole.slices)
    return found


def rules(wanted: Desired, table: str, chain: str) -> list[str]:
    """Return a chain's rules without ``-A CHAIN ``; a missing chain is an error."""
    head = f"-A {chain} "
    return [line.removeprefix(head) for line in wanted.ruleset.chains[table][chain].splitlines()]
