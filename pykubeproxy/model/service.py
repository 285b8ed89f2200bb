"""A Service as the proxy sees it: one ServicePort for each port and IP family.

Meaning follows kube-proxy (pkg/proxy/serviceport.go, servicechangetracker.go): which address of a dual-stack service
belongs to which family, which policies apply to which kind of service. What is odd in an object becomes one Problem
that names the object and the field; the rest of the object is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from pykubeproxy.model.addresses import FAMILIES, Family, Network, has_leading_zeros, parse_ip, parse_network
from pykubeproxy.watch.objects import PROXY_NAME_LABEL, Service, ServiceSpec

Tell = Callable[[str, str], None]
"""Takes a field and what is wrong with it."""

DEFAULT_AFFINITY_SECONDS = 10800
"""The API server's default for sessionAffinityConfig.clientIP.timeoutSeconds."""

MAX_AFFINITY_SECONDS = 86400
"""What the API allows; the kernel's recent match takes more, but nobody can have meant it."""

PROTOCOLS = frozenset(("TCP", "UDP", "SCTP"))
_TYPES = frozenset(("ClusterIP", "NodePort", "LoadBalancer"))
_DISTRIBUTIONS = frozenset(("PreferClose", "PreferSameZone", "PreferSameNode"))
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""What a namespace, object or port name may be made of; nothing here can end a quoted comment."""


class Problem(NamedTuple):
    """One fault of an object, for one log line: which object, which field, what is wrong with it."""

    kind: str
    namespace: str
    name: str
    field: str
    message: str
    reason: str = "InvalidField"
    """A CamelCase word for an Event."""
    rival: ServiceKey | None = None
    """The other service, where two of them claim one thing."""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}: {self.field}: {self.message}"


class ServiceKey(NamedTuple):
    """Namespace and name of a Service."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ServicePortName(NamedTuple):
    """What identifies one port of a service. ``port`` is the port's name, "" for the only, unnamed one."""

    namespace: str
    name: str
    port: str
    protocol: str
    """TCP, UDP or SCTP."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}:{self.port}" if self.port else f"{self.namespace}/{self.name}"

    @property
    def key(self) -> ServiceKey:
        """The service that this port belongs to."""
        return ServiceKey(self.namespace, self.name)


class ServicePort(msgspec.Struct, frozen=True, gc=False):
    """One port of one service in one IP family. Addresses are canonical text of that family.

    ``external_policy_is_local`` and ``internal_policy_is_local`` are facts after defaulting: an external policy
    counts only for a service that something outside the cluster can reach.
    """

    id: ServicePortName
    cluster_ip: str
    port: int
    node_port: int = 0
    external_ips: tuple[str, ...] = ()
    load_balancer_ips: tuple[str, ...] = ()
    source_ranges: tuple[Network, ...] = ()
    source_ranges_lost: bool = False
    """The object has source ranges but none of this family: the address is open to all unless told otherwise."""
    affinity_seconds: int = 0
    """ClientIP session affinity in seconds; 0 means none."""
    health_check_node_port: int = 0
    external_policy_is_local: bool = False
    internal_policy_is_local: bool = False
    created: str = ""
    """creationTimestamp of the object: the older one comes first where two services claim one address."""

    @property
    def is_externally_accessible(self) -> bool:
        """Reachable by something other than the cluster IP."""
        return bool(self.node_port or self.load_balancer_ips or self.external_ips)

    @property
    def uses_cluster_endpoints(self) -> bool:
        """Sends some traffic by Cluster policy: pods and the node itself always reach external addresses that way."""
        return not self.internal_policy_is_local or self.is_externally_accessible

    @property
    def uses_local_endpoints(self) -> bool:
        """Sends some traffic by Local policy."""
        return self.internal_policy_is_local or (self.external_policy_is_local and self.is_externally_accessible)


def is_proxied(service: Service) -> bool:
    """Tell whether a service is this proxy's business at all (headless, ExternalName and labelled ones are not)."""
    spec = service.spec
    if spec is None or spec.type == "ExternalName" or spec.cluster_ip in (None, "", "None"):
        return False
    return PROXY_NAME_LABEL not in (service.metadata.labels or {})


def service_ports(service: Service, family: Family) -> tuple[tuple[ServicePort, ...], list[Problem]]:
    """Return the service's ports in one IP family, and what is wrong with the object.

    A service without an address of that family has none. Never raises.
    """
    problems: list[Problem] = []
    meta = service.metadata

    def problem(field: str, message: str) -> None:
        problems.append(Problem("Service", meta.namespace, meta.name, field, message))

    spec = service.spec
    if spec is None or not is_proxied(service):
        return (), problems
    if not _NAME.fullmatch(meta.namespace) or not _NAME.fullmatch(meta.name):
        problem("metadata.name", "is not a valid name; the service is left out")
        return (), problems
    address = _cluster_ip(spec, family, problem)
    if address is None:
        return (), problems
    try:
        found, cluster_ip = parse_ip(address)
    except ValueError as exc:
        problem("spec.clusterIPs", f"{exc}; the service is left out")
        return (), problems
    if found != family:
        problem("spec.clusterIPs", f"{address!r} is not {family}; the service is left out in {family}")
        return (), problems
    if has_leading_zeros(address):
        problem("spec.clusterIPs", f"{address!r} has leading zeros; it is read as {cluster_ip}")

    known = frozenset(spec.ip_families or (family,))
    external_ips = _addresses(spec.external_ips or (), family, "spec.externalIPs", problem, known)
    load_balancer_ips = _ingress(service, family, problem, known)
    ranges, ranges_lost = _source_ranges(spec.load_balancer_source_ranges or (), family, problem)
    _judge_words(spec, problem)
    is_external = spec.type in ("NodePort", "LoadBalancer") or bool(spec.external_ips)
    external_local = _policy(spec.external_traffic_policy, "spec.externalTrafficPolicy", problem) and is_external
    internal_local = _policy(spec.internal_traffic_policy, "spec.internalTrafficPolicy", problem)
    health_check = _health_check(spec, problem) if spec.type == "LoadBalancer" and external_local else 0
    affinity = _affinity(spec, problem)

    ports: dict[ServicePortName, ServicePort] = {}
    for index, port in enumerate(spec.ports or ()):
        field = f"spec.ports[{index}]"
        name, protocol = port.name or "", port.protocol or "TCP"
        if protocol not in PROTOCOLS:
            problem(f"{field}.protocol", f"{protocol!r} is not TCP, UDP or SCTP; the port is left out")
            continue
        if name and not _NAME.fullmatch(name):
            problem(f"{field}.name", "is not a valid name; the port is left out")
            continue
        if not _is_port(port.port):
            problem(f"{field}.port", f"{port.port} is not between 1 and 65535; the port is left out")
            continue
        node_port = port.node_port or 0
        if node_port and not _is_port(node_port):
            problem(f"{field}.nodePort", f"{node_port} is not between 1 and 65535; there is no node port")
            node_port = 0
        key = ServicePortName(meta.namespace, meta.name, name, protocol)
        if key in ports:
            problem(f"{field}.name", f"{name!r} over {protocol} occurs twice; the later one counts")
        ports[key] = ServicePort(
            id=key,
            cluster_ip=cluster_ip,
            port=port.port,
            node_port=node_port,
            external_ips=external_ips,
            load_balancer_ips=load_balancer_ips,
            source_ranges=ranges,
            source_ranges_lost=ranges_lost,
            affinity_seconds=affinity,
            health_check_node_port=health_check,
            external_policy_is_local=external_local,
            internal_policy_is_local=internal_local,
            created=meta.creation_timestamp or "",
        )
    return tuple(ports.values()), problems


def _judge_words(spec: ServiceSpec, problem: Tell) -> None:
    """Name unknown words that have no effect of their own."""
    if spec.type and spec.type not in _TYPES:
        problem("spec.type", f"{spec.type!r} is not {_either(_TYPES)}; it is taken as ClusterIP")
    if spec.traffic_distribution and spec.traffic_distribution not in _DISTRIBUTIONS:
        problem(
            "spec.trafficDistribution",
            f"{spec.traffic_distribution!r} is not {_either(_DISTRIBUTIONS)}; only the hints of the slices count",
        )


def _health_check(spec: ServiceSpec, problem: Tell) -> int:
    port = spec.health_check_node_port or 0
    if _is_port(port):
        return port
    problem("spec.healthCheckNodePort", f"{port} is no port; nothing answers the load balancer's checks")
    return 0


def _either(words: Iterable[str]) -> str:
    *most, last = sorted(words)
    return f"{', '.join(most)} or {last}"


def _is_port(number: int) -> bool:
    return 0 < number < 65536


def _cluster_ip(spec: ServiceSpec, family: Family, problem: Tell) -> str | None:
    if spec.ip_families:
        if not frozenset(spec.ip_families).intersection(FAMILIES):
            problem("spec.ipFamilies", f"{spec.ip_families} names no family; the service is left out")
        addresses = spec.cluster_ips or ()
        for index, candidate in enumerate(spec.ip_families):
            if candidate == family and index < len(addresses):
                found = addresses[index]
                # Told in one family only, although it concerns the object.
                if index == 0 and _is_another(spec.cluster_ip, found):
                    problem("spec.clusterIP", f"{spec.cluster_ip!r} is not clusterIPs[0], {found!r}, which counts")
                return found
        return None
    if not spec.cluster_ip or (":" in spec.cluster_ip) != (family == "IPv6"):
        return None
    if spec.cluster_ips and _is_another(spec.cluster_ip, spec.cluster_ips[0]):
        told = f"{spec.cluster_ip!r} counts, not clusterIPs[0], {spec.cluster_ips[0]!r}: there are no ipFamilies"
        problem("spec.clusterIP", told)
    return spec.cluster_ip


def _is_another(text: str | None, other: str) -> bool:
    """Tell whether two texts are addresses, and not of the same."""
    try:
        return bool(text) and parse_ip(text or "") != parse_ip(other)
    except ValueError:
        return False


def _addresses(
    texts: Iterable[str], family: Family, field: str, problem: Tell, known: frozenset[str]
) -> tuple[str, ...]:
    """Return the addresses of one family. ``known``: the families of the service; another one is nobody's."""
    found = []
    for index, text in enumerate(texts):
        if not text.strip():
            continue
        try:
            kind, address = parse_ip(text)
        except ValueError as exc:
            problem(f"{field}[{index}]", f"{exc}; it is left out")
            continue
        if kind == family:
            if has_leading_zeros(text):
                problem(f"{field}[{index}]", f"{text!r} has leading zeros; it is read as {address}")
            found.append(address)
        elif kind not in known:
            problem(f"{field}[{index}]", f"{text!r} is {kind}, which the service has no address of; it is left out")
    return tuple(found)


def _ingress(service: Service, family: Family, problem: Tell, known: frozenset[str]) -> tuple[str, ...]:
    status = service.status
    if status is None or status.load_balancer is None:
        return ()
    texts = []
    for index, ingress in enumerate(status.load_balancer.ingress or ()):
        texts.append((ingress.ip or "") if ingress.ip_mode in (None, "VIP") else "")
        if ingress.ip and ingress.ip_mode not in (None, "VIP", "Proxy"):
            problem(
                f"status.loadBalancer.ingress[{index}].ipMode",
                f"{ingress.ip_mode!r} is not VIP or Proxy; the address is left out, as with Proxy",
            )
    return _addresses(texts, family, "status.loadBalancer.ingress", problem, known)


def _source_ranges(texts: Iterable[str], family: Family, problem: Tell) -> tuple[tuple[Network, ...], bool]:
    found: list[Network] = []
    any_valid = False
    for index, text in enumerate(texts):
        if not text.strip():
            continue
        try:
            network = parse_network(text)
        except ValueError as exc:
            problem(f"spec.loadBalancerSourceRanges[{index}]", f"{exc}; it is left out")
            any_valid = True
            continue
        any_valid = True
        if network.family == family:
            found.append(network)
    if any(network.is_everything for network in found):
        return (), False
    return tuple(found), any_valid and not found


def _policy(value: str | None, field: str, problem: Tell) -> bool:
    if value in (None, "", "Cluster"):
        return False
    if value == "Local":
        return True
    problem(field, f"{value!r} is not Cluster or Local; it is taken as Cluster")
    return False


def _affinity(spec: ServiceSpec, problem: Tell) -> int:
    if spec.session_affinity in (None, "", "None"):
        return 0
    if spec.session_affinity != "ClientIP":
        problem("spec.sessionAffinity", f"{spec.session_affinity!r} is not None or ClientIP; there is no affinity")
        return 0
    config = spec.session_affinity_config
    seconds = config.client_ip.timeout_seconds if config is not None and config.client_ip is not None else None
    if seconds is None:
        return DEFAULT_AFFINITY_SECONDS
    if not 0 < seconds <= MAX_AFFINITY_SECONDS:
        problem(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            f"{seconds} is not between 1 and {MAX_AFFINITY_SECONDS}; {DEFAULT_AFFINITY_SECONDS} is used",
        )
        return DEFAULT_AFFINITY_SECONDS
    return seconds
