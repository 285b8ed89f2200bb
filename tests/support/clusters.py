"""Generated clusters of valid objects, of both families at once, and everything that may happen to them.

Valid means: the API server would store it. Crowded on purpose (few addresses, ports and nodes), so that services meet:
the same external IP, an endpoint in two slices, an external IP that is somebody's cluster IP.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec
from hypothesis import strategies as st

from pykubeproxy.model.topology import Placement
from pykubeproxy.rules.settings import LocalDetector, RuleSettings
from pykubeproxy.watch.manifests import ClusterObjects
from pykubeproxy.watch.objects import EndpointSlice, Service

NODES = ("node-a", "node-b", "node-a2")
ZONES = ("z1", "z2")
SERVICES = 4
"""Generated services are called by their number, so that a later one of the same number is its next version."""

EXTERNAL = ("203.0.113.1", "203.0.113.2", "198.51.100.7", "2001:db8::1", "2001:db8::2", "192.168.0.2", "fd00:168::2")
BALANCERS = ("203.0.113.1", "203.0.113.9", "2001:db8::1", "2001:db8::9")
RANGES = ("10.0.0.0/8", " 192.168.0.0/16", "198.51.100.5/32", "0.0.0.0/0", "2001:db8:5::/48", "::/0", "fd00:168::/64")
ENDPOINTS = {
    "IPv4": ("10.244.0.1", "10.244.0.2", "10.244.0.10", "10.244.1.1", "192.168.0.2"),
    "IPv6": ("fd00:10:244::1", "fd00:10:244::2", "fd00:10:244::a", "fd00:10:244:1::1", "fd00:168::2"),
}
TARGETS = (8080, 80, 9376)
NUMBERS = (80, 443, 53, 1, 65535)
CREATED = (None, "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z")
_NAMES = ("web", "a", "9lives", "a-rather-long-name-of-a-service-that-ends-just-at-the-limit-of63")
_NAMESPACES = ("default", "n", "a-namespace-whose-name-is-as-long-as-the-api-server-will-take63")
_CONDITIONS = (
    None,
    {"ready": True, "serving": True, "terminating": False},
    {"ready": True},
    {"ready": False, "serving": False, "terminating": False},
    {"ready": False, "serving": True, "terminating": True},
    {"ready": False, "serving": False, "terminating": True},
    {"terminating": True},
)
_HINTS = (
    None,
    None,
    {"forZones": [{"name": "z1"}]},
    {"forZones": [{"name": "z2"}]},
    {"forZones": [{"name": "z1"}, {"name": "z2"}]},
    {"forZones": [{"name": "z1"}], "forNodes": [{"name": "node-a"}]},
    {"forZones": [{"name": "z2"}], "forNodes": [{"name": "node-b"}]},
)


def key_of(number: int) -> tuple[str, str]:
    """Return (namespace, name) of the service with a number."""
    return _NAMESPACES[number % len(_NAMESPACES)], _NAMES[number % len(_NAMES)]


def addresses_of(number: int) -> dict[str, str]:
    """Return the cluster IPs of the service with a number; numbers 0 and 1 share a /28, 2 and 3 do not."""
    third = number // 2
    return {"IPv4": f"10.96.{third * 77}.{number + 1}", "IPv6": f"fd00:96::{third * 77:x}:{number + 1:x}"}


@st.composite
def services(draw: st.DrawFn, number: int) -> Service:
    """A version of the service with this number."""
    namespace, name = key_of(number)
    kind = draw(st.sampled_from(("ClusterIP", "ClusterIP", "NodePort", "NodePort", "LoadBalancer", "LoadBalancer")))
    families = draw(st.sampled_from((["IPv4"], ["IPv4", "IPv6"], ["IPv6", "IPv4"], ["IPv6"], ["IPv4"])))
    odd = draw(st.integers(0, 11))
    spec: dict[str, Any] = {"type": kind, "ipFamilies": families}
    spec["clusterIPs"] = [addresses_of(number)[family] for family in families]
    if odd == 0:
        spec |= {"type": "ClusterIP", "clusterIPs": ["None"]}
    elif odd == 1:
        spec = {"type": "ExternalName"}
    kind = spec["type"]
    if "clusterIPs" in spec:
        spec["clusterIP"] = spec["clusterIPs"][0]
    count = draw(st.integers(1, 3))
    pairs = draw(
        st.lists(
            st.tuples(st.sampled_from(NUMBERS[: count + 2]), st.sampled_from(("TCP", "TCP", "UDP", "SCTP"))),
            min_size=count,
            max_size=count,
            unique=True,
        )
    )
    has_node_ports = kind == "NodePort" or (kind == "LoadBalancer" and draw(st.booleans()))
    spec["ports"] = [
        {
            "port": port,
            "protocol": protocol,
            **({"name": f"p{index}"} if count > 1 else {}),
            **({"nodePort": 30000 + 10 * number + index} if has_node_ports else {}),
        }
        for index, (port, protocol) in enumerate(pairs)
    ]
    if draw(st.booleans()):
        spec["externalIPs"] = draw(
            st.lists(st.sampled_from((*EXTERNAL, addresses_of((number + 1) % SERVICES)["IPv4"])), max_size=3)
        )
    is_external = kind in ("NodePort", "LoadBalancer") or bool(spec.get("externalIPs"))
    if is_external and draw(st.booleans()):
        spec["externalTrafficPolicy"] = "Local"
        if kind == "LoadBalancer":
            spec["healthCheckNodePort"] = 31000 + number
    if draw(st.integers(0, 3)) == 0:
        spec["internalTrafficPolicy"] = "Local"
    if draw(st.integers(0, 2)) == 0:
        spec["sessionAffinity"] = "ClientIP"
        seconds = draw(st.sampled_from((1, 60, 10800, 86400)))
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": seconds}}
    status: dict[str, Any] = {}
    if kind == "LoadBalancer":
        spec["loadBalancerSourceRanges"] = draw(st.lists(st.sampled_from(RANGES), max_size=3))
        ingress = st.sampled_from(
            (
                *({"ip": ip} for ip in BALANCERS),
                {"ip": BALANCERS[0], "ipMode": "VIP"},
                {"ip": BALANCERS[1], "ipMode": "Proxy"},
                {"hostname": "lb.example"},
            )
        )
        status = {"loadBalancer": {"ingress": draw(st.lists(ingress, max_size=3))}}
    labels = {"service.kubernetes.io/service-proxy-name": ""} if odd == 2 else None
    created = draw(st.sampled_from(CREATED))
    meta = {"namespace": namespace, "name": name, "labels": labels, "creationTimestamp": created}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Service)


@st.composite
def slices(draw: st.DrawFn, number: int, index: int) -> EndpointSlice:
    """A version of a slice with this index, most likely of the service with this number."""
    namespace, _ = key_of(number)
    owner = draw(st.sampled_from((number,) * 9 + ((number + 3) % SERVICES,)))
    family = draw(st.sampled_from(("IPv4", "IPv4", "IPv6", "IPv6", "FQDN")))
    records = []
    if family == "FQDN":
        records = [{"addresses": ["pod.example"]}]
    else:
        for address in draw(st.lists(st.sampled_from(ENDPOINTS[family]), max_size=4)):
            conditions, hints, node = draw(
                st.tuples(st.sampled_from(_CONDITIONS), st.sampled_from(_HINTS), st.sampled_from((*NODES, None)))
            )
            records.append({"addresses": [address], "conditions": conditions, "hints": hints, "nodeName": node})
    names = draw(st.sampled_from((("",), ("p0", "p1"), ("p0", "p1", "p2"), ("p1",))))
    ports = [
        {"name": name, "port": draw(st.sampled_from(TARGETS)), "protocol": draw(st.sampled_from(("TCP", "TCP", "UDP")))}
        for name in names
    ]
    tree = {
        "metadata": {
            "namespace": namespace,
            "name": f"slice-{number}-{index}",
            "labels": {"kubernetes.io/service-name": key_of(owner)[1]},
        },
        "addressType": family,
        "endpoints": records,
        "ports": ports,
    }
    return msgspec.convert(tree, EndpointSlice)


@st.composite
def clusters(draw: st.DrawFn, *, largest: int = SERVICES) -> ClusterObjects:
    """Some services with up to three slices each, and slices without a service."""
    numbers = range(draw(st.integers(1, largest)))
    found = [draw(services(number)) for number in numbers]
    pieces = [draw(slices(number, index)) for number in numbers for index in range(draw(st.integers(0, 3)))]
    return ClusterObjects(found, pieces, [], [])


@st.composite
def settings(draw: st.DrawFn, family: str) -> RuleSettings:
    """The settings of one family on node node-a."""
    is_four = family == "IPv4"
    pods = "10.244.0.0/16" if is_four else "fd00:10:244::/48"
    detector = draw(
        st.sampled_from(
            (
                None,
                LocalDetector(network=pods),
                LocalDetector(network=pods),
                LocalDetector(network="0.0.0.0/0" if is_four else "::/0"),
                LocalDetector(interface="cni0"),
                LocalDetector(interface="veth+"),
            )
        )
    )
    own = "192.168.0.2" if is_four else "fd00:168::2"
    loopback = "127.0.0.1" if is_four else "::1"
    localhost = draw(st.booleans())
    chosen = draw(st.sampled_from((None, None, (own,), (loopback, own), ())))
    return RuleSettings(
        family,  # type: ignore[arg-type]
        here=Placement(draw(st.sampled_from(("node-a", "node-a", "node-a", ""))), draw(st.sampled_from(("", "z1")))),
        node_ip=own,
        masquerade_bit=draw(st.sampled_from((14, 0, 31))),
        masquerade_all=draw(st.sampled_from((False, False, True))),
        local_detector=detector,
        localhost_nodeports=localhost and is_four and (chosen is None or loopback in chosen),
        nodeport_addresses=chosen,
        tcp_be_liberal=draw(st.booleans()),
        random_fully=draw(st.sampled_from((True, True, False))),
        comments=draw(st.sampled_from((True, True, True, False))),
        uses_external_ips=draw(st.sampled_from((True, True, False))),
        uses_node_hints=draw(st.booleans()),
        strict_source_ranges=draw(st.booleans()),
    )


@dataclass(frozen=True, slots=True)
class World:
    """The objects that exist, by key. ``after`` an event is the next world."""

    services: dict[tuple[str, str], Service]
    slices: dict[tuple[str, str], EndpointSlice]

    @classmethod
    def of(cls, objects: ClusterObjects) -> World:
        """Take a cluster."""
        return cls({key_in(one): one for one in objects.services}, {key_in(one): one for one in objects.slices})

    @property
    def objects(self) -> ClusterObjects:
        """As a source would list it."""
        return ClusterObjects(list(self.services.values()), list(self.slices.values()), [], [])

    def put(self, obj: Service | EndpointSlice) -> World:
        """Add or replace an object."""
        if isinstance(obj, Service):
            return replace(self, services={**self.services, key_in(obj): obj})
        return replace(self, slices={**self.slices, key_in(obj): obj})

    def drop(self, kind: str, key: tuple[str, str]) -> World:
        """Delete an object; unknown ones are ignored."""
        if kind == "service":
            return replace(self, services={k: v for k, v in self.services.items() if k != key})
        return replace(self, slices={k: v for k, v in self.slices.items() if k != key})


def key_in(obj: Service | EndpointSlice) -> tuple[str, str]:
    """Return (namespace, name)."""
    return obj.metadata.namespace, obj.metadata.name


def slice_key(number: int, index: int) -> tuple[str, str]:
    """Return the key of a generated slice."""
    return key_of(number)[0], f"slice-{number}-{index}"
