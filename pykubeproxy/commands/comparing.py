"""``diff``: the kernel with what should stand, or two files with each other."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pykubeproxy.commands.common import Asked, asked_for, command, drop_output, objects_of, picture_of, print_parts
from pykubeproxy.errors import ConfigurationError, NetfilterError, UsageError
from pykubeproxy.model.addresses import Family
from pykubeproxy.rules.ruleset import Ruleset

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pykubeproxy.insight.compare import ChainDiff


@command("diff", "Show how the kernel's rules differ from those that should stand, or two files from each other.")
@click.argument("sides", nargs=-1, metavar="[OLD NEW]")
def diff(context: click.Context, /, *, sides: tuple[str, ...], **flags: Any) -> None:
    """Compare, as a unified diff by chain: the kernel with what should stand, or OLD with NEW.

    OLD and NEW are manifests (files or folders), or outputs of --dry-run or iptables-save. Exits 0 when they are equal,
    1 when they differ, 2 when that could not be found out. Neither kernel nor cluster is looked at for OLD and NEW, and
    flags for these before the command's name count for nothing.
    """
    found = _differences(context, sides, flags)
    if not found:
        return
    services = sorted(frozenset().union(*(one.services for one in found)))
    try:
        print_parts(_coloured(line) for one in found for line in one.lines)
        click.echo(_summary(found, services), err=True)
    except BrokenPipeError:
        # They differ, however much of it the reader (head, less) wants to see.
        drop_output()
    sys.exit(1)


def _summary(found: Sequence[ChainDiff], services: Sequence[str]) -> str:
    from pykubeproxy.insight.lookup import shortened  # noqa: PLC0415

    chains = f"{len(found)} chain{'s' if len(found) != 1 else ''}"
    return f"pykubeproxy: {chains} differ" + (f": {shortened(services)}" if services else "")


def _coloured(line: str) -> RenderableType:
    from rich.text import Text  # noqa: PLC0415

    from pykubeproxy.insight.colours import BAD, GOOD, SHARE  # noqa: PLC0415

    styles = {"+++": "bold", "---": "bold", "@@ ": SHARE}
    style = styles.get(line[:3], {"+": GOOD, "-": BAD}.get(line[:1], ""))
    return Text(line, style=style, overflow="ignore", no_wrap=True)


def _differences(context: click.Context, sides: tuple[str, ...], flags: dict[str, Any]) -> list[ChainDiff]:
    from pykubeproxy.insight.compare import compare  # noqa: PLC0415

    asked = asked_for(context, flags)
    if len(sides) == 2:
        for flag in ("manifests", "kubeconfig", "master", "iptables_backend"):
            if flags.get(flag):
                name = flag.replace("_", "-")
                raise UsageError(f"--{name} and OLD NEW exclude each other: neither kernel nor cluster is looked at")
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


def _meant_by(asked: Asked, side: str, standing: Mapping[Family, Ruleset]) -> dict[Family, Ruleset]:
    """Return the rules that the manifests in a file or folder lead to where these rules stand."""
    from pykubeproxy.watch.manifests import load  # noqa: PLC0415

    objects = load([side])
    if objects.problems and not (objects.services or objects.slices or objects.nodes):
        raise ConfigurationError(objects.problems)
    for problem in objects.problems:
        click.echo(f"pykubeproxy: {problem}", err=True)
    return {
        family: picture_of(asked, objects, family, standing.get(family)).wanted.ruleset for family in asked.families
    }


def _kernel_differences(asked: Asked) -> list[ChainDiff]:
    from pykubeproxy.insight import live  # noqa: PLC0415
    from pykubeproxy.insight.compare import compare  # noqa: PLC0415
    from pykubeproxy.netfilter.process import SubprocessRunner  # noqa: PLC0415
    from pykubeproxy.netfilter.read import UNKNOWN, Reader  # noqa: PLC0415

    live.require_rights("diff OLD NEW compares files without")
    objects = objects_of(asked)
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
        picture = picture_of(asked, objects, family, standing)
        owners = picture.wanted.owner

        def owner(table: str, chain: str, owners: Mapping[str, object] = owners) -> str:
            return str(owners[chain]) if table == "nat" and chain in owners else ""

        found += compare(standing, picture.wanted.ruleset, names=(f"kernel {family}", f"desired {family}"), owner=owner)
    return found
