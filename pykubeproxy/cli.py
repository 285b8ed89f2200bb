"""The command line: flags, subcommands, exit codes. Every failure is one clear line on stderr.

Exit status: 0 done, 1 a failure, 2 bad usage or configuration; of explain, trace and diff: 0 and 1 answers (1: not
there, different), 2 no answer. Heavy modules are imported by the command that needs them.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from pykubeproxy import __version__, commands, log
from pykubeproxy.commands.common import actions_of, families_of, put
from pykubeproxy.config.flags import FlagGroup, Invocation, flag_options, resolve
from pykubeproxy.config.hostname import hostname
from pykubeproxy.config.notes import log_notes
from pykubeproxy.config.write import write_config
from pykubeproxy.errors import ConfigurationError, PykubeproxyError, UsageError

EMULATED_VERSION = "v1.36.2"
"""The Kubernetes release whose kube-proxy this follows."""


@click.group(cls=FlagGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@flag_options
@click.pass_context
def command(context: click.Context, /, **values: Any) -> None:
    """Program Services into this node's iptables, as kube-proxy does.

    Without a command: run the daemon, on an API server (--kubeconfig, or in a pod) or on files (--manifests).
    """
    context.obj = values
    if context.invoked_subcommand is None:
        _run(values)


commands.register(command)


def _run(values: dict[str, Any]) -> None:
    log.set_up(quiet=bool(values.get("dry_run")))
    invocation, notes = resolve(values)
    options = invocation.options
    is_quiet = invocation.dry_run or invocation.version
    log.set_up(style=options.logging.format, verbosity=options.logging.verbosity, quiet=is_quiet)
    log_notes(notes)
    actions = actions_of(invocation)
    if len(actions) > 1 and not invocation.version:
        raise UsageError(f"{actions[0]} and {actions[1]} exclude each other")
    if invocation.ip_family and not (invocation.dry_run or invocation.version):
        raise UsageError("--ip-family: is for --dry-run, explain, trace and diff; all else serves both families")
    if invocation.version:
        put(f"pykubeproxy {__version__} (follows kube-proxy {EMULATED_VERSION})\n")
    elif invocation.write_config_to:
        write_config(invocation.write_config_to, options)
    elif invocation.dry_run:
        _dry_run(invocation)
    elif invocation.cleanup:
        from pykubeproxy import once  # noqa: PLC0415

        once.cleanup(options)
    elif invocation.init_only:
        from pykubeproxy import once  # noqa: PLC0415

        once.initialise(options)
    else:
        from pykubeproxy import daemon  # noqa: PLC0415

        sys.exit(daemon.run(invocation, values, hostname(options, socket.gethostname())))


def _dry_run(invocation: Invocation) -> None:
    from pykubeproxy import dryrun, once  # noqa: PLC0415

    options = invocation.options
    name = hostname(options, socket.gethostname())
    objects = once.read_objects(options, name)
    for document in dryrun.documents(options, objects, name, families_of(invocation)):
        put(document)


def fail(problem: PykubeproxyError) -> NoReturn:
    """Print a problem and leave with its exit status; a configuration's problems take one line each."""
    lines = problem.problems if isinstance(problem, ConfigurationError) else [str(problem)]
    for line in lines:
        click.echo(f"pykubeproxy: {line}", err=True)
    sys.exit(problem.exit_status)


def _refuse(message: str, subcommand: str) -> NoReturn:
    """Tell of bad usage, and where the right one is described."""
    click.echo(f"pykubeproxy: {message}", err=True)
    click.echo(f"See '{' '.join(filter(None, ('pykubeproxy', subcommand, '--help')))}' for usage.", err=True)
    sys.exit(UsageError.exit_status)


def main() -> None:
    """Entry point of the console scripts."""
    try:
        command(prog_name=Path(sys.argv[0]).name or "pykubeproxy", standalone_mode=False)
    except UsageError as problem:
        _refuse(str(problem), problem.command)
    except PykubeproxyError as problem:
        fail(problem)
    except click.ClickException as problem:
        context = problem.ctx if isinstance(problem, click.UsageError) else None
        is_subcommand = context is not None and context.parent is not None
        _refuse(problem.format_message(), str(context.info_name) if context is not None and is_subcommand else "")
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
