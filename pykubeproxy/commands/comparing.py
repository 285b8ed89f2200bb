"""``diff``: the kernel with what should stand, or two files with each other."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pykubeproxy import files
from pykubeproxy.commands.common import Asked, asked_for, command, objects_of, picture_of, print_parts, unread_notes
from pykubeproxy.errors import ConfigurationError, NetfilterError, UsageError
from pykubeproxy.model.addresses import Family
from pykubeproxy.rules.ruleset import Ruleset

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pykubeproxy.insight.compare import ChainDiff

_LONGEST = 512 << 20
"""Bytes of a file: more is none of ours, such as a device that never ends."""


@command("diff", "Show how the kernel's rules differ from those that should stand, or two files from each other.")
@click.argument("sides", nargs=-1, metavar="[OLD NEW]")
def diff(context: click.Context, /, *, sides: tuple[str, ...], **flags: Any) -> None:
    """Compare, as a unified diff by chain: the kernel with what should stand, or OLD with NEW.

    OLD and NEW are manifests (files or folders), or outputs of --dry-run or iptables-save; - is standard input. Neither
    kernel nor cluster is looked at for them, and flags for these before the command's name count for nothing.

    Prints nothing when they are equal, but for a word on a terminal.

    Exits 0 when they are equal, 1 when they differ, 2 when that could not be found out.
    """
    found = _differences(context, sides, flags)
    if not found:
        if sys.stderr is not None and sys.stderr.isatty():
            click.echo("pykubeproxy: no differences", err=True)
        return
    services = sorted(frozenset().union(*(one.services for one in found)))
    print_parts(_coloured(line) for one in found for line in one.lines)
    click.echo(_summary(found, services), err=True)
    sys.exit(1)


def _summary(found: Sequence[ChainDiff], services: Sequence[str]) -> str:
    from pykubeproxy.insight.lookup import shortened  # noqa: PLC0415

    chains = "1 chain differs" if len(found) == 1 else f"{len(found):,} chains differ"
    return f"pykubeproxy: {chains}" + (f": {shortened(services)}" if services else "")


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
        if sides == ("-", "-"):
            raise UsageError("diff: standard input cannot be both OLD and NEW")
        contents = [_read(side) for side in sides]
        rules = [_rules_in(side, data) for side, data in zip(sides, contents, strict=True)]
        old, new = (
            _meant_by(asked, side, data, other or {}) if held is None else held
            for side, data, held, other in zip(sides, contents, rules, reversed(rules), strict=True)
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


def _read(side: str) -> bytes | None:
    """Return what is in a file, pipe or (``-``) standard input, each of which can be read once; None for a folder."""
    try:
        if side == "-":
            if sys.stdin is None:
                raise UsageError("diff: standard input is closed")
            data = sys.stdin.buffer.read(_LONGEST + 1)
        elif not side or not (path := Path(side)).exists():
            raise UsageError(f"{side or repr(side)}: no such file or folder")
        elif path.is_dir():
            return None
        else:
            return files.read(path, longest=_LONGEST)
    except OSError as refused:
        raise UsageError(f"{side}: {refused.strerror}") from refused
    if len(data) > _LONGEST:
        raise UsageError(f"{side}: is longer than {_LONGEST >> 20} MiB")
    return data


def _rules_in(side: str, data: bytes | None) -> dict[Family, Ruleset] | None:
    """Return the rules that a file holds; None where it holds something else."""
    from pykubeproxy.insight.documents import holds_rules, rulesets_of  # noqa: PLC0415

    text = data.decode("utf-8", "replace") if data is not None else ""
    if not holds_rules(text):
        return None
    try:
        return rulesets_of(text)
    except ValueError as refused:
        raise ConfigurationError(f"{side}: {refused}") from refused


def _meant_by(asked: Asked, side: str, data: bytes | None, standing: Mapping[Family, Ruleset]) -> dict[Family, Ruleset]:
    """Return the rules that the manifests in a file or folder lead to where these rules stand."""
    from pykubeproxy.watch.manifests import ManifestError, load, merge, parse  # noqa: PLC0415

    try:
        objects = load([side]) if data is None else merge({side: parse(data, side)})
    except ManifestError as refused:
        raise ConfigurationError(str(refused)) from refused
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
    for note in unread_notes(objects) if found else ():
        click.echo(f"pykubeproxy: {note}: chains may differ for that alone", err=True)
    return found
