"""What the subcommands share: the daemon's flags, the objects, and how an answer is printed.

They take the daemon's flags and --config, before or behind the command's name, so that they see what the daemon sees.
"""

from __future__ import annotations

import difflib
import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from pykubeproxy import log
from pykubeproxy.config.flags import FLAGS, Invocation, flag_options, resolve
from pykubeproxy.config.hostname import hostname
from pykubeproxy.config.notes import log_notes
from pykubeproxy.config.options import Options
from pykubeproxy.errors import UsageError
from pykubeproxy.model.addresses import FAMILIES, Family
from pykubeproxy.rules.ruleset import Ruleset

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from pykubeproxy.insight.cluster import Picture
    from pykubeproxy.model.service import ServiceKey
    from pykubeproxy.watch.manifests import ClusterObjects
    from pykubeproxy.watch.objects import Node

C = TypeVar("C", bound=Callable[..., Any])
_SHOWN = frozenset(
    ("config", "manifests", "kubeconfig", "hostname-override", "cluster-cidr", "ip-family", "iptables-backend")
)
"""The daemon's flags that a command's help repeats; it takes all of them."""
_BOOLEANS = frozenset(flag.name for flag in FLAGS if flag.is_boolean)
_NAMES = frozenset(flag.name for flag in FLAGS)


class Command(click.Command):
    """A command that reads the daemon's flags as the daemon does: underscores for dashes, bare booleans."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite the daemon's flags to a form that click reads alike."""
        return super().parse_args(ctx, [_normal(argument) for argument in args])

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; bad usage is told with this command's name, so that the right help is pointed at."""
        try:
            return super().invoke(ctx)
        except UsageError as problem:
            problem.command = ctx.info_name or ""
            raise


def _normal(argument: str) -> str:
    if not argument.startswith("--") or argument == "--":
        return argument
    name, equals, value = argument[2:].partition("=")
    name = name.replace("_", "-")
    if name in _BOOLEANS and name != "help" and not equals:
        return f"--{name}=true"
    return f"--{name}{equals}{value}"


def command(name: str, summary: str) -> Callable[[C], click.Command]:
    """Make a subcommand of a function: with the daemon's flags, of which its help shows a few."""

    def decorate(function: C) -> click.Command:
        made = click.command(name, cls=Command, short_help=summary)(flag_options(click.pass_context(function)))
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


OUTPUT = click.option(
    "-o", "--output", type=click.Choice(("text", "json", "yaml")), default="text", help="How to print the answer."
)

ALL = click.option("--all", "is_whole", is_flag=True, help="Show every endpoint, however many there are.")


@dataclass(slots=True)
class Asked:
    """The daemon's options, and which node this is."""

    options: Options
    node_name: str
    families: tuple[Family, ...]
    """Both, or the one that --ip-family names."""


def asked_for(context: click.Context, flags: dict[str, Any]) -> Asked:
    """Resolve the daemon's flags, given before or behind the command's name."""
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
    options = invocation.options
    return Asked(options, hostname(options, socket.gethostname()), families_of(invocation))


def families_of(invocation: Invocation) -> tuple[Family, ...]:
    """Return both families, or the one that --ip-family names."""
    if not invocation.ip_family:
        return FAMILIES
    return ("IPv4",) if invocation.ip_family == "ipv4" else ("IPv6",)


def objects_of(asked: Asked) -> ClusterObjects:
    """Read all objects once."""
    from pykubeproxy import once  # noqa: PLC0415 - what it imports takes half a second

    return once.read_objects(asked.options, asked.node_name)


def own_node_of(asked: Asked, objects: ClusterObjects) -> tuple[Node | None, list[str]]:
    """Return the own Node, and what to note where there is none."""
    from pykubeproxy.dryrun import own_node  # noqa: PLC0415

    node = own_node(objects, asked.node_name)
    if node is not None or not objects.nodes:
        return node, []
    names = ", ".join(sorted(one.metadata.name for one in objects.nodes)[:5])
    return None, [f"no Node is called {asked.node_name}; --hostname-override says which one this is ({names})"]


def picture_of(asked: Asked, objects: ClusterObjects, family: Family, standing: Ruleset | None = None) -> Picture:
    """Return what the objects mean; standing rules tell of matches that the kernel may lack, and of the form."""
    from pykubeproxy.dryrun import local_facts  # noqa: PLC0415
    from pykubeproxy.insight.cluster import picture  # noqa: PLC0415
    from pykubeproxy.insight.compare import shown_facts  # noqa: PLC0415
    from pykubeproxy.rules.dispatch import leads_to_tree  # noqa: PLC0415
    from pykubeproxy.sync.derive import rule_settings  # noqa: PLC0415

    node, _ = own_node_of(asked, objects)
    found = local_facts(asked.options)
    is_tree = False
    if standing is not None:
        found = shown_facts(found, standing)
        is_tree = bool(leads_to_tree(standing.chains["nat"]))
    settings = rule_settings(family, asked.options, asked.node_name, node, found)
    dispatch = asked.options.service_dispatch
    return picture(settings, objects.services, objects.slices, dispatch=dispatch, stands_as_tree=is_tree, node=node)


def _console() -> Console:
    """Return where answers go: as wide as the terminal, 80 columns elsewhere; plain but on a terminal with colours."""
    from rich.console import Console  # noqa: PLC0415

    width = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", "") or 80)
    # Rich keeps bold and dim under NO_COLOR; who asks for no colours is taken to want no escapes at all.
    system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(width=width, color_system=system, highlight=False, emoji=False, markup=False)


def print_parts(parts: Iterable[RenderableType]) -> None:
    """Print an answer for people: as wide as the terminal, plain off one."""
    console = _console()

    def show() -> None:
        for part in parts:
            # A line that may be copied from here, of a diff, is not broken.
            console.print(part, soft_wrap=getattr(part, "no_wrap", None) is True)

    if console.is_terminal:
        show()
        return
    with console.capture() as captured:
        show()
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def print_data(data: Any, output: str) -> None:
    """Print an answer for programs."""
    if output == "json":
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    import yaml  # noqa: PLC0415

    click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100), nl=False)


def note_lines(notes: Sequence[str]) -> list[RenderableType]:
    """Return notes as parts to print."""
    from rich.text import Text  # noqa: PLC0415

    return [Text(f"note: {note}") for note in notes]


def service_key(text: str, flag: str) -> ServiceKey:
    """Read [NAMESPACE/]SERVICE; ``flag`` names where it was given."""
    from pykubeproxy.model.service import ServiceKey  # noqa: PLC0415

    namespace, slash, name = text.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise UsageError(f"{flag}: {text!r} is neither an IP address nor [NAMESPACE/]SERVICE")
    return ServiceKey(namespace or "default", name)


def why_nothing(asked: Asked, objects: ClusterObjects, key: ServiceKey, port: str = "") -> str:
    """Say why there are no rules for a service, or for a port of it."""
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
