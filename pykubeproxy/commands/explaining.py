"""``explain``: what a Service is on this node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from pykubeproxy.errors import PykubeproxyError
from pykubeproxy.model.addresses import Family

if TYPE_CHECKING:
    from pykubeproxy.insight.standing import Standing


@command("explain", "Show what a Service is on this node, as a tree.")
@click.argument("name", metavar="[NAMESPACE/]SERVICE[:PORT]")
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
    """
    import msgspec  # noqa: PLC0415

    from pykubeproxy.insight import explaintext  # noqa: PLC0415
    from pykubeproxy.insight.explain import explain as answer  # noqa: PLC0415
    from pykubeproxy.insight.graph import draw  # noqa: PLC0415
    from pykubeproxy.insight.running import ask  # noqa: PLC0415

    asked = asked_for(context, flags)
    place, _, port = name.partition(":")
    key = service_key(place, "explain")
    objects = objects_of(asked)
    _, notes = own_node_of(asked, objects)
    running = None if live is False else ask(asked.options.metrics_bind_address)
    found = []
    for family in asked.families:
        standing = _standing(asked, family, live)
        picture = picture_of(asked, objects, family, standing.ruleset if standing is not None else None)
        # Where nothing of ours stands and no daemon runs, the question was about the objects alone.
        is_told = running is not None and (live or standing is not None or running.daemon.condition != "absent")
        one = answer(
            picture,
            key,
            port=port,
            standing=standing,
            problems=picture.problems(key),
            left_out=running.why_left_out(key, family) if running is not None else "",
            daemon=running.daemon if running is not None and is_told else None,
        )
        if one is not None:
            found.append(one)
    if not found:
        raise PykubeproxyError(why_nothing(asked, objects, key, port))
    if graph is not None:
        click.echo(draw(found, graph, is_whole=is_whole), nl=False)  # type: ignore[arg-type]
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
    kernel.require_rights()
    runner = SubprocessRunner()
    try:
        standing = kernel.read(kernel.backend_of(asked.options.iptables_backend, family, runner), runner)
    except PykubeproxyError:
        if live is None:
            return None
        raise
    return standing if live or any(standing.ruleset.chains.values()) else None
