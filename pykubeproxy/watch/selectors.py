"""What of each resource is asked for, and the same told locally: kube-proxy's selectors. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pykubeproxy.watch.objects import HEADLESS_LABEL, PROXY_NAME_LABEL, KubeObject, Node, Service
from pykubeproxy.watch.source import Resource


@dataclass(frozen=True, slots=True)
class Selectors:
    """What of a resource is asked for; ``field`` is left out where a server refuses it."""

    label: str = ""
    field: str = ""


def selectors_of(resource: Resource, node_name: str) -> Selectors:
    """Return kube-proxy's selectors (pkg/proxy/config and cmd/kube-proxy/app/server.go)."""
    match resource:
        case "services":
            return Selectors(f"!{PROXY_NAME_LABEL}", "spec.clusterIP!=None")
        case "endpointslices":
            return Selectors(f"!{HEADLESS_LABEL}")
        case "nodes":
            return Selectors(field=f"metadata.name={node_name}")


def is_selected(obj: KubeObject, node_name: str) -> bool:
    """Tell locally what the selectors ask of the server; an empty ``node_name`` takes every Node."""
    labels = obj.metadata.labels
    if isinstance(obj, Service):
        if obj.spec is not None and obj.spec.cluster_ip == "None":
            return False
        return not labels or PROXY_NAME_LABEL not in labels
    if isinstance(obj, Node):
        return not node_name or obj.metadata.name == node_name
    return not labels or HEADLESS_LABEL not in labels
