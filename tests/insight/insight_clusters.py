"""Small random clusters, crowded on purpose: few addresses, ports and nodes, so that things meet."""

from hypothesis import strategies as st

from pykubeproxy.insight.packet import Packet
from pykubeproxy.model.service import ServicePortName
from pykubeproxy.model.topology import Placement
from pykubeproxy.rules.names import PortChains
from pykubeproxy.rules.settings import LocalDetector, RuleSettings
from pykubeproxy.watch import objects as api
from pykubeproxy.watch.manifests import ClusterObjects

NODES = ("node-a", "node-b")
ZONES = ("z1", "z2")
PROTOCOLS = ("TCP", "UDP", "SCTP")
ADDRESSES = {
    "IPv4": {
        "cluster": ("10.96.0.1", "10.96.0.2", "10.96.0.3"),
        "external": ("203.0.113.1", "203.0.113.2", "192.168.0.1", "10.96.0.2"),
        "endpoint": ("10.244.0.1", "10.244.0.2", "10.244.1.1", "192.168.0.1", "203.0.113.1"),
        "node": ("192.168.0.1", "192.168.1.1"),
        "loopback": "127.0.0.1",
        "source": (
            "10.244.0.1",
            "10.244.0.9",
            "10.244.1.1",
            "192.168.0.77",
            "198.51.100.1",
            "192.168.0.1",
            "203.0.113.1",
        ),
        "range": ("10.244.0.0/16", "192.168.0.0/24", "198.51.100.0/24", "0.0.0.0/0", "fd00::/8"),
        "pods": ("10.244.0.0/16", "0.0.0.0/0"),
    },
    "IPv6": {
        "cluster": ("fd00:96::1", "fd00:96::2", "fd00:96::3"),
        "external": ("2001:db8::1", "2001:db8::2", "fd00:77::1", "fd00:96::2"),
        "endpoint": ("fd00:244::1", "fd00:244::2", "fd00:244:1::1", "fd00:77::1", "2001:db8::1"),
        "node": ("fd00:77::1", "fd00:78::1"),
        "loopback": "::1",
        "source": (
            "fd00:244::1",
            "fd00:244::9",
            "fd00:244:1::1",
            "fd00:77::77",
            "2001:db8:1::1",
            "fd00:77::1",
            "2001:db8::1",
        ),
        "range": ("fd00:244::/32", "fd00:77::/64", "2001:db8:1::/48", "::/0", "10.0.0.0/8"),
        "pods": ("fd00:244::/32", "::/0"),
    },
}
PORTS = (80, 443, 30080)
NODE_PORTS = (30080, 30081, 30082, 30083, 30084, 30085)


@st.composite
def services(draw, family, index, node_ports):
    there = ADDRESSES[family]
    kind = draw(st.sampled_from(("ClusterIP", "NodePort", "LoadBalancer")))
    address = draw(st.sampled_from((*there["cluster"], "None") if index else there["cluster"]))
    count = draw(st.integers(1, 2))
    ports = []
    for number in range(count):
        protocol = draw(st.sampled_from(PROTOCOLS[: 2 + (index == 0)]))
        node_port = 0
        if kind != "ClusterIP" and draw(st.integers(0, 4)):
            node_port = node_ports.pop()
        ports.append(
            api.ServicePortSpec(
                port=draw(st.sampled_from(PORTS)),
                name=f"p{number}" if count > 1 else "",
                protocol=protocol,
                node_port=node_port or None,
            )
        )
    affinity = draw(st.sampled_from((None, None, "ClientIP")))
    local = draw(st.booleans()) and kind != "ClusterIP"
    spec = api.ServiceSpec(
        ports=ports,
        cluster_ip=address,
        cluster_ips=[address],
        ip_families=[family],
        type=kind,
        external_ips=draw(st.lists(st.sampled_from(there["external"]), max_size=2, unique=True)),
        session_affinity=affinity,
        session_affinity_config=api.SessionAffinityConfig(api.ClientIPConfig(draw(st.sampled_from((1, 60)))))
        if affinity
        else None,
        external_traffic_policy="Local" if local else "Cluster",
        internal_traffic_policy=draw(st.sampled_from(("Cluster", "Cluster", "Local"))),
        health_check_node_port=draw(st.sampled_from((31000, 30083))) if local and kind == "LoadBalancer" else None,
        load_balancer_source_ranges=draw(st.lists(st.sampled_from(there["range"]), max_size=2, unique=True)),
    )
    status = None
    if kind == "LoadBalancer":
        ips = draw(st.lists(st.sampled_from(there["external"]), max_size=2, unique=True))
        mode = draw(st.sampled_from((None, "VIP", "Proxy")))
        status = api.ServiceStatus(api.LoadBalancerStatus([api.LoadBalancerIngress(ip=ip, ip_mode=mode) for ip in ips]))
    meta = api.ObjectMeta(
        name=f"s{index}",
        namespace="default",
        creation_timestamp=draw(st.sampled_from((None, "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"))),
    )
    return api.Service(meta, spec, status)


@st.composite
def endpoints(draw, family, address, *, hinted):
    node_hints = zone_hints = None
    if hinted:
        node_hints = [api.ForZone(draw(st.sampled_from(NODES)))] if draw(st.integers(0, 3)) else None
        zone_hints = [api.ForZone(draw(st.sampled_from(ZONES)))] if draw(st.integers(0, 5)) else None
    ready = draw(st.sampled_from((None, True, True, False)))
    return api.Endpoint(
        addresses=[address],
        conditions=api.EndpointConditions(
            ready=ready,
            serving=draw(st.sampled_from((None, True, False))),
            terminating=draw(st.sampled_from((None, False, True))),
        ),
        node_name=draw(st.sampled_from((*NODES, None))),
        hints=api.EndpointHints(for_zones=zone_hints, for_nodes=node_hints) if hinted else None,
    )


@st.composite
def slices(draw, family, service, number):
    addresses = draw(st.lists(st.sampled_from(ADDRESSES[family]["endpoint"]), max_size=4, unique=True))
    hinted = draw(st.booleans())
    ports = [
        api.EndpointPort(name=port.name or "", port=draw(st.sampled_from((8080, 80, 30080))), protocol=port.protocol)
        for port in service.spec.ports
        if draw(st.integers(0, 9))
    ]
    return api.EndpointSlice(
        api.ObjectMeta(
            name=f"{service.metadata.name}-{number}",
            namespace="default",
            labels={"kubernetes.io/service-name": service.metadata.name},
        ),
        address_type=family,
        endpoints=[draw(endpoints(family, address, hinted=hinted)) for address in addresses],
        ports=ports,
    )


@st.composite
def clusters(draw, family):
    node_ports = list(NODE_PORTS)
    found = [draw(services(family, index, node_ports)) for index in range(draw(st.integers(1, 3)))]
    pieces = [draw(slices(family, one, number)) for one in found for number in range(draw(st.integers(0, 2)))]
    return ClusterObjects(found, pieces, [], [])


@st.composite
def settings(draw, family):
    there = ADDRESSES[family]
    detectors = (None, *(LocalDetector(network=net) for net in there["pods"]), LocalDetector(interface="cali+"))
    return RuleSettings(
        family=family,
        here=Placement("node-a", draw(st.sampled_from(("", "z1")))),
        node_ip=there["node"][0],
        masquerade_bit=draw(st.sampled_from((14, 0, 31))),
        masquerade_all=draw(st.sampled_from((False, False, True))),
        local_detector=draw(st.sampled_from(detectors)),
        localhost_nodeports=draw(st.booleans()),
        nodeport_addresses=draw(st.sampled_from((None, None, (there["node"][0],), (there["loopback"],)))),
        tcp_be_liberal=draw(st.booleans()),
        nfacct=draw(st.booleans()),
        uses_external_ips=draw(st.sampled_from((True, True, False))),
        uses_node_hints=draw(st.booleans()),
        strict_source_ranges=draw(st.booleans()),
    )


@st.composite
def packets(draw, family, objects):
    there = ADDRESSES[family]
    origin = draw(st.sampled_from(("outside", "pod", "node")))
    ours = frozenset(there["node"])
    if origin == "node":
        source = draw(st.sampled_from((*there["node"], there["loopback"])))
    else:
        source = draw(st.sampled_from(there["source"]))
    addresses = (
        *there["cluster"],
        *there["external"],
        *there["node"],
        there["loopback"],
        "2001:db8:9::9" if family == "IPv6" else "8.8.8.8",
    )
    destination, number = draw(st.sampled_from(addresses)), draw(st.sampled_from((*PORTS, *NODE_PORTS, 31000)))
    protocol = draw(st.sampled_from(("tcp", "udp", "sctp")))
    if draw(st.integers(0, 9)):
        service = draw(st.sampled_from(objects.services))
        aimed = draw(st.sampled_from(service.spec.ports))
        ways = [(service.spec.cluster_ip, aimed.port)] if service.spec.cluster_ip != "None" else []
        ways += [(address, aimed.port) for address in service.spec.external_ips]
        if service.status is not None:
            ways += [(one.ip, aimed.port) for one in service.status.load_balancer.ingress]
        if aimed.node_port:
            ways += [(address, aimed.node_port) for address in (there["node"][0], there["loopback"])]
        if ways:
            destination, number = draw(st.sampled_from(ways))
            protocol = aimed.protocol.lower()
    recent = {}
    if draw(st.booleans()):
        for one in objects.slices:
            for port in one.ports:
                for endpoint in one.endpoints:
                    name = ServicePortName(
                        "default", one.metadata.labels["kubernetes.io/service-name"], port.name, port.protocol
                    )
                    host = endpoint.addresses[0]
                    target = f"[{host}]:{port.port}" if ":" in host else f"{host}:{port.port}"
                    if draw(st.booleans()):
                        seen = {source: draw(st.sampled_from((0.0, 30.0, 100.0)))}
                        recent[PortChains(name).endpoint(target)] = seen
    return Packet(
        source=source,
        destination=destination,
        port=number,
        protocol=protocol,
        origin=origin,
        in_interface="" if origin == "node" else "cali123" if origin == "pod" else "eth0",
        local_addresses=ours,
        state=draw(st.sampled_from(("NEW",) * 8 + ("INVALID", "ESTABLISHED"))),
        recent=recent,
    )
