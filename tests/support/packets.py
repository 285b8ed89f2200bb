"""Generated packets, most of them aimed at something that a cluster claims."""

from __future__ import annotations

from hypothesis import strategies as st

from pykubeproxy.insight.packet import Packet
from pykubeproxy.watch.manifests import ClusterObjects
from tests.support.clusters import BALANCERS, ENDPOINTS, EXTERNAL

OWN = {"IPv4": ("192.168.0.2", "192.168.1.2"), "IPv6": ("fd00:168::2", "fd00:169::2")}
LOOPBACK = {"IPv4": "127.0.0.1", "IPv6": "::1"}
ELSEWHERE = {"IPv4": ("198.51.100.5", "8.8.8.8"), "IPv6": ("2001:db8:5::5", "2001:db8:9::9")}


def aims(family: str, objects: ClusterObjects) -> list[tuple[str, int, str]]:
    """Return (address, port, protocol) of everything that the services claim, and some that nobody does."""
    is_six = family == "IPv6"
    found = {(OWN[family][0], 22, "tcp"), (ELSEWHERE[family][1], 443, "tcp"), (EXTERNAL[-1 if is_six else 0], 9, "udp")}
    for one in objects.services:
        spec = one.spec
        ingress = one.status.load_balancer.ingress if one.status and one.status.load_balancer else None
        addresses = [*(spec.cluster_ips or ()), *(spec.external_ips or ()), *(i.ip for i in ingress or () if i.ip)]
        for port in spec.ports or ():
            protocol = port.protocol.lower()
            found |= {(a, port.port, protocol) for a in addresses if a != "None" and (":" in a) == is_six}
            if port.node_port:
                found |= {(a, port.node_port, protocol) for a in (*OWN[family], LOOPBACK[family])}
        if spec.health_check_node_port:
            found.add((OWN[family][0], spec.health_check_node_port, "tcp"))
    return sorted(found)


@st.composite
def packets(draw: st.DrawFn, family: str, objects: ClusterObjects) -> Packet:
    """One packet of a new connection."""
    address, port, protocol = draw(st.sampled_from(aims(family, objects)))
    origin = draw(st.sampled_from(("outside", "pod", "node")))
    if origin == "node":
        source = draw(st.sampled_from((*OWN[family], LOOPBACK[family])))
    elif origin == "pod":
        source = draw(st.sampled_from(ENDPOINTS[family][:4]))
    else:
        balancers = [one for one in BALANCERS if (":" in one) == (family == "IPv6")]
        source = draw(st.sampled_from((*ELSEWHERE[family], *balancers)))
    return Packet(
        source=source,
        destination=address,
        port=port,
        protocol=protocol,
        origin=origin,
        in_interface="" if origin == "node" else "veth3" if origin == "pod" else "eth0",
        local_addresses=frozenset(OWN[family]),
    )
