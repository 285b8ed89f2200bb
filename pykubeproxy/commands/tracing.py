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
    note_lines,
    objects_of,
    own_node_of,
    picture_of,
    print_data,
    print_parts,
    service_key,
    why_nothing,
)
from pykubeproxy.errors import UsageError
from pykubeproxy.model.addresses import Family, family_of, parse_ip

if TYPE_CHECKING:
    from pykubeproxy.insight.cluster import Picture
    from pykubeproxy.insight.live import Route
    from pykubeproxy.insight.packet import Origin, Packet
    from pykubeproxy.insight.tracer import Tracer
    from pykubeproxy.model.service import ServiceKey, ServicePort
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

    Without --live the rules are those that follow from the objects (--manifests, or the API server).
    """
    from pykubeproxy.insight import tracetext  # noqa: PLC0415

    asked = asked_for(context, flags)
    tracing = _live_tracing if live else _object_tracing
    one = tracing(asked, sender, target, in_interface)
    found = one.tracer.trace(one.packet)
    if output != "text":
        print_data(tracetext.plain(found, one.notes, one.owner), output)
        return
    print_parts([*tracetext.tree(found, one.title, one.owner, is_whole=is_whole), *note_lines(one.notes)])


class _Target(NamedTuple):
    """What --to says, taken apart."""

    host: str
    """An address or [NAMESPACE/]SERVICE."""
    port: str
    """A number or the name of a service port; "" where none is given."""
    protocol: str
    """tcp, udp or sctp; "" where none is given."""


_REFUSED = (
    "is neither IP:PORT (IPv6: [IP]:PORT) nor [NAMESPACE/]SERVICE[:PORT or its name], with /udp or /sctp behind it "
    "for another protocol than TCP"
)


def _target(text: str) -> _Target:
    """Take ``10.0.0.1:80/udp``, ``[fd00::1]:80`` or ``default/web:http`` apart."""
    rest, slash, protocol = text.rpartition("/")
    if not slash or ":" not in rest or protocol.lower() not in ("tcp", "udp", "sctp"):
        rest, protocol = text, ""
    if rest.startswith("["):
        host, bracket, after = rest[1:].partition("]")
        is_complete, port = bool(bracket) and after[:1] == ":" and _is_address(host), after[1:]
    else:
        host, _, port = rest.rpartition(":") if ":" in rest else (rest, "", "")
        if ":" in host:
            if _is_address(rest) or _is_address(host):
                example = f"[{host}]:{port}" if _is_address(host) and port.isdigit() else f"[{rest}]:80"
                raise UsageError(f"--to: an IPv6 address stands in brackets before its port: {example}")
            raise UsageError(f"--to: {text!r} {_REFUSED}")
        is_complete = not _is_address(host) or bool(port)
    is_number = port.isascii() and port.isdigit() and 0 < int(port) < 65536
    if not host or not is_complete or "/" in port or (not is_number and (port.isdigit() or _is_address(host))):
        raise UsageError(f"--to: {text!r} {_REFUSED}")
    return _Target(host, port, protocol.lower())


def _address(text: str, flag: str) -> str:
    try:
        return parse_ip(text)[1]
    except ValueError as problem:
        raise UsageError(f"{flag}: {problem}") from None


@dataclass(slots=True)
class _Tracing:
    """What a trace needs: the packet, the rules, and words around them."""

    packet: Packet
    tracer: Tracer
    title: str
    notes: list[str]
    owner: Callable[[str], str] = lambda _: ""


def _object_tracing(asked: Asked, sender: str, target: str, in_interface: str) -> _Tracing:
    """Trace through the rules that follow from the objects."""
    from pykubeproxy.insight.tracer import Tracer  # noqa: PLC0415
    from pykubeproxy.node.addresses import interface_addresses, local_addresses  # noqa: PLC0415

    objects = objects_of(asked)
    _, notes = own_node_of(asked, objects)
    picture, destination, port, protocol, note = _meant(asked, objects, _target(target), sender)
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

    live.require_rights()
    wanted = _target(target)
    owner: Callable[[str], str] = lambda _: ""  # noqa: E731
    notes: list[str] = []
    if asked.options.manifests or not _is_address(wanted.host):
        objects = objects_of(asked)
        _, notes = own_node_of(asked, objects)
        picture, destination, port, protocol, note = _meant(asked, objects, wanted, sender)
        notes += [note] if note else []
        settings, owner = picture.settings, _owner_of(picture)
    else:
        destination, port, protocol = _address(wanted.host, "--to"), int(wanted.port), wanted.protocol or "tcp"
        settings = rule_settings(
            family_of(destination), asked.options, asked.node_name, None, local_facts(asked.options)
        )
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
    return _Tracing(packet, Tracer(tables), title, notes + unseen, owner)


def _is_address(text: str) -> bool:
    try:
        parse_ip(text)
    except ValueError:
        return False
    return True


class _Meant(NamedTuple):
    """Where a packet is sent, in the end."""

    picture: Picture
    address: str
    port: int
    protocol: str
    note: str = ""


def _meant(asked: Asked, objects: ClusterObjects, target: _Target, sender: str) -> _Meant:
    """Return where a packet is sent; a Service stands for its cluster IP, of the sender's family if it has one."""
    if _is_address(target.host):
        address = _address(target.host, "--to")
        picture = picture_of(asked, objects, family_of(address))
        return _Meant(picture, address, int(target.port), target.protocol or "tcp")
    key = service_key(target.host, "--to")
    senders = family_of(_address(sender, "--from")) if _is_address(sender) else None
    for family in sorted(asked.families, key=lambda one: one != senders):
        picture = picture_of(asked, objects, family)
        ports = picture.state.ports(key)
        if ports:
            return _port_meant(picture, key, ports, target)
    raise UsageError(f"--to: {why_nothing(asked, objects, key)}")


def _port_meant(picture: Picture, key: ServiceKey, ports: Sequence[ServicePort], target: _Target) -> _Meant:
    """Return the port of a service that is meant: by number or name, or the only one."""
    known = [one for one in ports if target.protocol in ("", one.id.protocol.lower())]
    found = [one for one in known if target.port in ("", str(one.port), one.id.port)]
    has = ", ".join(f"{one.id.port} {one.port}/{one.id.protocol}".lstrip() for one in ports)
    if not target.port and len(found) > 1:
        example = found[0].id.port or f"{found[0].port}/{found[0].id.protocol.lower()}"
        raise UsageError(f"--to: {key} has several ports: {has}; say which, such as {target.host}:{example}")
    if found:
        # TCP where one number or name is both, as for an address.
        port = next((one for one in found if one.id.protocol == "TCP"), found[0])
        return _Meant(picture, port.cluster_ip, port.port, port.id.protocol.lower())
    note = f"{key} has no port {target.port}{f'/{target.protocol.upper()}' if target.protocol else ''}; it has {has}"
    if not target.port.isdigit():
        raise UsageError(f"--to: {note}")
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
        source = _address(sender, "--from")
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
