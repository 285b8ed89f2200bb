"""Who answers on an address, and why nobody does: for people who have an address, or a name that leads to no rules.

Pure; what is found comes back as values or as words.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pykubeproxy.insight.cluster import Picture
from pykubeproxy.model.addresses import family_of, parse_ip
from pykubeproxy.model.service import ServiceKey, ServicePort
from pykubeproxy.watch.objects import PROXY_NAME_LABEL, LoadBalancerIngress, Service


class Place(NamedTuple):
    """One address that a service port answers on."""

    kind: str
    """cluster IP, external IP, load balancer IP, node port"""
    address: str
    """"" for a node port."""
    number: int


class At(NamedTuple):
    """A service port that answers on an address, and as what."""

    port: ServicePort
    place: Place


def places(port: ServicePort, *, with_external_ips: bool) -> Iterator[Place]:
    """Yield what a service port answers on."""
    yield Place("cluster IP", port.cluster_ip, port.port)
    if with_external_ips:
        yield from (Place("external IP", address, port.port) for address in port.external_ips)
    yield from (Place("load balancer IP", address, port.port) for address in port.load_balancer_ips)
    if port.node_port:
        yield Place("node port", "", port.node_port)


def answering(picture: Picture, address: str) -> list[At]:
    """Return the service ports that answer on an address of this node's family, by service."""
    allowed = picture.settings.nodeport_addresses
    is_own = address in picture.own_addresses() and (allowed is None or address in allowed)
    with_external_ips = picture.settings.uses_external_ips
    keys = picture.keys()
    return [
        At(port, place)
        for key in keys
        for port in picture.state.ports(key)
        for place in places(port, with_external_ips=with_external_ips)
        if place.address == address or (is_own and not place.address)
    ]


def ports_told(ports: Iterable[ServicePort]) -> str:
    """Return service ports in words, the first few: ``dns 53/UDP, dns-tcp 53/TCP``."""
    return shortened([f"{one.id.port} {one.port}/{one.id.protocol}".lstrip() for one in ports])


def shortened(words: Sequence[str]) -> str:
    """Return a list in words: the first few, and how many more there are."""
    few = 5
    return ", ".join(words[:few]) + (f" and {len(words) - few:,} more" if len(words) > few else "")


def why_no_rules(service: Service, families: Sequence[str]) -> str:
    """Say why there are no rules for a service that exists."""
    meta, spec = service.metadata, service.spec
    key = ServiceKey(meta.namespace, meta.name)
    if spec is not None and spec.type == "ExternalName":
        return f"{key} is an ExternalName: a name in DNS, so there are no rules for it"
    if spec is not None and spec.cluster_ip == "None":
        return f"{key} is headless: DNS gives its pods' addresses, so there are no rules for it"
    if PROXY_NAME_LABEL in (meta.labels or {}):
        return f"{key} is left to another proxy by its label {PROXY_NAME_LABEL}, so there are no rules for it"
    if spec is None or not spec.cluster_ip:
        return f"{key} has no cluster IP, so there are no rules for it"
    if not spec.ports:
        return f"{key} has no ports, so there are no rules for it"
    return f"{key} has no address in {' or '.join(families)}"


def why_no_service(key: ServiceKey, known: Iterable[ServiceKey]) -> str:
    """Say that there is no such service, and which one may be meant."""
    names = frozenset(known)
    beside = sorted(name for namespace, name in names if namespace == key.namespace)
    in_dns = key.name.split(".")
    meant = [
        *(ServiceKey(key.namespace, name) for name in difflib.get_close_matches(key.name, beside, n=1)),
        *sorted(one for one in names if one.name == key.name),
        # web.default.svc.cluster.local
        *(one for one in names if len(in_dns) > 1 and one == (in_dns[1], in_dns[0])),
    ]
    nothing = f"there is no Service {key}"
    if meant:
        return f"{nothing}; there is {meant[0]}"
    if beside:
        return f"{nothing}; namespace {key.namespace} has {shortened(beside)}"
    elsewhere = sorted(frozenset(one.namespace for one in names))
    if not elsewhere:
        return f"{nothing}, nor any other"
    return f"{nothing}; none is in namespace {key.namespace}, but in {shortened(elsewhere)}"


def why_nobody(picture: Picture, services: Iterable[Service], address: str) -> str:
    """Say why no service answers on an address."""
    nobody = f"no Service has the address {address}"
    for service in services:
        if any(one.ip_mode == "Proxy" and _same(one.ip, address) for one in _ingress(service)):
            key = ServiceKey(service.metadata.namespace, service.metadata.name)
            return f"at {address} of {key} the load balancer itself answers (ipMode Proxy): no rule is about it"
    keys = picture.keys()
    for key in keys:
        for port, endpoints in picture.state.endpoints(key).items():
            if any(one.address == address for one in endpoints):
                return f"{nobody}; it is an endpoint of {port}"
    return nobody


def _ingress(service: Service) -> Sequence[LoadBalancerIngress]:
    is_balanced = service.spec is not None and service.spec.type == "LoadBalancer"
    balancer = service.status.load_balancer if service.status is not None else None
    return (balancer.ingress or ()) if is_balanced and balancer is not None else ()


def _same(text: str | None, address: str) -> bool:
    try:
        return parse_ip(text or "") == (family_of(address), address)
    except ValueError:
        return False
