"""What the subcommands share: the daemon's flags, the objects, and how an answer is printed.

They take the daemon's flags and --config, before or behind the command's name, so that they see what the daemon sees.
"""

from __future__ import annotations

import io
import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar

import click

from pykubeproxy import log
from pykubeproxy.config.flags import FLAGS, Invocation, flag_options, resolve
from pykubeproxy.config.hostname import hostname
from pykubeproxy.config.notes import log_notes
from pykubeproxy.config.options import Options
from pykubeproxy.errors import ConfigurationError, EnvironmentProblem, NothingFound, PykubeproxyError, UsageError
from pykubeproxy.model.addresses import FAMILIES, Family, family_of
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
_NARROWEST = 20
"""Columns: of fewer nothing can be made."""
_BOOLEANS = frozenset(flag.name for flag in FLAGS if flag.is_boolean)
_NAMES = frozenset(flag.name for flag in FLAGS)


class Command(click.Command):
    """A command that reads the daemon's flags as the daemon does: underscores for dashes, bare booleans."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite the daemon's flags to a form that click reads alike."""
        try:
            return super().parse_args(ctx, [_normal(argument) for argument in args])
        except click.UsageError as problem:
            # So that the right help is pointed at: click leaves it out where an argument is missing.
            problem.ctx = problem.ctx or ctx
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; bad usage is told with this command's name, so that the right help is pointed at.

        The exit status is that of diff(1) and grep(1): 0 and 1 are answers, 2 is whatever keeps it from answering.
        """
        try:
            return super().invoke(ctx)
        except UsageError as problem:
            problem.command = ctx.info_name or ""
            raise
        except NothingFound:
            raise
        except PykubeproxyError as problem:
            problem.exit_status = UsageError.exit_status
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

ALL = click.option(
    "--all", "is_whole", is_flag=True, help="Show every endpoint, however many there are; json and yaml do."
)


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
    if others := [*actions_of(invocation), *(["--version"] if invocation.version else [])]:
        raise UsageError(f"{others[0]} and {context.info_name} exclude each other")
    options = invocation.options
    return Asked(options, hostname(options, socket.gethostname()), families_of(invocation))


def actions_of(invocation: Invocation) -> list[str]:
    """Return the flags that say what to do instead of running; only one of them can be done."""
    given = {
        "--write-config-to": bool(invocation.write_config_to),
        "--dry-run": invocation.dry_run,
        "--cleanup": invocation.cleanup,
        "--init-only": invocation.init_only,
    }
    return [flag for flag, is_given in given.items() if is_given]


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


def _console(file: IO[str]) -> Console:
    """Return what lays answers out: as wide as the terminal, 80 columns elsewhere; plain but on one with colours."""
    from rich.console import Console  # noqa: PLC0415

    columns = os.environ.get("COLUMNS", "")
    wide = int(columns) if columns.isascii() and columns.isdigit() and len(columns) <= 4 else 0
    # Rich keeps bold and dim under NO_COLOR; who asks for no colours is taken to want no escapes at all.
    system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    width = None if file.isatty() else max(wide or 80, _NARROWEST)
    return Console(file=file, width=width, color_system=system, highlight=False, emoji=False, markup=False)


def print_parts(parts: Iterable[RenderableType]) -> None:
    """Print an answer for people: as wide as the terminal, plain off one."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    laid_out = io.StringIO()
    console = _console(sys.stdout if is_terminal else laid_out)
    for part in parts:
        # A line that may be copied from here, of a diff, is not broken.
        console.print(part, soft_wrap=getattr(part, "no_wrap", None) is True)
    if not is_terminal:
        put("".join(f"{line.rstrip()}\n" for line in laid_out.getvalue().splitlines()))


def put(text: str) -> None:
    """Print a text. That its reader (head, less) has enough of it is no fault, and no other answer.

    Raises:
        EnvironmentProblem: it cannot be written.

    """
    try:
        click.echo(text, nl=False)
    except BrokenPipeError:
        # Python would try once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as problem:
        raise EnvironmentProblem(f"the answer cannot be written: {problem.strerror}") from problem


def print_data(data: Any, output: str) -> None:
    """Print an answer for programs."""
    if output == "json":
        put(f"{json.dumps(data, indent=2, ensure_ascii=False)}\n")
        return
    import yaml  # noqa: PLC0415

    put(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100))


def note_lines(notes: Sequence[str]) -> list[RenderableType]:
    """Return notes as parts to print."""
    from rich.text import Text  # noqa: PLC0415

    return [Text(f"note: {note}") for note in notes]


def family_for(asked: Asked, address: str, flag: str) -> Family:
    """Return the family of an address, which must be one that is asked for; ``flag`` names where it was given."""
    family = family_of(address)
    if family not in asked.families:
        raise UsageError(f"{flag}: {address} is no {asked.families[0]} address, which --ip-family asks for")
    return family


def nothing_about(asked: Asked, objects: ClusterObjects, key: ServiceKey, where: str = "") -> PykubeproxyError:
    """Return what to raise for a service that has no ports in the families that are asked for: it says why."""
    from pykubeproxy import once  # noqa: PLC0415
    from pykubeproxy.insight.lookup import why_no_rules, why_no_service  # noqa: PLC0415
    from pykubeproxy.model.service import ServiceKey  # noqa: PLC0415

    service = once.find_service(asked.options, objects, key)
    if service is not None:
        return NothingFound(f"{where}{why_no_rules(service, asked.families)}")
    faults = objects.faults_of(key)
    if faults:
        return NothingFound(f"{where}{key} cannot be used: {'; '.join(faults)}")
    known = (*objects.services, *objects.left_aside)
    names = (ServiceKey(one.metadata.namespace, one.metadata.name) for one in known)
    return nothing_found(f"{where}{why_no_service(key, names)}", objects)


def nothing_found(message: str, objects: ClusterObjects) -> PykubeproxyError:
    """Return what to raise where nothing is found: no answer, where it may lie in a file that could not be read."""
    if not objects.unread:
        return NothingFound(message)
    return ConfigurationError([message, *(f"it may be there all the same: {note}" for note in unread_notes(objects))])


def unread_notes(objects: ClusterObjects) -> list[str]:
    """Return what to say of files that could not be read."""
    return [
        f"{problem}; a running daemon keeps what it has read of it before, or what stands" for problem in objects.unread
    ]
