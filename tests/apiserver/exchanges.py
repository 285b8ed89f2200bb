"""A conversation of writes, reads and mistakes, and what a real kube-apiserver 1.36.2 said to each.

``exchanges.json`` holds that.
Versions, uids and times are left out of what was said. Recorded by ``python -m tests.apiserver.exchanges`` with
KUBEBUILDER_ASSETS set.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.apiserver import compare
from tests.apiserver.realcluster import TOKENS, RealCluster
from tests.apiserver.wireclient import WireClient

RECORDED = Path(__file__).parent / "exchanges.json"

SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
NODES = "/api/v1/nodes"

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Exchange:
    name: str
    method: str
    path: str
    body: Any = None
    content_type: str = JSON
    accept: str = JSON

    def encoded(self) -> bytes:
        if self.body is None:
            return b""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"kind": "Service", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}


def labelled(obj: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}}


def endpoint_slice(name: str, *addresses: str) -> dict[str, Any]:
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]} for address in addresses],
        "ports": [{"port": 8080}],
    }


def selected(name: str, text: str, path: str = SERVICES) -> Exchange:
    return Exchange(name, "GET", f"{path}?labelSelector={quote(text)}")


def by_field(name: str, text: str, path: str = SERVICES) -> Exchange:
    return Exchange(name, "GET", f"{path}?fieldSelector={quote(text)}")


def as_table(name: str, path: str) -> Exchange:
    return Exchange(name, "GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json")


WEB = service("web", clusterIP="10.96.60.1", ports=[{"port": 80}])
MANY_PORTS = [{"name": "http", "port": 80, "targetPort": 8080}, {"name": "dns", "port": 53, "protocol": "UDP"}]
EVENT = {
    "kind": "Event",
    "apiVersion": "v1",
    "metadata": {"name": "old-style"},
    "involvedObject": {"kind": "Service", "namespace": "default", "name": "web"},
    "reason": "Tried",
    "message": "it was tried",
    "type": "Normal",
    "source": {"component": "tester"},
    "firstTimestamp": "2026-01-01T00:00:00Z",
    "lastTimestamp": "2026-01-01T00:00:00Z",
    "count": 1,
}
NEW_EVENT = {
    "kind": "Event",
    "apiVersion": "events.k8s.io/v1",
    "metadata": {"name": "new-style", "namespace": "default"},
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "reportingController": "kube-proxy",
    "reportingInstance": "node-a",
    "action": "Sync",
    "reason": "Failed",
    "regarding": {"kind": "Node", "name": "node-a"},
    "note": "it failed",
    "type": "Warning",
}
NODE = {
    "kind": "Node",
    "apiVersion": "v1",
    "metadata": {"name": "node-b", "labels": {"zone": "z2"}},
    "spec": {
        "podCIDR": "10.244.2.0/24",
        "podCIDRs": ["10.244.2.0/24"],
        "taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}],
    },
}

CONVERSATION: tuple[Exchange, ...] = (
    Exchange("create a service", "POST", SERVICES, WEB),
    Exchange("get it", "GET", f"{SERVICES}/web"),
    Exchange(
        "create a node port service",
        "POST",
        SERVICES,
        labelled(
            service("front", clusterIP="10.96.60.2", type="NodePort", ports=[{"port": 80, "nodePort": 30080}]), env="a"
        ),
    ),
    Exchange(
        "create a load balancer, local policy",
        "POST",
        SERVICES,
        labelled(
            service(
                "lb",
                clusterIP="10.96.60.3",
                type="LoadBalancer",
                externalTrafficPolicy="Local",
                healthCheckNodePort=30099,
                ports=[{"port": 80, "nodePort": 30081, "targetPort": "web"}],
            ),
            env="b",
        ),
    ),
    Exchange(
        "create a headless service with a selector",
        "POST",
        SERVICES,
        service("head-2", clusterIP="None", selector={"a": "b"}, ports=[{"port": 80}]),
    ),
    Exchange(
        "create a headless service",
        "POST",
        SERVICES,
        labelled(service("head", clusterIP="None", ports=[{"port": 80}]), env="c"),
    ),
    Exchange(
        "create an affinity service",
        "POST",
        SERVICES,
        service("sticky", clusterIP="10.96.60.4", sessionAffinity="ClientIP", ports=MANY_PORTS),
    ),
    Exchange(
        "create an external name", "POST", SERVICES, service("far", type="ExternalName", externalName="example.org")
    ),
    Exchange(
        "create a service with external IPs",
        "POST",
        SERVICES,
        service("ext", clusterIP="10.96.60.5", externalIPs=["203.0.113.7"], ports=[{"port": 80}]),
    ),
    Exchange("create nothing", "POST", SERVICES, b"{"),
    Exchange("create another kind", "POST", SERVICES, endpoint_slice("x")),
    Exchange("create without a name", "POST", SLICES, {**endpoint_slice("x"), "metadata": {}}),
    Exchange("create elsewhere", "POST", SERVICES, {**WEB, "metadata": {"name": "w", "namespace": "kube-system"}}),
    Exchange("create in an unknown format", "POST", SERVICES, WEB, "text/plain"),
    Exchange("update nothing new", "PUT", f"{SERVICES}/web", WEB),
    Exchange(
        "update a stale version", "PUT", f"{SERVICES}/web", {**WEB, "metadata": {"name": "web", "resourceVersion": "1"}}
    ),
    Exchange("update under another name", "PUT", f"{SERVICES}/web", {**WEB, "metadata": {"name": "other"}}),
    Exchange("update one that is missing", "PUT", f"{SLICES}/none", endpoint_slice("none")),
    Exchange("update without a cluster IP", "PUT", f"{SERVICES}/web", service("web", ports=MANY_PORTS)),
    Exchange("merge an annotation", "PATCH", f"{SERVICES}/web", {"metadata": {"annotations": {"a": "b"}}}, MERGE),
    Exchange("merge it away", "PATCH", f"{SERVICES}/web", {"metadata": {"annotations": {"a": None}}}, MERGE),
    Exchange(
        "add a port strategically",
        "PATCH",
        f"{SERVICES}/web",
        {"spec": {"ports": [{"port": 443, "name": "https"}]}},
        STRATEGIC,
    ),
    Exchange(
        "change a port strategically",
        "PATCH",
        f"{SERVICES}/web",
        {"spec": {"ports": [{"port": 80, "targetPort": 9090}]}},
        STRATEGIC,
    ),
    Exchange(
        "delete a port strategically",
        "PATCH",
        f"{SERVICES}/web",
        {"spec": {"ports": [{"port": 443, "$patch": "delete"}]}},
        STRATEGIC,
    ),
    Exchange(
        "order ports strategically",
        "PATCH",
        f"{SERVICES}/web",
        {"spec": {"$setElementOrder/ports": [{"port": 53}, {"port": 80}], "ports": [{"port": 80, "targetPort": 8081}]}},
        STRATEGIC,
    ),
    Exchange(
        "patch by JSON patch",
        "PATCH",
        f"{SERVICES}/web",
        [
            {"op": "replace", "path": "/spec/ports/0/port", "value": 54},
            {"op": "add", "path": "/metadata/labels", "value": {"x.y/z": "1"}},
        ],
        JSON_PATCH,
    ),
    Exchange(
        "remove by JSON patch",
        "PATCH",
        f"{SERVICES}/web",
        [{"op": "remove", "path": "/metadata/labels/x.y~1z"}],
        JSON_PATCH,
    ),
    Exchange(
        "test by JSON patch",
        "PATCH",
        f"{SERVICES}/web",
        [{"op": "test", "path": "/spec/type", "value": "X"}],
        JSON_PATCH,
    ),
    Exchange("patch with no JSON", "PATCH", f"{SERVICES}/web", b"{", MERGE),
    Exchange("patch in an unknown way", "PATCH", f"{SERVICES}/web", {}, JSON),
    Exchange("patch one that is missing", "PATCH", f"{SERVICES}/none", {"metadata": {}}, MERGE),
    Exchange(
        "apply a new service",
        "PATCH",
        f"{SERVICES}/applied?fieldManager=me",
        service("applied", clusterIP="10.96.60.9", ports=[{"port": 80, "protocol": "TCP"}]),
        APPLY,
    ),
    Exchange(
        "apply it changed",
        "PATCH",
        f"{SERVICES}/applied?fieldManager=me",
        service("applied", clusterIP="10.96.60.9", ports=[{"port": 81, "protocol": "TCP"}]),
        APPLY,
    ),
    Exchange("create a slice", "POST", SLICES, endpoint_slice("web-a", "10.244.1.1", "10.244.1.2")),
    Exchange("create it again", "POST", SLICES, endpoint_slice("web-a")),
    Exchange("create an empty slice", "POST", SLICES, {**endpoint_slice("web-b"), "ports": []}),
    Exchange(
        "update a slice's labels",
        "PUT",
        f"{SLICES}/web-a",
        labelled(endpoint_slice("web-a", "10.244.1.1", "10.244.1.2"), x="y"),
    ),
    Exchange("update a slice's endpoints", "PUT", f"{SLICES}/web-a", endpoint_slice("web-a", "10.244.1.1")),
    Exchange(
        "replace endpoints strategically",
        "PATCH",
        f"{SLICES}/web-a",
        {"endpoints": [{"addresses": ["10.244.1.9"], "conditions": {"ready": False}}]},
        STRATEGIC,
    ),
    Exchange("empty a slice", "PATCH", f"{SLICES}/web-a", {"endpoints": []}, MERGE),
    Exchange("list slices", "GET", SLICES),
    Exchange("list slices of all namespaces", "GET", "/apis/discovery.k8s.io/v1/endpointslices"),
    selected("labels: one of", "env in (a,b)"),
    selected("labels: none of", "env notin (a, b)"),
    selected("labels: there", "env"),
    selected("labels: not there", "!env"),
    selected("labels: not equal", "env!=a,component!=apiserver"),
    selected("labels: equal", "env==a"),
    selected("labels: empty value", "env="),
    selected("labels: word as a key", "in in (a)"),
    selected("labels: no values", "env in"),
    selected("labels: open bracket", "env in (a"),
    selected("labels: twice equal", "a=b=c"),
    selected("labels: trailing comma", "a,"),
    selected("labels: no key", "=x"),
    selected("labels: odd key", "-a=b"),
    selected("labels: odd value", "a=b_"),
    selected("labels: odd operator", "a ~ b"),
    selected("labels: bang alone", "!"),
    selected("labels: bang and value", "!a=b"),
    by_field("fields: name", "metadata.name=web"),
    by_field("fields: two", "metadata.name!=web,spec.type=ClusterIP"),
    by_field("fields: cluster IP", "spec.clusterIP=None"),
    by_field("fields: nonsense", "abc"),
    by_field("fields: unknown of slices", "addressType=IPv4", SLICES),
    by_field("fields: name of slices", "metadata.name=web-a,metadata.namespace=default", SLICES),
    by_field("fields: namespace of nodes", "metadata.namespace=x", NODES),
    Exchange("limit with a selector", "GET", f"{SERVICES}?limit=2&labelSelector=env"),
    Exchange("match without a version", "GET", f"{SERVICES}?resourceVersionMatch=Exact"),
    Exchange("exactly any version", "GET", f"{SERVICES}?resourceVersionMatch=Exact&resourceVersion=0"),
    Exchange("match of an unknown kind", "GET", f"{SERVICES}?resourceVersionMatch=Nearly&resourceVersion=1"),
    Exchange("initial events of a list", "GET", f"{SERVICES}?sendInitialEvents=true"),
    Exchange("initial events without a match", "GET", f"{SERVICES}?watch=1&sendInitialEvents=true"),
    Exchange(
        "a watch with a match only", "GET", f"{SERVICES}?watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1"
    ),
    Exchange(
        "a watch with an odd match",
        "GET",
        f"{SERVICES}?watch=1&resourceVersionMatch=Exact&sendInitialEvents=true&resourceVersion=1",
    ),
    Exchange("a watch with a bad version", "GET", f"{SERVICES}?watch=1&resourceVersion=x"),
    Exchange("a watch with a bad selector", "GET", f"{SERVICES}?watch=1&fieldSelector=a%3Db"),
    Exchange(
        "both a token and a version",
        "GET",
        f"{SERVICES}?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0&resourceVersion=5",
    ),
    Exchange("a token of no key", "GET", f"{SERVICES}?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIifQ"),
    Exchange(
        "a token of no version", "GET", f"{SERVICES}?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJhIn0"
    ),
    Exchange("a token of another age", "GET", f"{SERVICES}?continue=eyJ2IjoidjIiLCJydiI6MSwic3RhcnQiOiJhIn0"),
    Exchange("a token out of base64", "GET", f"{SERVICES}?continue=a%2Bb"),
    Exchange("create a node", "POST", NODES, NODE),
    Exchange(
        "taint it", "PATCH", f"{NODES}/node-b", {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}, STRATEGIC
    ),
    Exchange(
        "give it addresses",
        "PATCH",
        f"{NODES}/node-b/status",
        {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.12"}]}},
        STRATEGIC,
    ),
    by_field("fields: schedulable nodes", "spec.unschedulable=false", NODES),
    Exchange("create an event", "POST", EVENTS, EVENT),
    Exchange("see it in the new group", "GET", f"{NEW_EVENTS}/old-style"),
    Exchange("create an event in the new group", "POST", NEW_EVENTS, NEW_EVENT),
    Exchange("see it in the old group", "GET", f"{EVENTS}/new-style"),
    by_field("events by object", "involvedObject.name=web", EVENTS),
    by_field("events by object, new group", "regarding.name=node-a", NEW_EVENTS),
    Exchange(
        "patch an event in the new group",
        "PATCH",
        f"{NEW_EVENTS}/new-style",
        {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}},
        STRATEGIC,
    ),
    Exchange("service CIDRs", "GET", "/apis/networking.k8s.io/v1/servicecidrs?fieldSelector=metadata.name%3Dnone"),
    Exchange("an unknown path", "GET", "/nosuch"),
    Exchange("an unknown group", "GET", "/apis/nosuch.example.org/v1/things"),
    Exchange("an unknown subresource", "GET", f"{SERVICES}/web/nosuch"),
    Exchange("create at an object", "POST", f"{SERVICES}/web", WEB),
    Exchange("patch a collection", "PATCH", SERVICES, {}, MERGE),
    Exchange("an unreadable answer", "GET", f"{SERVICES}/web", accept="text/html"),
    Exchange(
        "kubectl's table or JSON",
        "GET",
        f"{SERVICES}/none",
        accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    ),
    as_table("services as a table", SERVICES),
    as_table("a service as a table", f"{SERVICES}/front"),
    as_table("slices as a table", SLICES),
    as_table("nodes as a table", NODES),
    as_table("events as a table", f"{EVENTS}?fieldSelector=type%3DWarning,reason%3DFailed"),
    as_table("new events as a table", f"{NEW_EVENTS}?fieldSelector=reason%3DTried"),
    as_table("a watch of tables", f"{SERVICES}?watch=1&timeoutSeconds=1&labelSelector=env"),
    Exchange("a watch of one", "GET", f"{SERVICES}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dweb"),
    Exchange("delete a slice", "DELETE", f"{SLICES}/web-a"),
    Exchange("delete a service", "DELETE", f"{SERVICES}/web"),
    Exchange("delete it again", "DELETE", f"{SERVICES}/web"),
    Exchange("delete an event", "DELETE", f"{EVENTS}/old-style"),
    Exchange("delete a node", "DELETE", f"{NODES}/node-b"),
    Exchange("delete by label", "DELETE", f"{SLICES}?labelSelector=kubernetes.io%2Fservice-name%3Dweb"),
    Exchange("what is left", "GET", SLICES),
)


def hold(open_client: Callable[[], WireClient], token: str) -> list[dict[str, Any]]:
    """Have the conversation; return what was said, without what cannot be known."""
    said = []
    for exchange in CONVERSATION:
        headers = {"Authorization": f"Bearer {token}", "Accept": exchange.accept, "Content-Type": exchange.content_type}
        with open_client() as client:
            client.send(exchange.method, exchange.path, headers, exchange.encoded())
            status, given = client.head()
            body = client.body()
        if "watch=1" in exchange.path and status == 200:
            lines = [compare.loosely(json.loads(line)) for line in body.splitlines()]
            said.append({"name": exchange.name, "status": status, "lines": lines})
            continue
        is_json = given.get("Content-Type") == "application/json"
        said.append(
            {
                "name": exchange.name,
                "status": status,
                "content type": given.get("Content-Type"),
                "body": compare.loosely(json.loads(body)) if is_json else body.decode(),
            }
        )
    return said


def main() -> None:
    with RealCluster() as cluster:
        said = hold(lambda: WireClient("127.0.0.1", cluster.port, cluster.context), TOKENS["valid"])
    RECORDED.write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
