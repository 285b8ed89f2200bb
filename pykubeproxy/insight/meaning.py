"""What should become of a packet, computed straight from the objects: the second opinion on the rules.

Written from the Service API, the KEPs on traffic policy (1669, 2086, 2433, 3015) and kube-proxy's documented behaviour,
not from rule text: it shares no code with ``rules`` and ``model.topology``, so that a property test which compares its
answer with the Tracer's compares two independent readings. The only thing taken over is how an affinity list is called.

Objects are taken to be valid, as the API server would have let them pass. The node is taken to have the addresses that
the packet says, and no foreign rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, Protocol

from pykubeproxy.insight.match import in_network
from pykubeproxy.insight.packet import Packet, is_loopback
from pykubeproxy.insight.tracer import End, Trace
from pykubeproxy.model.addresses import Family, parse_ip, parse_network, with_port
from pykubeproxy.model.service import ServicePortName
from pykubeproxy.rules.names import PortChains
from pykubeproxy.rules.settings import RuleSettings
from pykubeproxy.watch.objects import Endpoint, EndpointSlice, Service, ServicePortSpec

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
FOREIGN_PROXY_LABEL = "service.kubernetes.io/service-proxy-name"
TOLERANCE = Fraction(1, 10**7)
"""Chances are multiples of 2**-31 in the kernel, 1/n here."""


class Objects(Protocol):
    """What is known of the cluster; ``watch.manifests.ClusterObjects`` is one."""

    @property
    def services(self) -> list[Service]:
        """The Services."""

    @property
    def slices(self) -> list[EndpointSlice]:
        """The EndpointSlices."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """The distribution of ends, and the service port that answers ("" for none)."""

    ends: dict[End, Fraction]
    by: str = ""

    def difference(self, trace: Trace) -> str:
        """Return "" if a trace agrees, else one line that says where it does not."""
        found = trace.ends()
        for end in sorted({**self.ends, **found}):
            want, have = self.ends.get(end, Fraction(0)), found.get(end, Fraction(0))
            if abs(want - have) > TOLERANCE:
                return f"{end}: {float(want):.6f} expected, {float(have):.6f} found (service {self.by or 'none'})"
        return ""


class _Target(NamedTuple):
    address: str
    port: int

    @property
    def text(self) -> str:
        return with_port(self.address, self.port)


Way = Literal["cluster ip", "external ip", "load balancer", "node port"]


@dataclass(frozen=True, slots=True)
class _Port:
    """One port of one service in one family, and the endpoints that serve it here."""

    name: ServicePortName
    rank: tuple[str, ServicePortName]
    service: Service
    spec: ServicePortSpec
    cluster_ip: str
    external_ips: tuple[str, ...]
    balancer_ips: tuple[str, ...]
    everyone: tuple[_Target, ...]
    """Endpoints for traffic under policy Cluster."""
    here: tuple[_Target, ...]
    """Endpoints for traffic under policy Local."""
    is_served_anywhere: bool

    @property
    def is_external_local(self) -> bool:
        """Whether externalTrafficPolicy Local applies."""
        spec = self.service.spec
        assert spec is not None
        may = spec.type in ("NodePort", "LoadBalancer") or bool(spec.external_ips)
        return may and spec.external_traffic_policy == "Local"

    @property
    def is_internal_local(self) -> bool:
        """Whether internalTrafficPolicy is Local."""
        return self.service.spec is not None and self.service.spec.internal_traffic_policy == "Local"

    def endpoints(self, *, local: bool) -> tuple[_Target, ...]:
        """Return the endpoints under a policy."""
        return self.here if local else self.everyone


def expected(objects: Objects, settings: RuleSettings, packet: Packet) -> Expectation:
    """Return what should become of a packet on this node."""
    ports = sorted(_ports(objects, settings), key=lambda port: port.rank)
    if packet.state == "NEW":
        for port, way in _addressed(ports, settings, packet):
            answer = _translated(port, way, settings, packet)
            if answer is not None:
                ends: dict[End, Fraction] = {}
                for target, share, masquerade in answer:
                    end = _filtered(ports, settings, packet, target, masquerade=masquerade)
                    ends[end] = ends.get(end, Fraction(0)) + share
                return Expectation(ends, str(port.name))
    return Expectation({_filtered(ports, settings, packet, None, masquerade=False): Fraction(1)})


# -- which service port a packet is for


def _addressed(ports: list[_Port], settings: RuleSettings, packet: Packet) -> Iterator[tuple[_Port, Way]]:
    """Yield the service ports that claim the packet's destination, the oldest object first, node ports last."""
    for port in ports:
        if (port.name.protocol.lower(), port.spec.port) != (packet.protocol, packet.port):
            continue
        if packet.destination == port.cluster_ip:
            yield port, "cluster ip"
        if packet.destination in port.external_ips:
            yield port, "external ip"
        if packet.destination in port.balancer_ips:
            yield port, "load balancer"
    if _answers_node_ports(settings, packet):
        for port in ports:
            if (port.name.protocol.lower(), port.spec.node_port) == (packet.protocol, packet.port):
                yield port, "node port"


def _answers_node_ports(settings: RuleSettings, packet: Packet) -> bool:
    if not packet.is_local(packet.destination):
        return False
    if is_loopback(packet.destination) and (settings.family == "IPv6" or not settings.localhost_nodeports):
        return False
    return settings.nodeport_addresses is None or packet.destination in settings.nodeport_addresses


# -- what the service does with it


def _translated(
    port: _Port, way: Way, settings: RuleSettings, packet: Packet
) -> list[tuple[_Target, Fraction, bool]] | None:
    """Return (endpoint, share, is masqueraded), or None where the service lets the packet go on untranslated."""
    if way == "cluster ip":
        targets = port.endpoints(local=port.is_internal_local)
        masquerade = settings.masquerade_all or _is_off_cluster(settings, packet)
    else:
        if way == "load balancer" and not _is_admitted(port, settings, packet):
            return None
        if not port.is_external_local:
            targets, masquerade = port.everyone, True
        elif _is_from_pod(settings, packet):
            targets, masquerade = port.everyone, False
        elif packet.is_local(packet.source):
            targets, masquerade = port.everyone, True
        else:
            targets, masquerade = port.here, False
    if not targets:
        return None
    # A pod that reaches itself through its service must see another source, or its answer goes astray.
    return [
        (target, share, masquerade or target.address == packet.source)
        for target, share in _spread(port, targets, packet).items()
    ]


def _spread(port: _Port, targets: tuple[_Target, ...], packet: Packet) -> dict[_Target, Fraction]:
    spec = port.service.spec
    assert spec is not None
    if spec.session_affinity == "ClientIP":
        config = spec.session_affinity_config
        seconds = config.client_ip.timeout_seconds if config is not None and config.client_ip is not None else None
        for target in targets:
            known = packet.recent.get(PortChains(port.name).endpoint(target.text), {})
            if packet.source in known and known[packet.source] <= (seconds or 10800):
                return {target: Fraction(1)}
    return dict.fromkeys(targets, Fraction(1, len(targets)))


def _is_off_cluster(settings: RuleSettings, packet: Packet) -> bool:
    """Whether traffic to a cluster IP needs masquerading because the sender is no pod, as far as that can be told."""
    detector = settings.local_detector
    if detector is None or (detector.network and parse_network(detector.network).is_everything):
        return False
    return not _is_from_pod(settings, packet)


def _is_from_pod(settings: RuleSettings, packet: Packet) -> bool:
    detector = settings.local_detector
    if detector is None:
        return False
    if detector.network:
        return in_network(packet.source, detector.network)
    if packet.origin == "node":
        return False
    name = detector.interface
    return packet.in_interface.startswith(name[:-1]) if name.endswith("+") else packet.in_interface == name


def _is_admitted(port: _Port, settings: RuleSettings, packet: Packet) -> bool:
    """Whether loadBalancerSourceRanges let the sender in."""
    spec = port.service.spec
    assert spec is not None
    everything = [parse_network(text) for text in spec.load_balancer_source_ranges or () if text.strip()]
    ranges = [network for network in everything if network.family == settings.family]
    if not ranges:
        return not (everything and settings.strict_source_ranges)
    if any(network.is_everything or network.contains(packet.source) for network in ranges):
        return True
    # A node that owns the balancer's address asks from that address; it may if the node's own address may.
    node_ip = settings.node_ip
    node_may = bool(node_ip) and any(network.contains(node_ip) for network in ranges)
    return node_may and packet.source in port.balancer_ips


# -- what the filter does with it afterwards


def _filtered(
    ports: list[_Port], settings: RuleSettings, packet: Packet, target: _Target | None, *, masquerade: bool
) -> End:
    """Return the end of a packet that goes to ``target``, or where it was going (None)."""
    destination = target.address if target is not None else packet.destination
    number = target.port if target is not None else packet.port
    is_here = packet.is_local(destination)
    is_through = packet.origin != "node" and not is_here
    if packet.state == "INVALID" and is_through and not settings.tcp_be_liberal:
        return End("DROP")
    if _is_martian(settings, packet, destination, is_translated=target is not None) and not is_through:
        return End("DROP")
    leaves = packet.origin == "node" or not is_here
    end = End(target.text if target is not None else "ACCEPT", masquerade and leaves)
    if packet.state != "NEW" or (masquerade and is_through):
        # What was marked for masquerading is let through before anything else but source ranges is asked.
        return end if not _is_kept_out(ports, settings, packet, destination, number) else End("DROP")
    if _is_kept_out(ports, settings, packet, destination, number):
        return End("DROP")
    if packet.origin == "node" or is_through:
        for port in ports:
            if _is_port(port, packet, port.spec.port, number) and destination == port.cluster_ip:
                refusal = _refusal(port, local=port.is_internal_local)
                if refusal:
                    return End(refusal)
    if is_here or is_through:
        if is_here and _is_health_check(ports, packet, number):
            return end
        for port in ports:
            claims = _is_port(port, packet, port.spec.port, number) and destination in (
                *port.external_ips,
                *port.balancer_ips,
            )
            claims = claims or (
                bool(port.spec.node_port) and is_here and _is_port(port, packet, port.spec.node_port, number)
            )
            refusal = _refusal(port, local=port.is_external_local) if claims else ""
            if refusal:
                return End(refusal)
    return end


def _is_port(port: _Port, packet: Packet, claimed: int | None, number: int) -> bool:
    return (port.name.protocol.lower(), claimed) == (packet.protocol, number)


def _refusal(port: _Port, *, local: bool) -> str:
    """Nobody anywhere: tell the sender. Nobody here, under policy Local: say nothing, as a load balancer expects."""
    if not port.is_served_anywhere:
        return "REJECT"
    return "DROP" if local and not port.here else ""


def _is_kept_out(ports: list[_Port], settings: RuleSettings, packet: Packet, destination: str, number: int) -> bool:
    """Whether a load balancer address is closed to what was not translated (or was translated to it)."""
    return packet.state == "NEW" and any(
        destination in port.balancer_ips
        and _is_port(port, packet, port.spec.port, number)
        and port.is_served_anywhere
        and _has_ranges(port, settings)
        for port in ports
    )


def _has_ranges(port: _Port, settings: RuleSettings) -> bool:
    spec = port.service.spec
    assert spec is not None
    networks = [parse_network(text) for text in spec.load_balancer_source_ranges or () if text.strip()]
    own = [network for network in networks if network.family == settings.family]
    if not own:
        return bool(networks) and settings.strict_source_ranges
    return not any(network.is_everything for network in own)


def _is_health_check(ports: list[_Port], packet: Packet, number: int) -> bool:
    return packet.protocol == "tcp" and any(
        port.is_external_local
        and port.service.spec is not None
        and port.service.spec.type == "LoadBalancer"
        and port.service.spec.health_check_node_port == number
        for port in ports
    )


def _is_martian(settings: RuleSettings, packet: Packet, destination: str, *, is_translated: bool) -> bool:
    """CVE-2020-8558: with route_localnet on, neighbours could reach what listens on 127.0.0.1."""
    return (
        settings.family == "IPv4"
        and settings.localhost_nodeports
        and is_loopback(destination)
        and not is_loopback(packet.source)
        and not is_translated
        and packet.state not in ("ESTABLISHED", "RELATED")
    )


# -- reading the objects


def _ports(objects: Objects, settings: RuleSettings) -> Iterator[_Port]:
    for service in objects.services:
        spec, meta = service.spec, service.metadata
        if spec is None or spec.type == "ExternalName" or FOREIGN_PROXY_LABEL in (meta.labels or {}):
            continue
        address = _own_cluster_ip(service, settings.family)
        if not address:
            continue
        externals = tuple(_of_family(spec.external_ips or (), settings.family)) if settings.uses_external_ips else ()
        status = service.status.load_balancer if service.status is not None else None
        ingress = [
            one.ip or ""
            for one in ((status.ingress if status is not None else None) or ())
            if one.ip_mode in (None, "VIP")
        ]
        balancers = tuple(_of_family(ingress, settings.family))
        for port in spec.ports or ():
            protocol = port.protocol or "TCP"
            name = ServicePortName(meta.namespace, meta.name, port.name or "", protocol)
            known = _endpoints(objects, name, settings.family)
            ready = [one for one in known if one.is_ready]
            leaving = [one for one in known if not one.is_ready and one.is_serving and one.is_terminating]
            own = [one for one in ready if one.node and one.node == settings.here.node]
            own = own or [one for one in leaving if one.node and one.node == settings.here.node]
            yield _Port(
                name,
                (meta.creation_timestamp or "", name),
                service,
                port,
                address,
                externals,
                balancers,
                _targets(_near(ready, settings) or leaving),
                _targets(own),
                bool(ready or leaving),
            )


def _own_cluster_ip(service: Service, family: Family) -> str:
    spec = service.spec
    assert spec is not None
    if spec.ip_families and spec.cluster_ips:
        texts = dict(zip(spec.ip_families, spec.cluster_ips, strict=False))
        text = texts.get(family, "")
    else:
        text = spec.cluster_ip or ""
    found = list(_of_family([text], family))
    return found[0] if found else ""


def _of_family(texts: Iterable[str], family: Family) -> Iterator[str]:
    for text in texts:
        if text and text != "None":
            kind, address = parse_ip(text)
            if kind == family:
                yield address


@dataclass(slots=True)
class _Known:
    """One endpoint as its slices tell of it."""

    target: _Target
    node: str
    is_ready: bool
    is_serving: bool
    is_terminating: bool
    nodes: frozenset[str]
    zones: frozenset[str]

    @property
    def goodness(self) -> tuple[bool, bool, bool]:
        """Larger is better: one address may be in two slices for a while, as a leaving and as a coming one."""
        return not self.is_terminating, self.is_ready, self.is_ready or self.is_serving


def _endpoints(objects: Objects, name: ServicePortName, family: Family) -> list[_Known]:
    """Return the endpoints of one service port by the text of their target, each once.

    Of records of one slice the later counts unless it terminates; between slices the better one does.
    """
    best: dict[str, _Known] = {}
    for one in sorted(objects.slices, key=lambda piece: piece.metadata.name):
        labels = one.metadata.labels or {}
        if one.address_type != family or one.metadata.namespace != name.namespace:
            continue
        if labels.get(SERVICE_NAME_LABEL) != name.name:
            continue
        for port in one.ports or ():
            if (port.name or "", port.protocol or "TCP") != (name.port, name.protocol) or not port.port:
                continue
            own: dict[str, _Known] = {}
            for endpoint in one.endpoints or ():
                known = _known(endpoint, port.port)
                if known is not None and not (known.target.text in own and known.is_terminating):
                    own[known.target.text] = known
            for text, known in own.items():
                if text not in best or known.goodness > best[text].goodness:
                    best[text] = known
    return [best[text] for text in sorted(best)]


def _known(endpoint: Endpoint, port: int) -> _Known | None:
    if not endpoint.addresses:
        return None
    conditions, hints = endpoint.conditions, endpoint.hints
    return _Known(
        _Target(parse_ip(endpoint.addresses[0])[1], port),
        endpoint.node_name or "",
        conditions is None or conditions.ready is not False,
        conditions is None or conditions.serving is not False,
        conditions is not None and conditions.terminating is True,
        frozenset(one.name for one in (hints.for_nodes or ())) if hints is not None else frozenset(),
        frozenset(one.name for one in (hints.for_zones or ())) if hints is not None else frozenset(),
    )


def _near(ready: list[_Known], settings: RuleSettings) -> list[_Known]:
    """Return the ready endpoints that topology hints leave for this node: all, where hints are no use."""
    here = settings.here
    if settings.uses_node_hints and all(one.nodes for one in ready):
        near = [one for one in ready if here.node in one.nodes]
        if near:
            return near
    if all(one.zones for one in ready):
        near = [one for one in ready if here.zone in one.zones]
        if near:
            return near
    return ready


def _targets(known: Iterable[_Known]) -> tuple[_Target, ...]:
    return tuple(sorted((one.target for one in known), key=lambda target: target.text))
