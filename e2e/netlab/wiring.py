"""The laboratory's cables and addresses, as lists of ``ip`` commands. Pure: nothing here touches the machine.

    client 192.168.77.2 ── 192.168.77.1 node 192.168.78.1 ── 192.168.78.2 remote node, its pod 10.244.9.9
                                      │
                            cni0 10.244.2.1/24
                     ┌────────────┬───┴────────┐
                 10.244.2.13  10.244.2.14    any 10.244.x.y

Each IPv4 address has an IPv6 twin: 192.168.77.1 is fd00:77::1, 192.168.78.1 is fd00:78::1, the pod 10.244.2.13 is
fd00:10:244:2::13.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address, ip_network

NODE_IP, CLIENT_IP = "192.168.77.1", "192.168.77.2"
NODE_IP6, CLIENT_IP6 = "fd00:77::1", "fd00:77::2"
NODE_INNER_IP, REMOTE_IP = "192.168.78.1", "192.168.78.2"
NODE_INNER_IP6, REMOTE_IP6 = "fd00:78::1", "fd00:78::2"
CLUSTER_CIDR, CLUSTER_CIDR6 = "10.244.0.0/16", "fd00:10:244::/48"
NODE_POD_CIDR, NODE_POD_CIDR6 = "10.244.2.0/24", "fd00:10:244:2::/64"
REMOTE_POD_CIDR, REMOTE_POD_CIDR6 = "10.244.9.0/24", "fd00:10:244:9::/64"
BRIDGE_IP, BRIDGE_IP6 = "10.244.2.1", "fd00:10:244:2::1"
REMOTE_POD_IP, REMOTE_POD_IP6 = "10.244.9.9", "fd00:10:244:9::9"

NODE_SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv6/conf/all/forwarding": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    # A pod that is told a shorter way would walk around the rules.
    "net/ipv4/conf/all/send_redirects": "0",
    "net/ipv4/conf/default/send_redirects": "0",
    # The kernel sends a peer six ICMP errors at once and one a second from then on: refusals would turn into timeouts.
    "net/ipv4/icmp_ratelimit": "0",
    "net/ipv4/icmp_msgs_per_sec": "100000",
    "net/ipv4/icmp_msgs_burst": "100000",
    "net/ipv6/icmp/ratelimit": "0",
    # Pods of one bridge must not answer each other behind the back of conntrack; every CNI asks for this.
    "net/bridge/bridge-nf-call-iptables": "1",
    "net/bridge/bridge-nf-call-ip6tables": "1",
}
QUICK_IPV6_SYSCTLS = {
    # Addresses are usable at once: nobody else is on these cables.
    "net/ipv6/conf/all/accept_dad": "0",
    "net/ipv6/conf/default/accept_dad": "0",
    "net/ipv6/conf/all/accept_ra": "0",
    "net/ipv6/conf/default/accept_ra": "0",
}


def twin(address: str) -> str:
    """Return the IPv6 twin of a pod's IPv4 address."""
    _, _, third, fourth = address.split(".")
    return f"fd00:10:244:{third}::{fourth}"


@dataclass(frozen=True, slots=True)
class PodWiring:
    """The cable of one pod: ``index`` makes the interface name on the node unique."""

    netns: str
    ip: str
    ip6: str
    index: int

    @property
    def port(self) -> str:
        """Return the name of the node's end."""
        return f"veth{self.index}"

    def cable(self, node: str) -> list[str]:
        """Return the commands that lay the cable."""
        return [f"link add {self.port} netns {node} type veth peer name eth0 netns {self.netns}"]

    def node_end(self, *, hairpin: bool) -> list[str]:
        """Return the commands for the node's end."""
        commands = [
            f"link set {self.port} master cni0",
            f"link set {self.port} type bridge_slave hairpin {'on' if hairpin else 'off'}",
            f"link set {self.port} up",
        ]
        if ip_address(self.ip) not in ip_network(NODE_POD_CIDR):
            commands.append(f"route add {self.ip}/32 dev cni0")
        if ip_address(self.ip6) not in ip_network(NODE_POD_CIDR6):
            commands.append(f"route add {self.ip6}/128 dev cni0")
        return commands

    def pod_end(self) -> list[str]:
        """Return the commands for the pod's end."""
        inside = ip_address(self.ip) in ip_network(NODE_POD_CIDR)
        inside6 = ip_address(self.ip6) in ip_network(NODE_POD_CIDR6)
        return [
            "link set lo up",
            f"address add {self.ip}/{24 if inside else 32} dev eth0",
            f"address add {self.ip6}/{64 if inside6 else 128} dev eth0 nodad",
            "link set eth0 up",
            f"route add default via {BRIDGE_IP} dev eth0 onlink",
            f"route add default via {BRIDGE_IP6} dev eth0 onlink",
        ]


def namespaces(names: list[str]) -> list[str]:
    """Return the commands that make namespaces."""
    return [f"netns add {name}" for name in names]


def long_cables(node: str, client: str, remote: str) -> list[str]:
    """Return the commands that lay the cables between node, client and remote node."""
    return [
        f"link add eth0 netns {node} type veth peer name eth0 netns {client}",
        f"link add eth1 netns {node} type veth peer name eth0 netns {remote}",
    ]


def node_setup() -> list[str]:
    """Return the commands to run in the node."""
    return [
        "link set lo up",
        f"address add {NODE_IP}/24 dev eth0",
        f"address add {NODE_IP6}/64 dev eth0 nodad",
        "link set eth0 up",
        f"address add {NODE_INNER_IP}/24 dev eth1",
        f"address add {NODE_INNER_IP6}/64 dev eth1 nodad",
        "link set eth1 up",
        "link add cni0 type bridge forward_delay 0 mcast_snooping 0",
        f"address add {BRIDGE_IP}/24 dev cni0",
        f"address add {BRIDGE_IP6}/64 dev cni0 nodad",
        "link set cni0 up",
        f"route add {REMOTE_POD_CIDR} via {REMOTE_IP}",
        f"route add {REMOTE_POD_CIDR6} via {REMOTE_IP6}",
        # A cluster address must have a route before it can meet a rule; the client drops what is not its own.
        f"route add default via {CLIENT_IP}",
        f"route add default via {CLIENT_IP6}",
    ]


def client_setup() -> list[str]:
    """Return the commands to run in the outside client: everything else is reached through the node."""
    return [
        "link set lo up",
        f"address add {CLIENT_IP}/24 dev eth0",
        f"address add {CLIENT_IP6}/64 dev eth0 nodad",
        "link set eth0 up",
        f"route add default via {NODE_IP}",
        f"route add default via {NODE_IP6}",
    ]


def remote_setup() -> list[str]:
    """Return the commands to run in the remote node, which is its own only pod."""
    return [
        "link set lo up",
        f"address add {REMOTE_IP}/24 dev eth0",
        f"address add {REMOTE_IP6}/64 dev eth0 nodad",
        f"address add {REMOTE_POD_IP}/32 dev lo",
        f"address add {REMOTE_POD_IP6}/128 dev lo nodad",
        "link set eth0 up",
        # What this pod sends must come from the pod's address, not from its node's.
        f"route add default via {NODE_INNER_IP} src {REMOTE_POD_IP}",
        f"route add default via {NODE_INNER_IP6} src {REMOTE_POD_IP6}",
    ]
