"""Which endpoints serve which traffic: the whole of traffic policy, as one pure function.

Sources: KEP-1669 (terminating endpoints), KEP-2433 and KEP-3015 (topology hints, PreferSameNode), KEP-2086 (internal
traffic policy), and kube-proxy's pkg/proxy/topology.go, whose decisions these are.
"""

from __future__ import annotations

from typing import NamedTuple

from pykubeproxy.model.endpoint import Endpoint
from pykubeproxy.model.service import ServicePort


class Placement(NamedTuple):
    """Where this node stands: its name and its zone ("" when the Node carries no zone label)."""

    node: str
    zone: str = ""


class Categories(NamedTuple):
    """The answer for one service port. Tuples keep the order of the endpoints given."""

    cluster: tuple[Endpoint, ...]
    """Endpoints for traffic under policy Cluster."""
    local: tuple[Endpoint, ...]
    """Endpoints for traffic under policy Local."""
    reachable: tuple[Endpoint, ...]
    """Union of both: every endpoint that some rule of this node points to."""
    exist_anywhere: bool
    """Whether the service has any usable endpoint in the cluster; if not, traffic is rejected rather than dropped."""
    hints: str = ""
    """"node" or "zone" when hints narrowed the cluster endpoints, else ""."""


def categorize(
    endpoints: tuple[Endpoint, ...], port: ServicePort, here: Placement, *, node_hints: bool = True
) -> Categories:
    """Sort a service port's endpoints by the traffic that they serve on this node.

    ``node_hints`` is the feature gate PreferSameTrafficDistribution.
    """
    cluster: tuple[Endpoint, ...] = ()
    local: tuple[Endpoint, ...] = ()
    exist = False
    hints = ""
    ready = tuple(e for e in endpoints if e.is_ready)
    if port.uses_cluster_endpoints:
        hints = _hints(ready, here, node_hints=node_hints)
        if hints == "node":
            cluster = tuple(e for e in ready if here.node in e.node_hints)
        elif hints == "zone":
            cluster = tuple(e for e in ready if here.zone in e.zone_hints)
        else:
            cluster = ready
        if not cluster:
            cluster = tuple(e for e in endpoints if e.is_serving and e.is_terminating)
        exist = bool(cluster)
    if not port.uses_local_endpoints:
        return Categories(cluster, (), cluster, exist, hints)

    exist = exist or bool(ready) or any(e.is_serving and e.is_terminating for e in endpoints)
    local = tuple(e for e in ready if is_local(e, here))
    if not local:
        local = tuple(e for e in endpoints if e.is_serving and e.is_terminating and is_local(e, here))
    if not port.uses_cluster_endpoints:
        return Categories((), local, local, exist)
    wanted = {e.target for e in cluster} | {e.target for e in local}
    return Categories(cluster, local, tuple(e for e in endpoints if e.target in wanted), exist, hints)


def is_local(endpoint: Endpoint, here: Placement) -> bool:
    """Tell whether an endpoint runs on this node; one without a node name does not."""
    return bool(here.node) and endpoint.node == here.node


def _hints(ready: tuple[Endpoint, ...], here: Placement, *, node_hints: bool) -> str:
    if not ready:
        return ""
    if node_hints and all(e.node_hints for e in ready) and any(here.node in e.node_hints for e in ready):
        return "node"
    if all(e.zone_hints for e in ready) and any(here.zone in e.zone_hints for e in ready):
        return "zone"
    return ""
