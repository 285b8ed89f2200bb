"""The subcommands that answer and end: explain, trace, diff. Arguments and output only; ``insight`` has the answers."""

from __future__ import annotations

import click

from pykubeproxy.commands.comparing import diff
from pykubeproxy.commands.explaining import explain
from pykubeproxy.commands.tracing import trace


def register(group: click.Group) -> None:
    """Add the subcommands to the command line."""
    for command in (explain, trace, diff):
        group.add_command(command)
