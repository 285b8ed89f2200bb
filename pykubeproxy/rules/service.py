"""The rules of one service port: chains of its own in nat, and its lines in the chains that all services share.

Structure and wording follow kube-proxy's syncProxyRules; the order of matches within a rule is that of iptables-save.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from pykubeproxy.model.addresses import host
from pykubeproxy.model.endpoint import Endpoint
from pykubeproxy.model.service import ServicePort
from pykubeproxy.model.topology import Categories
from pykubeproxy.rules.base import LOCALHOST_COUNTER, comment
from pykubeproxy.rules.names import MARK_MASQ, PortChains
from pykubeproxy.rules.ruleset import chain_text
from pykubeproxy.rules.settings import RuleSettings


class Portal(msgspec.Struct, frozen=True, gc=False):
    """One line of KUBE-SERVICES or KUBE-NODEPORTS in nat: what it answers for and the rule behind ``-A CHAIN ``."""

    key: str
    """A destination address, or protocol and node port: ``tcp/30080``."""
    rule: str


class PortRules(msgspec.Struct, frozen=True, gc=False):
    """What one service port becomes. ``rule`` texts lack ``-A CHAIN ``; ``chains`` holds whole texts by name."""

    chains: dict[str, str]
    portals: tuple[Portal, ...] = ()
    nodeports: tuple[Portal, ...] = ()
    filter_services: tuple[str, ...] = ()
    filter_external: tuple[str, ...] = ()
    filter_firewall: tuple[str, ...] = ()
    filter_nodeports: tuple[str, ...] = ()
    lacks_internal_endpoints: bool = False
    lacks_external_endpoints: bool = False
    """Policy Local and no local endpoint, though there are endpoints elsewhere."""


@lru_cache(maxsize=8192)
def probability(n: int) -> str:
    """Return ``--probability`` for one in ``n`` as iptables-save prints it.

    kube-proxy writes 1/n with ten decimals, the kernel keeps it as a multiple of 2**-31, iptables-save prints eleven
    decimals.
    """
    return f"{round(2**31 * float(f'{1 / n:.10f}')) / 2**31:.11f}"


def render(port: ServicePort, endpoints: Categories, settings: RuleSettings, *, endpoint_comments: bool) -> PortRules:  # noqa: PLR0915, C901, PLR0912 - one service port, top to bottom
    """Render one service port. ``endpoint_comments`` is False in clusters of more than 1,000 endpoints."""
    names = PortChains(port.id)
    name = str(port.id)
    protocol = port.id.protocol.lower()
    reject = "REJECT --reject-with " + (
        "icmp6-port-unreachable" if settings.family == "IPv6" else "icmp-port-unreachable"
    )

    def to(address: str, number: int, note: str, target: str, *, source: str = "", incoming: str = "") -> str:
        where = f"{source}-d {host(address)} {incoming}-p {protocol}"
        return f"{where} {comment(note, settings)}-m {protocol} --dport {number} -j {target}"

    def to_local(number: int, note: str, target: str) -> str:
        what = f"-p {protocol} {comment(note, settings)}-m addrtype --dst-type LOCAL"
        return f"{what} -m {protocol} --dport {number} -j {target}"

    exist = endpoints.exist_anywhere
    has_internal = exist and not (port.internal_policy_is_local and not endpoints.local)
    has_external = exist and not (port.external_policy_is_local and not endpoints.local)
    internal_chain = names.local if port.internal_policy_is_local else names.cluster
    external_policy_chain = names.local if port.external_policy_is_local else names.cluster
    uses_external_chain = exist and port.is_externally_accessible
    closed = settings.strict_source_ranges and port.source_ranges_lost
    uses_firewall_chain = exist and bool(port.load_balancer_ips) and (bool(port.source_ranges) or closed)
    external_ips = port.external_ips if settings.uses_external_ips else ()

    if exist:
        internal_note = external_note = f"{name} has no local endpoints"
        internal_verdict = external_verdict = "DROP"
    else:
        internal_note = external_note = f"{name} has no endpoints"
        internal_verdict = external_verdict = reject

    portals: list[Portal] = []
    filter_services: list[str] = []
    filter_external: list[str] = []
    filter_firewall: list[str] = []

    # The cluster IP.
    if has_internal:
        portals.append(Portal(port.cluster_ip, to(port.cluster_ip, port.port, f"{name} cluster IP", internal_chain)))
    else:
        filter_services.append(to(port.cluster_ip, port.port, internal_note, internal_verdict))

    # External IPs and load balancer addresses.
    for address in external_ips:
        if exist:
            portals.append(Portal(address, to(address, port.port, f"{name} external IP", names.external)))
        if not has_external:
            filter_external.append(to(address, port.port, external_note, external_verdict))
    for address in port.load_balancer_ips:
        if exist:
            target = names.firewall if uses_firewall_chain else names.external
            portals.append(Portal(address, to(address, port.port, f"{name} loadbalancer IP", target)))
        if uses_firewall_chain:
            note = f"{name} traffic not accepted by {names.firewall}"
            filter_firewall.append(to(address, port.port, note, "DROP"))
        if not has_external:
            filter_external.append(to(address, port.port, external_note, external_verdict))

    # Node ports; they are not subject to source ranges.
    nodeports: list[Portal] = []
    if port.node_port:
        key = f"{protocol}/{port.node_port}"
        if exist:
            head = f"-p {protocol} {comment(name, settings)}-m {protocol} --dport {port.node_port} "
            if settings.nfacct and settings.localhost_nodeports and settings.family == "IPv4":
                accounting = f"-m nfacct --nfacct-name  {LOCALHOST_COUNTER} "
                nodeports.append(Portal(key, f"-d 127.0.0.0/8 {head}{accounting}-j {names.external}"))
            nodeports.append(Portal(key, f"{head}-j {names.external}"))
        if not has_external:
            filter_external.append(to_local(port.node_port, external_note, external_verdict))
    filter_nodeports: tuple[str, ...] = ()
    if port.health_check_node_port:
        note = comment(f"{name} health check node port", settings)
        filter_nodeports = (f"-p tcp {note}-m tcp --dport {port.health_check_node_port} -j ACCEPT",)

    chains: dict[str, str] = {}
    spread: dict[str, list[str]] = {}
    if endpoints.cluster and port.uses_cluster_endpoints:
        spread[names.cluster] = []
    if endpoints.local and port.uses_local_endpoints:
        spread[names.local] = []

    # Cluster IP traffic from outside the cluster comes back through this node only if masqueraded.
    if has_internal and internal_chain in spread:
        detector = settings.local_detector
        note = f"{name} cluster IP"
        if settings.masquerade_all:
            spread[internal_chain].append(to(port.cluster_ip, port.port, note, MARK_MASQ))
        elif detector is not None and detector.network and not detector.network.endswith("/0"):
            source = f"! -s {detector.network} "
            spread[internal_chain].append(to(port.cluster_ip, port.port, note, MARK_MASQ, source=source))
        elif detector is not None and detector.interface:
            incoming = f"! -i {detector.interface} "
            spread[internal_chain].append(to(port.cluster_ip, port.port, note, MARK_MASQ, incoming=incoming))

    if uses_external_chain:
        rules = _external(name, names, settings, policy_is_local=port.external_policy_is_local)
        if has_external:
            rules.append(f"-j {external_policy_chain}")
        chains[names.external] = chain_text(names.external, rules)
    if uses_firewall_chain:
        chains[names.firewall] = chain_text(names.firewall, _firewall(name, names, port, settings))

    chain_of = {e.target: names.endpoint(e.target) for e in endpoints.reachable}
    for chain, rules in spread.items():
        chosen = endpoints.cluster if chain == names.cluster else endpoints.local
        rules.extend(_spread(name, chosen, chain_of, port, settings, comments=endpoint_comments))
        chains[chain] = chain_text(chain, rules)
    note = comment(name, settings) if endpoint_comments else ""
    mask = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" if settings.family == "IPv6" else "255.255.255.255"
    for endpoint in endpoints.reachable:
        chain = chain_of[endpoint.target]
        remember = f"-m recent --set --name {chain} --mask {mask} --rsource " if port.affinity_seconds else ""
        chains[chain] = (
            f"-A {chain} -s {host(endpoint.address)} {note}-j {MARK_MASQ}\n"
            f"-A {chain} -p {protocol} {note}{remember}-m {protocol} -j DNAT --to-destination {endpoint.target}\n"
        )
    return PortRules(
        chains,
        tuple(portals),
        tuple(nodeports),
        tuple(filter_services),
        tuple(filter_external),
        tuple(filter_firewall),
        filter_nodeports,
        lacks_internal_endpoints=exist and not has_internal,
        lacks_external_endpoints=exist and not has_external,
    )


def _external(name: str, names: PortChains, settings: RuleSettings, *, policy_is_local: bool) -> list[str]:
    """Return the head of KUBE-EXT: masquerading, or for policy Local the short circuits of pods and the node itself."""
    if not policy_is_local:
        return [f"{comment(f'masquerade traffic for {name} external destinations', settings)}-j {MARK_MASQ}"]
    rules = []
    detector = settings.local_detector
    if detector is not None:
        match = ""
        if detector.network and not detector.network.endswith("/0"):
            match = f"-s {detector.network} "
        elif detector.interface:
            match = f"-i {detector.interface} "
        note = comment(f"pod traffic for {name} external destinations", settings)
        rules.append(f"{match}{note}-j {names.cluster}")
    note = comment(f"masquerade LOCAL traffic for {name} external destinations", settings)
    rules.append(f"{note}-m addrtype --src-type LOCAL -j {MARK_MASQ}")
    note = comment(f"route LOCAL traffic for {name} external destinations", settings)
    rules.append(f"{note}-m addrtype --src-type LOCAL -j {names.cluster}")
    return rules


def _firewall(name: str, names: PortChains, port: ServicePort, settings: RuleSettings) -> list[str]:
    note = comment(f"{name} loadbalancer IP", settings)
    rules = [f"-s {network} {note}-j {names.external}" for network in port.source_ranges]
    if any(network.contains(settings.node_ip) for network in port.source_ranges if settings.node_ip):
        # A node that owns the address talks to it from itself; being allowed, it must be let through.
        rules += [f"-s {host(address)} {note}-j {names.external}" for address in port.load_balancer_ips]
    end = comment(f"other traffic to {name} will be dropped by KUBE-PROXY-FIREWALL", settings)
    if end:
        rules.append(end.rstrip())
    return rules


def _spread(
    name: str,
    endpoints: tuple[Endpoint, ...],
    chain_of: dict[str, str],
    port: ServicePort,
    settings: RuleSettings,
    *,
    comments: bool,
) -> list[str]:
    """Return the rules that choose an endpoint: first the one remembered for this client, then at random."""
    notes = [comment(f"{name} -> {e.target}", settings) if comments else "" for e in endpoints]
    rules = []
    if port.affinity_seconds:
        mask = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" if settings.family == "IPv6" else "255.255.255.255"
        for note, endpoint in zip(notes, endpoints, strict=True):
            chain = chain_of[endpoint.target]
            rules.append(
                f"{note}-m recent --rcheck --seconds {port.affinity_seconds} --reap "
                f"--name {chain} --mask {mask} --rsource -j {chain}"
            )
    left = len(endpoints)
    for note, endpoint in zip(notes, endpoints, strict=True):
        chance = f"-m statistic --mode random --probability {probability(left)} " if left > 1 else ""
        rules.append(f"{note}{chance}-j {chain_of[endpoint.target]}")
        left -= 1
    return rules
