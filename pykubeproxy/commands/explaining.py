"""``explain``: what a Service is on this node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
    nothing_found,
    objects_of,
    own_node_of,
    picture_of,
    print_data,
    print_parts,
    put,
    unread_notes,
)
from pykubeproxy.commands.target import Target, target_of
from pykubeproxy.errors import NothingFound, PykubeproxyError, UsageError
from pykubeproxy.model.addresses import Family, with_port

if TYPE_CHECKING:
    from pykubeproxy.insight.cluster import Picture
    from pykubeproxy.insight.standing import Standing
    from pykubeproxy.model.service import ServiceKey, ServicePortName
    from pykubeproxy.watch.manifests import ClusterObjects


@command("explain", "Show what a Service is on this node, as a tree.")
@click.argument("name", metavar="[NAMESPACE/]SERVICE[:PORT]|IP[:PORT]")
@click.option(
    "--live/--no-live", default=None, help="Look at the kernel too.  [default: as root, where our rules stand]"
)
@ALL
@click.option("--graph", type=click.Choice(("mermaid", "dot")), help="Print a drawing of the chains instead.")
@OUTPUT
def explain(
    context: click.Context,
    /,
    *,
    name: str,
    live: bool | None,
    is_whole: bool,
    graph: str | None,
    output: str,
    **flags: Any,
) -> None:
    """Show a Service on this node: addresses, chains, endpoints with their share, and why other endpoints are not used.

    With the kernel: what it has counted, how full affinity's memory is, and whether its rules are the right ones.

    The Service is named, or found by an address of its own: cluster, external or load balancer IP, or one of this node
    with a node port. PORT is a number or a port's name, /udp or /sctp behind it ask for one protocol.

    Exits 0 with an answer, 1 when there is nothing to explain, 2 when that could not be found out.
    """
    import msgspec  # noqa: PLC0415

    from pykubeproxy.insight import explaintext  # noqa: PLC0415
    from pykubeproxy.insight.explain import explain as answer  # noqa: PLC0415
    from pykubeproxy.insight.graph import draw  # noqa: PLC0415
    from pykubeproxy.insight.running import ask  # noqa: PLC0415

    if graph is not None and output != "text":
        raise UsageError(f"--graph and -o {output} exclude each other")
    asked = asked_for(context, flags)
    target = target_of(name, "explain", needs_port=False)
    families = (family_for(asked, target.address, "explain"),) if target.address else asked.families
    objects = objects_of(asked)
    _, notes = own_node_of(asked, objects)
    notes += unread_notes(objects)
    running = None if live is False else ask(asked.options.metrics_bind_address)
    pictures = []
    found = []
    for family in families:
        standing = _standing(asked, family, live)
        picture = picture_of(asked, objects, family, standing.ruleset if standing is not None else None)
        pictures.append(picture)
        # Where nothing of ours stands and no daemon runs, the question was about the objects alone.
        is_told = running is not None and (live or standing is not None or running.daemon.condition != "absent")
        for key, ports in _meant(picture, target).items():
            one = answer(
                picture,
                key,
                only=ports,
                standing=standing,
                problems=picture.problems(key),
                faults=objects.faults_of(key),
                left_out=running.why_left_out(key, family) if running is not None else "",
                daemon=running.daemon if running is not None and is_told else None,
            )
            if one is not None:
                found.append(one)
    if not found:
        raise _nothing(asked, objects, pictures, target)
    if graph is not None:
        put(draw(found, graph, is_whole=is_whole))  # type: ignore[arg-type]
    elif output != "text":
        print_data(msgspec.to_builtins(found), output)
    else:
        if not is_whole and any(map(explaintext.leaves_out, found)):
            notes.append("--all shows every endpoint")
        print_parts([*(explaintext.tree(one, is_whole=is_whole) for one in found), *note_lines(notes)])


def _standing(asked: Asked, family: Family, live: bool | None) -> Standing | None:  # noqa: FBT001 - three states of a flag
    """Read the kernel if that is wanted, or possible and worth it."""
    from pykubeproxy.insight import live as kernel  # noqa: PLC0415
    from pykubeproxy.netfilter.process import SubprocessRunner  # noqa: PLC0415

    if live is False or (live is None and not kernel.may_read()):
        return None
    kernel.require_rights("without --live the objects alone are looked at")
    runner = SubprocessRunner()
    try:
        standing = kernel.read(kernel.backend_of(asked.options.iptables_backend, family, runner), runner)
    except PykubeproxyError:
        if live is None:
            return None
        raise
    return standing if live or any(standing.ruleset.chains.values()) else None


def _meant(picture: Picture, target: Target) -> dict[ServiceKey, set[ServicePortName]]:
    """Return the service ports that are asked about, by service."""
    from pykubeproxy.insight.lookup import answering  # noqa: PLC0415

    found: dict[ServiceKey, set[ServicePortName]] = {}
    if not target.address:
        for port in picture.state.ports(target.key):
            if target.is_port(port.id.port, port.id.protocol, port.port, port.node_port):
                found.setdefault(target.key, set()).add(port.id)
        return found
    for port, place in answering(picture, target.address):
        # An address of the node alone would mean every service with a node port.
        is_said = bool(target.port) or place.address
        if is_said and target.is_port(port.id.port, port.id.protocol, place.number):
            found.setdefault(port.id.key, set()).add(port.id)
    return found


def _nothing(asked: Asked, objects: ClusterObjects, pictures: Sequence[Picture], target: Target) -> PykubeproxyError:
    """Return what to tell where nothing is found."""
    from pykubeproxy.insight.lookup import answering, ports_told, shortened, why_nobody  # noqa: PLC0415

    if not target.address:
        ports = next(filter(None, (picture.state.ports(target.key) for picture in pictures)), ())
        if ports:
            return NothingFound(f"{target.key} has no port {target.wanted}; it has {ports_told(ports)}")
        return nothing_about(asked, objects, target.key)
    (picture,) = pictures
    there = answering(picture, target.address)
    if not there:
        return nothing_found(why_nobody(picture, objects.services, target.address), objects)
    names = list(dict.fromkeys(f"{port.id.key} {place.number}/{port.id.protocol}" for port, place in there))
    if not target.port and not any(place.address for _, place in there):
        example = f"explain {with_port(target.address, there[0].place.number)}"
        return UsageError(
            f"explain: {target.address} is an address of this node; say which node port, such as {example}"
        )
    told = f"no Service has port {target.wanted} of {target.address}; there is {shortened(names)}"
    return nothing_found(told, objects)
