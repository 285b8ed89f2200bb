"""``trace``: the way of one packet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pykubeproxy.commands.common import (
    ALL,
    OUTPUT,
    Asked,
    asked_for,
    command,
    family_for,
    note_lines,
    nothing_about,
    objects_of,
    own_node_of,
    picture_of,
    print_data,
    print_parts,
)
from pykubeproxy.commands.target import Target, is_ip, sender_of, target_of
from pykubeproxy.errors import NetfilterError, NothingFound, UsageError
from pykubeproxy.model.addresses import Family, family_of

if TYPE_CHECKING:
    from pykubeproxy.insight.cluster import Picture
    from pykubeproxy.insight.live import Route
    from pykubeproxy.insight.packet import Origin, Packet
    from pykubeproxy.insight.tracer import Tracer
    from pykubeproxy.model.service import ServicePort
    from pykubeproxy.rules.settings import RuleSettings
    from pykubeproxy.watch.manifests import ClusterObjects

_OUTSIDE: dict[Family, str] = {"IPv4": "203.0.113.1", "IPv6": "2001:db8::1"}
"""Addresses that nobody has (RFC 5737, RFC 3849) stand for the rest of the world."""


@command("trace", "Show the way of one packet through the rules.")
@click.option(
    "--from", "sender", default="outside", metavar="IP|node|outside", help="Who sends it.  [default: outside]"
)
@click.option(
    "--to",
    "target",
    required=True,
    metavar="IP:PORT[/udp]",
    help="Where to; also [IPv6]:PORT or [NAMESPACE/]SERVICE[:PORT or its name].",
)
@click.option("--live", is_flag=True, help="Walk the rules in the kernel, those of other programs too. Needs root.")
@ALL
@click.option("--in-interface", default="", metavar="NAME", help="The interface that the packet comes in by.")
@OUTPUT
def trace(
    context: click.Context,
    /,
    *,
    sender: str,
    target: str,
    live: bool,
    is_whole: bool,
    in_interface: str,
    output: str,
    **flags: Any,
) -> None:
    """Show the way of one packet: tables, chains and rules in the kernel's order, and where it ends with what chance.

    Without --live the rules are those that follow from the objects (--manifests, or the API server). With --live and an
    IP address objects are read from --manifests only: nothing else needs them.

    Exits 0 with an answer, whatever becomes of the packet, 1 when there is no such Service or port, 2 when that could
    not be found out.
    """
    from pykubeproxy.insight import affinity, tracetext  # noqa: PLC0415

    asked = asked_for(context, flags)
    tracing = _live_tracing if live else _object_tracing
    one = tracing(asked, sender_of(sender, "--from"), target, in_interface)
    if in_interface and one.packet.origin == "node":
        raise UsageError("--in-interface: what this node sends comes in by no interface")
    try:
        found = one.tracer.trace(one.packet)
    except ValueError as problem:
        raise NetfilterError(f"no packet can walk these rules: {problem}") from problem
    kept = affinity.affinity_of(found, one.tracer, has_memory=live, has_ages=one.has_ages)
    if kept is not None:
        one.notes.append(affinity.told(kept))
    if output != "text":
        print_data(tracetext.plain(found, one.notes, one.owner, affinity.plain(kept)), output)
        return
    print_parts([*tracetext.tree(found, one.title, one.owner, is_whole=is_whole), *note_lines(one.notes)])


@dataclass(slots=True)
class _Tracing:
    """What a trace needs: the packet, the rules, and words around them."""

    packet: Packet
    tracer: Tracer
    title: str
    notes: list[str]
    owner: Callable[[str], str] = lambda _: ""
    has_ages: bool = False
    """Whether the packet knows when affinity last saw a client."""


def _object_tracing(asked: Asked, sender: str, target: str, in_interface: str) -> _Tracing:
    """Trace through the rules that follow from the objects."""
    from pykubeproxy.insight.tracer import Tracer  # noqa: PLC0415
    from pykubeproxy.node.addresses import interface_addresses, local_addresses  # noqa: PLC0415

    objects = objects_of(asked)
    _, notes = own_node_of(asked, objects)
    picture, destination, port, protocol, note = _meant(
        asked, objects, target_of(target, "--to", needs_port=True), sender
    )
    notes += [note] if note else []
    own = picture.own_addresses()
    if not own:
        own = local_addresses(interface_addresses(), picture.family)
        notes.append(f"no Node object tells this node's {picture.family} addresses; those of this machine are taken")
    packet = _packet(picture.settings, sender, destination, port, protocol, own=own)
    detector = picture.settings.local_detector
    if detector is not None and detector.interface and packet.origin != "node":
        # Rules that tell pods by their interface need one; any name that they would take for a pod's will do.
        of_a_pod = detector.interface.replace("+", "0")
        in_interface = in_interface or (of_a_pod if packet.origin == "pod" else "(outside)")
    packet = replace(packet, in_interface=in_interface)
    title = f"rules as they should stand on {asked.node_name}; --live shows the kernel's"
    return _Tracing(packet, Tracer.from_ruleset(picture.wanted.ruleset), title, notes, _owner_of(picture))


def _live_tracing(asked: Asked, sender: str, target: str, in_interface: str) -> _Tracing:
    """Trace through what stands in the kernel. Objects are read where manifests are given or a name is asked for."""
    from pykubeproxy.dryrun import local_facts  # noqa: PLC0415
    from pykubeproxy.insight import live  # noqa: PLC0415
    from pykubeproxy.insight.tracer import Tracer  # noqa: PLC0415
    from pykubeproxy.netfilter.process import SubprocessRunner  # noqa: PLC0415
    from pykubeproxy.node.addresses import interface_addresses, local_addresses  # noqa: PLC0415
    from pykubeproxy.sync.derive import rule_settings  # noqa: PLC0415

    live.require_rights("without --live the rules are those that follow from the objects")
    wanted = target_of(target, "--to", needs_port=True)
    owner: Callable[[str], str] = lambda _: ""  # noqa: E731
    notes: list[str] = []
    if asked.options.manifests or not wanted.address:
        objects = objects_of(asked)
        _, notes = own_node_of(asked, objects)
        picture, destination, port, protocol, note = _meant(asked, objects, wanted, sender)
        notes += [note] if note else []
        settings, owner = picture.settings, _owner_of(picture)
    else:
        destination, port, protocol = wanted.address, int(wanted.port), wanted.protocol or "tcp"
        family = family_for(asked, destination, "--to")
        settings = rule_settings(family, asked.options, asked.node_name, None, local_facts(asked.options))
    runner = SubprocessRunner()
    backend = live.backend_of(asked.options.iptables_backend, settings.family, runner)
    own = local_addresses(interface_addresses(), settings.family, with_link_local=True)
    packet = _packet(settings, sender, destination, port, protocol, own=own, route=live.route_to)
    tables, unseen = live.all_tables(backend, runner)
    memory, has_ages = live.recent_memory()
    if not has_ages and any(packet.source in seen for seen in memory.values()):
        notes.append("the kernel does not tell when affinity last saw a client; it is taken as just now")
    if packet.origin != "node":
        in_interface = in_interface or live.route_to(packet.source).interface
    packet = replace(
        packet, in_interface=in_interface, interface_to=lambda address: live.route_to(address).interface, recent=memory
    )
    program = f"iptables-{backend.kind} {'.'.join(map(str, backend.version))}"
    title = f"rules as they stand in the kernel of {asked.node_name} ({program})"
    return _Tracing(packet, Tracer(tables), title, notes + unseen, owner, has_ages)


class _Meant(NamedTuple):
    """Where a packet is sent, in the end."""

    picture: Picture
    address: str
    port: int
    protocol: str
    note: str = ""


def _meant(asked: Asked, objects: ClusterObjects, target: Target, sender: str) -> _Meant:
    """Return where a packet is sent; a Service stands for its cluster IP, of the sender's family if it has one."""
    if target.address:
        picture = picture_of(asked, objects, family_for(asked, target.address, "--to"))
        return _Meant(picture, target.address, int(target.port), target.protocol or "tcp")
    senders = family_of(sender) if is_ip(sender) else None
    for family in sorted(asked.families, key=lambda one: one != senders):
        picture = picture_of(asked, objects, family)
        ports = picture.state.ports(target.key)
        if ports:
            return _port_meant(picture, ports, target)
    raise nothing_about(asked, objects, target.key, "--to: ")


def _port_meant(picture: Picture, ports: Sequence[ServicePort], target: Target) -> _Meant:
    """Return the port of a service that is meant: by number or name, or the only one."""
    from pykubeproxy.insight.lookup import ports_told  # noqa: PLC0415

    found = [one for one in ports if target.is_port(one.id.port, one.id.protocol, one.port)]
    if not target.port and len(found) > 1:
        example = found[0].id.port or f"{found[0].port}/{found[0].id.protocol.lower()}"
        raise UsageError(
            f"--to: {target.key} has several ports: {ports_told(ports)}; say which, such as {target.key}:{example}"
        )
    if found:
        # TCP where one number or name is both, as for an address.
        port = next((one for one in found if one.id.protocol == "TCP"), found[0])
        return _Meant(picture, port.cluster_ip, port.port, port.id.protocol.lower())
    note = f"{target.key} has no port {target.wanted}; it has {ports_told(ports)}"
    if not target.port.isdigit():
        raise NothingFound(f"--to: {note}")
    return _Meant(picture, ports[0].cluster_ip, int(target.port), target.protocol or "tcp", note)


def _owner_of(picture: Picture) -> Callable[[str], str]:
    owners = picture.wanted.owner
    return lambda chain: str(owners[chain]) if chain in owners else ""


def _packet(
    settings: RuleSettings,
    sender: str,
    destination: str,
    port: int,
    protocol: str,
    *,
    own: frozenset[str],
    route: Callable[[str], Route] | None = None,
) -> Packet:
    """Return the packet that is meant, told by its sender."""
    from pykubeproxy.insight.match import in_network  # noqa: PLC0415
    from pykubeproxy.insight.packet import Packet, is_loopback  # noqa: PLC0415

    origin: Origin = "outside"
    if sender == "outside":
        source = _OUTSIDE[settings.family]
    elif sender == "node":
        origin = "node"
        if destination in own or is_loopback(destination):
            source = destination
        else:
            source = (route(destination).source if route is not None else "") or settings.node_ip
    else:
        source = sender
        if family_of(source) != settings.family:
            raise UsageError(f"--from: {source} and {destination} are of two IP families")
        detector = settings.local_detector
        if source in own or is_loopback(source):
            origin = "node"
        elif detector is not None and detector.network and in_network(source, detector.network):
            origin = "pod"
    return Packet(
        source=source, destination=destination, port=port, protocol=protocol, origin=origin, local_addresses=own
    )
