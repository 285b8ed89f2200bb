"""From options, the own Node and the machine's facts to the RuleSettings of one IP family. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pykubeproxy.config.addresses import cluster_cidr, nodeport_cidrs
from pykubeproxy.config.options import Options
from pykubeproxy.model.addresses import Family, family_of, parse_network
from pykubeproxy.model.topology import Placement
from pykubeproxy.node.addresses import LocalAddress, local_addresses, node_ips
from pykubeproxy.rules.settings import LocalDetector, RuleSettings
from pykubeproxy.watch.objects import Node

ZONE_LABEL = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the machine says, read once or followed live."""

    local_addresses: tuple[LocalAddress, ...] = ()
    tcp_be_liberal: bool = False
    random_fully: bool = True
    nfacct: bool = False
    comments: bool = True
    missing: frozenset[str] = frozenset()
    """Other matches that the kernel lacks."""


def rule_settings(family: Family, options: Options, node_name: str, node: Node | None, facts: Facts) -> RuleSettings:
    """Return the settings of one family. ``node`` is None where there is no such Node."""
    gates = options.feature_gates
    addresses = node_ips(_addresses(node), options.bind_address)
    node_ip = addresses.addresses[family]
    number: int = 4 if family == "IPv4" else 6
    cidrs = nodeport_cidrs(options, number, node_ip)  # type: ignore[arg-type]
    networks = [parse_network(cidr) for cidr in cidrs]
    answers_everywhere = not networks or any(network.is_everything for network in networks)
    return RuleSettings(
        family=family,
        here=Placement(node_name, _zone(node)),
        node_ip=node_ip,
        masquerade_bit=options.iptables.masquerade_bit,
        masquerade_all=options.iptables.masquerade_all,
        local_detector=_local_detector(family, options, node),
        localhost_nodeports=options.iptables.localhost_nodeports and answers_on_loopback(options, node_ip),
        nodeport_addresses=None
        if answers_everywhere
        else tuple(sorted(local_addresses(facts.local_addresses, family, cidrs))),
        tcp_be_liberal=facts.tcp_be_liberal,
        random_fully=facts.random_fully,
        comments=facts.comments,
        missing=facts.missing,
        nfacct=facts.nfacct,
        uses_external_ips=gates.get("AllowServiceExternalIPs", True),
        uses_node_hints=gates.get("PreferSameTrafficDistribution", True),
        strict_source_ranges=options.strict_source_ranges,
    )


def without_cluster_cidr(options: Options, families: Iterable[Family]) -> list[Family]:
    """Return the families in which local pods' traffic should be told by a cluster CIDR that is not given."""
    if options.detect_local_mode != "ClusterCIDR":
        return []
    return [family for family in families if cluster_cidr(options, 4 if family == "IPv4" else 6) is None]


def answers_on_loopback(options: Options, node_ip: str | None) -> bool:
    """Tell whether node ports answer on 127.0.0.1 as far as their addresses go."""
    v4 = node_ip if node_ip and family_of(node_ip) == "IPv4" else None
    networks = [parse_network(cidr) for cidr in nodeport_cidrs(options, 4, v4)]
    return not networks or any(n.address.startswith("127.") or n.contains("127.0.0.0") for n in networks)


def _addresses(node: Node | None) -> Iterable[tuple[str, str]]:
    status = node.status if node is not None else None
    return [(a.type, a.address) for a in (status.addresses or ())] if status is not None else []


def _zone(node: Node | None) -> str:
    return ((node.metadata.labels or {}) if node is not None else {}).get(ZONE_LABEL, "")


def _local_detector(family: Family, options: Options, node: Node | None) -> LocalDetector | None:
    match options.detect_local_mode:
        case "BridgeInterface":
            return LocalDetector(interface=options.bridge_interface)
        case "InterfaceNamePrefix":
            prefix = options.interface_name_prefix
            # A name has 15 characters at most: such a prefix is a whole name, and iptables refuses 16.
            return LocalDetector(interface=prefix if len(prefix) == 15 else prefix + "+")
        case "NodeCIDR":
            network = next((cidr for cidr in pod_cidrs(node) if family_of(cidr) == family), None)
        case _:
            network = cluster_cidr(options, 4 if family == "IPv4" else 6)
    return LocalDetector(network=str(parse_network(network))) if network else None


def pod_cidrs(node: Node | None) -> tuple[str, ...]:
    """Return the node's own pod networks, as the API has them."""
    spec = node.spec if node is not None else None
    if spec is None:
        return ()
    texts = spec.pod_cidrs or ([spec.pod_cidr] if spec.pod_cidr else [])
    found = []
    for text in texts:
        try:
            found.append(str(parse_network(text)))
        except ValueError:
            continue
    return tuple(found)
