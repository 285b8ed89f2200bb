"""The subcommands that answer and end: explain, trace, diff. Arguments and output only; ``insight`` has the answers.

They take the daemon's flags and --config, before or behind the command's name, so that they see what the daemon sees.
"""

from __future__ import annotations

import difflib
import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pykubeproxy import log
from pykubeproxy.config.flags import FLAGS, flag_options, resolve
from pykubeproxy.config.hostname import hostname
from pykubeproxy.config.notes import log_notes
from pykubeproxy.config.options import Options
from pykubeproxy.errors import ConfigurationError, NetfilterError, PykubeproxyError, UsageError
from pykubeproxy.model.addresses import FAMILIES, Family, family_of, parse_ip
from pykubeproxy.rules.ruleset import Ruleset

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from pykubeproxy.insight.cluster import Picture
    from pykubeproxy.insight.compare import ChainDiff
    from pykubeproxy.insight.live import Route
    from pykubeproxy.insight.packet import Origin, Packet
    from pykubeproxy.insight.standing import Standing
    from pykubeproxy.insight.tracer import Tracer
    from pykubeproxy.model.service import ServiceKey
    from pykubeproxy.rules.settings import RuleSettings
    from pykubeproxy.watch.manifests import ClusterObjects
    from pykubeproxy.watch.objects import Node

_C = TypeVar("_C", bound=Callable[..., Any])
_SHOWN = frozenset(
    ("config", "manifests", "kubeconfig", "hostname-override", "cluster-cidr", "ip-family", "iptables-backend")
)
"""The daemon's flags that a command's help repeats; it takes all of them."""
_BOOLEANS = frozenset(flag.name for flag in FLAGS if flag.is_boolean)
_NAMES = frozenset(flag.name for flag in FLAGS)
_OUTSIDE: dict[Family, str] = {"IPv4": "203.0.113.1", "IPv6": "2001:db8::1"}
"""Addresses that nobody has (RFC 5737, RFC 3849) stand for the rest of the world."""


class _Command(click.Command):
    """A command that reads the daemon's flags as the daemon does: underscores for dashes, bare booleans."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite the daemon's flags to a form that click reads alike."""
        return super().parse_args(ctx, [_normal(argument) for argument in args])


def _normal(argument: str) -> str:
    if not argument.startswith("--") or argument == "--":
        return argument
    name, equals, value = argument[2:].partition("=")
    name = name.replace("_", "-")
    if name in _BOOLEANS and name != "help" and not equals:
        return f"--{name}=true"
    return f"--{name}{equals}{value}"


def _command(name: str, summary: str) -> Callable[[_C], click.Command]:
    def decorate(function: _C) -> click.Command:
        made = click.command(name, cls=_Command, short_help=summary)(flag_options(click.pass_context(function)))
        daemons = [one for one in made.params if isinstance(one, click.Option) and _flag(one) in _NAMES]
        for option in daemons:
            option.hidden = _flag(option) not in _SHOWN
            if _flag(option) == "ip-family":
                option.help = "Only this family, ipv4 or ipv6."
        # Its own options come first in a command's help.
        made.params = [*(one for one in made.params if one not in daemons), *daemons]
        made.epilog = "Takes the daemon's other flags as well; see pykubeproxy --help."
        return made

    return decorate


def _flag(option: click.Option) -> str:
    return (option.name or "").replace("_", "-")


_OUTPUT = click.option(
    "-o", "--output", type=click.Choice(("text", "json", "yaml")), default="text", help="How to print the answer."
)

_ALL = click.option("--all", "is_whole", is_flag=True, help="Show every endpoint, however many there are.")


def register(group: click.Group) -> None:
    """Add the subcommands to the command line."""
    for command in (explain, trace, diff):
        group.add_command(command)


# -- what every command needs


@dataclass(slots=True)
class _Asked:
    """The daemon's options, and which node this is."""

    options: Options
    node_name: str
    families: tuple[Family, ...]
    """Both, or the one that --ip-family names."""


def _asked(context: click.Context, flags: dict[str, Any]) -> _Asked:
    before = context.obj or {}
    values = {name: (*(before.get(name) or ()), *(flags.get(name) or ())) for name in {**before, **flags}}
    log.set_up(quiet=True)
    invocation, notes = resolve(values)
    log.set_up(style=invocation.options.logging.format, verbosity=invocation.options.logging.verbosity, quiet=True)
    log_notes(notes)
    actions = {
        "--cleanup": invocation.cleanup,
        "--init-only": invocation.init_only,
        "--dry-run": invocation.dry_run,
        "--write-config-to": bool(invocation.write_config_to),
    }
    for flag, is_given in actions.items():
        if is_given:
            raise UsageError(f"{flag} and {context.info_name} exclude each other")
    families: tuple[Family, ...] = FAMILIES
    if invocation.ip_family:
        families = ("IPv4",) if invocation.ip_family == "ipv4" else ("IPv6",)
    options = invocation.options
    return _Asked(options, hostname(options, socket.gethostname()), families)


def _objects(asked: _Asked) -> ClusterObjects:
    from pykubeproxy import daemon  # noqa: PLC0415 - what it imports takes half a second

    return daemon.read_objects(asked.options, asked.node_name)


def _own_node(asked: _Asked, objects: ClusterObjects) -> tuple[Node | None, list[str]]:
    from pykubeproxy.dryrun import own_node  # noqa: PLC0415

    node = own_node(objects, asked.node_name)
    if node is not None or not objects.nodes:
        return node, []
    names = ", ".join(sorted(one.metadata.name for one in objects.nodes)[:5])
    return None, [f"no Node is called {asked.node_name}; --hostname-override says which one this is ({names})"]


def _picture(asked: _Asked, objects: ClusterObjects, family: Family, standing: Ruleset | None = None) -> Picture:
    """Return what the objects mean; standing rules tell of matches that the kernel may lack, and of the form."""
    from pykubeproxy.dryrun import local_facts  # noqa: PLC0415
    from pykubeproxy.insight.cluster import picture  # noqa: PLC0415
    from pykubeproxy.insight.compare import shown_facts  # noqa: PLC0415
    from pykubeproxy.rules.dispatch import leads_to_tree  # noqa: PLC0415
    from pykubeproxy.sync.derive import rule_settings  # noqa: PLC0415

    node, _ = _own_node(asked, objects)
    found = local_facts(asked.options)
    is_tree = False
    if standing is not None:
        found = shown_facts(found, standing)
        is_tree = bool(leads_to_tree(standing.chains["nat"]))
    settings = rule_settings(family, asked.options, asked.node_name, node, found)
    dispatch = asked.options.service_dispatch
    return picture(settings, objects.services, objects.slices, dispatch=dispatch, stands_as_tree=is_tree, node=node)


def _console() -> Console:
    """Return where answers go: as wide as the terminal, 80 columns elsewhere; colours on a terminal only."""
    from rich.console import Console  # noqa: PLC0415

    width = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", "") or 80)
    return Console(width=width, highlight=False, emoji=False, markup=False)


def _print(parts: Iterable[RenderableType]) -> None:
    console = _console()
    if console.is_terminal:
        for part in parts:
            console.print(part)
        return
    with console.capture() as captured:
        for part in parts:
            console.print(part, soft_wrap=getattr(part, "no_wrap", None) is True)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def _print_data(data: Any, output: str) -> None:
    if output == "json":
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    import yaml  # noqa: PLC0415

    click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100), nl=False)


# -- trace


@_command("trace", "Show the way of one packet through the rules.")
@click.option(
    "--from", "sender", default="outside", metavar="IP|node|outside", help="Who sends it.  [default: outside]"
)
@click.option(
    "--to", "target", required=True, metavar="IP:PORT[/PROTOCOL]", help="Where to; also NAMESPACE/SERVICE:PORT."
)
@click.option("--live", is_flag=True, help="Walk the rules in the kernel, those of other programs too. Needs root.")
@_ALL
@click.option("--in-interface", default="", metavar="NAME", help="The interface that the packet comes in by.")
@_OUTPUT
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

    asked = _asked(context, flags)
    tracing = _live_tracing if live else _object_tracing
    one = tracing(asked, sender, target, in_interface)
    found = one.tracer.trace(one.packet)
    if output != "text":
        _print_data(tracetext.plain(found, one.notes, one.owner), output)
        return
    _print([*tracetext.tree(found, one.title, one.owner, is_whole=is_whole), *_notes(one.notes)])


def _notes(notes: Sequence[str]) -> list[RenderableType]:
    from rich.text import Text  # noqa: PLC0415

    return [Text(f"note: {note}", style="dim") for note in notes]


def _destination(text: str) -> tuple[str, int, str]:
    """Split ``10.0.0.1:80/udp`` or ``[fd00::1]:80`` into (address or name, port or 0, protocol)."""
    rest, slash, protocol = text.rpartition("/")
    if not slash or protocol.lower() not in ("tcp", "udp", "sctp"):
        rest, protocol = text, "tcp"
    host, colon, number = rest.rpartition(":")
    if not colon or not number.isdigit() or not 0 < int(number) < 65536:
        raise UsageError(f"--to: {text!r} is not IP:PORT[/udp], such as 10.96.0.10:53/udp or [fd00::1]:80")
    return host.strip("[]"), int(number), protocol.lower()


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


def _object_tracing(asked: _Asked, sender: str, target: str, in_interface: str) -> _Tracing:
    """Trace through the rules that follow from the objects."""
    from pykubeproxy.insight.tracer import Tracer  # noqa: PLC0415
    from pykubeproxy.node.addresses import interface_addresses, local_addresses  # noqa: PLC0415

    objects = _objects(asked)
    _, notes = _own_node(asked, objects)
    host, port, protocol = _destination(target)
    picture, destination = _meant(asked, objects, host)
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


def _live_tracing(asked: _Asked, sender: str, target: str, in_interface: str) -> _Tracing:
    """Trace through what stands in the kernel. Objects are read where manifests are given or a name is asked for."""
    from pykubeproxy.dryrun import local_facts  # noqa: PLC0415
    from pykubeproxy.insight import live  # noqa: PLC0415
    from pykubeproxy.insight.tracer import Tracer  # noqa: PLC0415
    from pykubeproxy.netfilter.process import SubprocessRunner  # noqa: PLC0415
    from pykubeproxy.node.addresses import interface_addresses, local_addresses  # noqa: PLC0415
    from pykubeproxy.sync.derive import rule_settings  # noqa: PLC0415

    live.require_rights()
    host, port, protocol = _destination(target)
    owner: Callable[[str], str] = lambda _: ""  # noqa: E731
    notes: list[str] = []
    if asked.options.manifests or not _is_address(host):
        objects = _objects(asked)
        _, notes = _own_node(asked, objects)
        picture, destination = _meant(asked, objects, host)
        settings, owner = picture.settings, _owner_of(picture)
    else:
        destination = _address(host, "--to")
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


def _meant(asked: _Asked, objects: ClusterObjects, host: str) -> tuple[Picture, str]:
    """Return the picture of a destination's family, and its address; a Service stands for its cluster IP."""
    if _is_address(host):
        destination = _address(host, "--to")
        return _picture(asked, objects, family_of(destination)), destination
    key = _service_key(host, "--to")
    for family in asked.families:
        picture = _picture(asked, objects, family)
        ports = picture.state.ports(key)
        if ports:
            return picture, ports[0].cluster_ip
    raise UsageError(f"--to: there is no Service {key} with a cluster IP")


def _service_key(text: str, flag: str) -> ServiceKey:
    from pykubeproxy.model.service import ServiceKey  # noqa: PLC0415

    namespace, slash, name = text.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise UsageError(f"{flag}: {text!r} is neither an IP address nor [NAMESPACE/]SERVICE")
    return ServiceKey(namespace or "default", name)


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


# -- explain


@_command("explain", "Show what a Service is on this node, as a tree.")
@click.argument("name", metavar="[NAMESPACE/]SERVICE[:PORT]")
@click.option(
    "--live/--no-live", default=None, help="Look at the kernel too.  [default: as root, where our rules stand]"
)
@_ALL
@click.option("--graph", type=click.Choice(("mermaid", "dot")), help="Print a drawing of the chains instead.")
@_OUTPUT
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
    """
    import msgspec  # noqa: PLC0415

    from pykubeproxy.insight import explaintext  # noqa: PLC0415
    from pykubeproxy.insight.explain import explain as answer  # noqa: PLC0415
    from pykubeproxy.insight.graph import draw  # noqa: PLC0415

    asked = _asked(context, flags)
    place, _, port = name.partition(":")
    key = _service_key(place, "explain")
    objects = _objects(asked)
    _, notes = _own_node(asked, objects)
    found = []
    for family in asked.families:
        standing = _standing(asked, family, live)
        picture = _picture(asked, objects, family, standing.ruleset if standing is not None else None)
        one = answer(picture, key, port=port, standing=standing, problems=picture.problems(key))
        if one is not None:
            found.append(one)
    if not found:
        raise PykubeproxyError(_not_there(asked, objects, key, port))
    if graph is not None:
        click.echo(draw(found, graph, is_whole=is_whole), nl=False)  # type: ignore[arg-type]
    elif output != "text":
        _print_data(msgspec.to_builtins(found), output)
    else:
        if not is_whole and any(map(explaintext.leaves_out, found)):
            notes.append("--all shows every endpoint")
        _print([*(explaintext.tree(one, is_whole=is_whole) for one in found), *_notes(notes)])


def _standing(asked: _Asked, family: Family, live: bool | None) -> Standing | None:  # noqa: FBT001 - three states of a flag
    """Read the kernel if that is wanted, or possible and worth it."""
    from pykubeproxy.insight import live as kernel  # noqa: PLC0415
    from pykubeproxy.netfilter.process import SubprocessRunner  # noqa: PLC0415

    if live is False or (live is None and not kernel.may_read()):
        return None
    kernel.require_rights()
    runner = SubprocessRunner()
    try:
        standing = kernel.read(kernel.backend_of(asked.options.iptables_backend, family, runner), runner)
    except PykubeproxyError:
        if live is None:
            return None
        raise
    return standing if live or any(standing.ruleset.chains.values()) else None


def _not_there(asked: _Asked, objects: ClusterObjects, key: ServiceKey, port: str) -> str:
    """Say why there is nothing to explain."""
    for service in objects.services:
        meta, spec = service.metadata, service.spec
        if (meta.namespace, meta.name) == (key.namespace, key.name):
            if spec is not None and spec.type == "ExternalName":
                return f"{key} is an ExternalName: a name in DNS, without rules"
            if spec is None or spec.cluster_ip in (None, "", "None"):
                return f"{key} is headless: DNS gives its pods' addresses, without rules"
            if port:
                numbers = ", ".join(str(one.name or one.port) for one in spec.ports or ())
                return f"{key} has no port {port} (it has {numbers})"
            return f"{key} has no address in {' or '.join(asked.families)}"
    names = [one.metadata.name for one in objects.services if one.metadata.namespace == key.namespace]
    close = difflib.get_close_matches(key.name, names, n=1)
    elsewhere = [one.metadata.namespace for one in objects.services if one.metadata.name == key.name]
    hint = (
        f"; there is {key.namespace}/{close[0]}"
        if close
        else f"; there is {elsewhere[0]}/{key.name}"
        if elsewhere
        else ""
    )
    return f"there is no Service {key}{hint or '; headless ones have no rules and are not looked at'}"


# -- diff


@_command("diff", "Show how the kernel's rules differ from those that should stand, or two files from each other.")
@click.argument("sides", nargs=-1, metavar="[OLD NEW]")
def diff(context: click.Context, /, *, sides: tuple[str, ...], **flags: Any) -> None:
    """Compare, as a unified diff by chain: the kernel with what should stand, or OLD with NEW.

    OLD and NEW are manifests (files or folders), or outputs of --dry-run or iptables-save. Exits 0 when they are equal,
    1 when they differ, 2 when that could not be found out.
    """
    try:
        found = _differences(context, sides, flags)
    except PykubeproxyError as problem:
        click.echo(f"pykubeproxy: {problem}", err=True)
        sys.exit(2)
    if found:
        _print(_coloured(line) for one in found for line in one.lines)
        services = sorted(frozenset().union(*(one.services for one in found)))
        click.echo(_summary(found, services), err=True)
    sys.exit(1 if found else 0)


def _summary(found: Sequence[ChainDiff], services: Sequence[str]) -> str:
    chains = f"{len(found)} chain{'s' if len(found) != 1 else ''}"
    named = ", ".join(services[:5]) + (f" and {len(services) - 5} more" if len(services) > 5 else "")
    return f"pykubeproxy: {chains} differ" + (f": {named}" if named else "")


def _coloured(line: str) -> RenderableType:
    from rich.text import Text  # noqa: PLC0415

    styles = {"+++": "bold", "---": "bold", "@@ ": "cyan"}
    style = styles.get(line[:3], {"+": "green", "-": "red"}.get(line[:1], ""))
    return Text(line, style=style, overflow="ignore", no_wrap=True)


def _differences(context: click.Context, sides: tuple[str, ...], flags: dict[str, Any]) -> list[ChainDiff]:
    from pykubeproxy.insight.compare import compare  # noqa: PLC0415

    asked = _asked(context, flags)
    if len(sides) == 2:
        rules = [_rules_in(side) for side in sides]
        old, new = (
            _meant_by(asked, side, other or {}) if held is None else held
            for side, held, other in zip(sides, rules, reversed(rules), strict=True)
        )
        found: list[ChainDiff] = []
        families = [family for family in asked.families if family in old or family in new]
        for family in families:
            names = (sides[0], sides[1]) if len(families) == 1 else (f"{sides[0]} {family}", f"{sides[1]} {family}")
            found += compare(old.get(family) or Ruleset(), new.get(family) or Ruleset(), names=names)
        return found
    if sides:
        raise UsageError("diff takes no file (the kernel is compared) or two")
    return _kernel_differences(asked)


def _rules_in(side: str) -> dict[Family, Ruleset] | None:
    """Return the rules that a file holds; None where it holds something else."""
    from pykubeproxy.insight.documents import holds_rules, rulesets_of  # noqa: PLC0415

    path = Path(side)
    if not path.exists():
        raise UsageError(f"{side}: no such file or folder")
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if not holds_rules(text):
        return None
    try:
        return rulesets_of(text)
    except ValueError as refused:
        raise UsageError(f"{side}: {refused}") from None


def _meant_by(asked: _Asked, side: str, standing: Mapping[Family, Ruleset]) -> dict[Family, Ruleset]:
    """Return the rules that the manifests in a file or folder lead to where these rules stand."""
    from pykubeproxy.watch.manifests import load  # noqa: PLC0415

    objects = load([side])
    if objects.problems and not (objects.services or objects.slices or objects.nodes):
        raise ConfigurationError(objects.problems)
    for problem in objects.problems:
        click.echo(f"pykubeproxy: {problem}", err=True)
    return {family: _picture(asked, objects, family, standing.get(family)).wanted.ruleset for family in asked.families}


def _kernel_differences(asked: _Asked) -> list[ChainDiff]:
    from pykubeproxy.insight import live  # noqa: PLC0415
    from pykubeproxy.insight.compare import compare  # noqa: PLC0415
    from pykubeproxy.netfilter.process import SubprocessRunner  # noqa: PLC0415
    from pykubeproxy.netfilter.read import UNKNOWN, Reader  # noqa: PLC0415

    live.require_rights()
    objects = _objects(asked)
    runner = SubprocessRunner()
    found: list[ChainDiff] = []
    for family in asked.families:
        backend = live.backend_of(asked.options.iptables_backend, family, runner)
        standing = Reader(backend, runner).read().ruleset
        for table, chains in standing.chains.items():
            if UNKNOWN in chains.values():
                raise NetfilterError(
                    f"table {table} holds native nft rules and too many chains to read them one by one"
                )
        picture = _picture(asked, objects, family, standing)
        owners = picture.wanted.owner

        def owner(table: str, chain: str, owners: Mapping[str, object] = owners) -> str:
            return str(owners[chain]) if table == "nat" and chain in owners else ""

        found += compare(standing, picture.wanted.ruleset, names=(f"kernel {family}", f"desired {family}"), owner=owner)
    return found
