"""kube-proxy's command line and ours: the table of flags, how arguments are read, how values become Options.

Arguments follow Go's pflag: ``--flag=value``, ``--flag value``, a bare boolean, ``-v 2``, ``-v=2``, ``-v2``,
underscores for dashes. click only shows the help and finds the subcommand. Precedence is kube-proxy's: with --config
every other flag is ignored, except the logging flags, --hostname-override, and the flags that kube-proxy does not have,
which win.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import click

from pykubeproxy.config import addresses, kinds
from pykubeproxy.config.document import ignores_cluster_cidrs, note_without_effect, read_document, settle_mode
from pykubeproxy.config.kinds import Kind
from pykubeproxy.config.notes import Note, log_notes
from pykubeproxy.config.options import Options
from pykubeproxy.config.settings import BY_FLAG, BY_OPTION, SETTINGS, Setting, default_of, with_values
from pykubeproxy.config.validate import find_problems, shown
from pykubeproxy.errors import ConfigurationError, UsageError

FlagValues = Mapping[str, str | Sequence[str] | bool | None]
"""Given flags, by name (dashes or underscores); absent, None and () are "not given"."""

_C = TypeVar("_C", bound=click.Command | Callable[..., object])
_FAMILIES = ("ipv4", "ipv6")
_DEPRECATED_PORTS = {"healthz-port": "healthz_bind_address", "metrics-port": "metrics_bind_address"}


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of the command line."""

    name: str
    kind: Kind
    default: str
    """As kube-proxy's help shows it; "" is the kind's zero."""
    help: str
    option: str = ""
    """Path in Options; "" for a flag that says what to do rather than how."""
    yields_to_document: bool = False
    """Whether it is ignored when there is a document."""
    is_hidden: bool = False

    @property
    def is_boolean(self) -> bool:
        """Whether it may stand without a value."""
        return self.kind.flag_type == "bool"


@dataclass(frozen=True, slots=True)
class Invocation:
    """What one command line asks for, besides Options."""

    options: Options
    config: str = ""
    config_digest: str = ""
    """Digest of the document's content as it was read."""
    write_config_to: str = ""
    cleanup: bool = False
    init_only: bool = False
    version: bool = False
    dry_run: bool = False
    ip_family: str = ""
    """``ipv4`` or ``ipv6``; "": both."""


# kube-proxy's help shows the current mode's sync period for ipvs as well; the document's zero is another matter
_SHOWN_DEFAULTS = {
    "ipvs-sync-period": "30s",
    "ipvs-min-sync-period": "1s",
    "logging-format": "text",
    "proxy-mode": "",
    "detect-local-mode": "",
    "log-text-info-buffer-size": "",
    "log-json-info-buffer-size": "",
}

_VERSION = Kind("bool", False, bool, lambda text: text == "raw" or kinds.boolean_from_text(text))
_LOGGING = ("logging.", "unused/logging.")


def _shown_default(name: str, kind: Kind, value: object) -> str:
    if name in _SHOWN_DEFAULTS:
        return _SHOWN_DEFAULTS[name]
    text = kind.to_document(value)
    return "" if value in (kind.zero, None) or not text else str(text).lower() if text is True else str(text)


def _flags() -> tuple[Flag, ...]:
    own = (
        Flag("config", kinds.STRING, "", "Configuration file (KubeProxyConfiguration, YAML or JSON)."),
        Flag("write-config-to", kinds.STRING, "", "Write the effective configuration to this file and exit."),
        Flag("cleanup", kinds.BOOL, "", "Remove our and kube-proxy's rules (KUBE-FIREWALL stays), and exit."),
        Flag("init-only", kinds.BOOL, "", "Do what needs full root rights (sysctls), and exit."),
        Flag("version", _VERSION, "", "Print the version and exit."),
        Flag("help", kinds.BOOL, "", "Show this text and exit.", is_hidden=True),
        Flag("dry-run", kinds.BOOL, "", "Print the rules as iptables-restore input and exit; changes nothing."),
        Flag("ip-family", kinds.STRING, "", "With --dry-run: only this family, ipv4 or ipv6."),
        Flag(
            "healthz-port", kinds.INT32, "10256", "Deprecated: see --healthz-bind-address. 0: off.",
            yields_to_document=True, is_hidden=True,
        ),
        Flag(
            "metrics-port", kinds.INT32, "10249", "Deprecated: see --metrics-bind-address. 0: off.",
            yields_to_document=True, is_hidden=True,
        ),
        Flag("boot-id-file", kinds.STRING, "/proc/sys/kernel/random/boot_id", "Accepted; without effect here."),
        Flag(
            "machine-id-file", kinds.STRING, "/etc/machine-id,/var/lib/dbus/machine-id",
            "Accepted; without effect here.",
        ),
    )  # fmt: skip
    table = [
        Flag(
            setting.flag,
            setting.kind,
            _shown_default(setting.flag, setting.kind, default_of(setting)),
            setting.effect,
            setting.option,
            yields_to_document=not (
                setting.is_own or setting.option.startswith(_LOGGING) or setting.option == "hostname_override"
            ),
        )
        for setting in SETTINGS
        if setting.flag
    ]
    return tuple(sorted([*own, *table], key=lambda flag: flag.name))


FLAGS: tuple[Flag, ...] = _flags()
"""Every flag, by name."""
_BY_NAME = {flag.name: flag for flag in FLAGS}
_SHORT = {"v": "v", "h": "help"}


def parse_arguments(arguments: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Split arguments as pflag does, up to the first one that is no flag.

    Returns (name, text) of each flag in order, and the rest. Raises UsageError for an unknown flag or a missing value.
    """
    found: list[tuple[str, str]] = []
    rest = list(arguments)
    while rest and len(rest[0]) > 1 and rest[0].startswith("-"):
        argument = rest.pop(0)
        if argument == "--":
            break
        name, equals, text = _split_flag(argument)
        if name not in _BY_NAME:
            raise UsageError(_unknown(argument, name))
        if not equals and _BY_NAME[name].is_boolean:
            text = "true"
        elif not equals:
            if not rest:
                raise UsageError(f"flag needs an argument: --{name}; see --help")
            text = rest.pop(0)
        found.append((name, text))
    return found, rest


def _split_flag(argument: str) -> tuple[str, bool, str]:
    if argument.startswith("--"):
        name, equals, text = argument[2:].partition("=")
        return name.replace("_", "-"), bool(equals), text
    letter, text = argument[1], argument[2:]
    name = _SHORT.get(letter, argument)
    return name, bool(text), text.removeprefix("=")


def _unknown(argument: str, name: str) -> str:
    close = difflib.get_close_matches(name.lstrip("-"), [flag.name for flag in FLAGS if not flag.is_hidden], n=1)
    hint = f"did you mean --{close[0]}? " if close else ""
    return f"unknown flag: {argument.partition('=')[0]}; {hint}see --help"


def resolve(values: FlagValues) -> tuple[Invocation, list[Note]]:
    """Turn given flags into Options and what to do with them, reading the document that --config names.

    Raises UsageError for faulty flags (all of them in one message) and ConfigurationError for a faulty document, with
    what is wrong with the flags as well.
    """
    texts = _texts(values)
    given, unreadable = _read(texts)
    config = str(given.get("config", ""))
    notes: list[Note] = []
    base, digest = Options(), ""
    faulty: list[str] = []
    odd: list[str] = []
    if config:
        try:
            loaded = read_document(config)
        except ConfigurationError as error:
            faulty = error.problems
        else:
            base, notes, digest = loaded.options, list(loaded.notes), loaded.digest
            odd = [f"{config}: {note.text()}" for note in notes]
        ignored = sorted(name for name in texts if _BY_NAME[name].yields_to_document)
        if ignored:
            notes.append(Note("flags ignored because of --config", {"flags": ignored}))
        for name in ignored:
            given.pop(name, None)
            unreadable.pop(name, None)
    changes, more = _changes(given, texts, unreadable)
    if config and "logging.vmodule" in changes:
        changes["logging.vmodule"] = (*changes["logging.vmodule"], *base.logging.vmodule)  # type: ignore[misc]
    notes += more
    options = with_values(base, changes)
    problems = [*unreadable.values()]
    problems += find_problems(
        options,
        lambda setting: f"--{setting.flag}" if setting.flag else setting.document,
        {_BY_NAME[name].option for name in unreadable},
    )
    family = str(given.get("ip-family", "")).lower()
    if family not in ("", *_FAMILIES):
        problems.append(f"--ip-family: {shown(family)} must be ipv4 or ipv6")
    if faulty:
        raise ConfigurationError(faulty + problems)
    if problems:
        raise UsageError("; ".join(problems + odd))
    if not config:
        notes += note_without_effect(options)
    return (
        Invocation(
            options,
            config=config,
            config_digest=digest,
            write_config_to=str(given.get("write-config-to", "")),
            ip_family=family,
            **{name: bool(given.get(name.replace("_", "-"))) for name in _ACTIONS},
        ),
        notes,
    )


_ACTIONS = ("cleanup", "init_only", "version", "dry_run")


def invocation_from_flags(values: FlagValues) -> Invocation:
    """`resolve`, with what is worth telling logged."""
    invocation, notes = resolve(values)
    log_notes(notes)
    return invocation


def options_from_flags(values: FlagValues) -> Options:
    """Return the Options that given flags (and the document that --config names) amount to; logs what is odd."""
    return invocation_from_flags(values).options


def _texts(values: FlagValues) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for key, value in values.items():
        name = key.replace("_", "-")
        if name not in _BY_NAME:
            raise UsageError(_unknown(f"--{name}", name))
        items = [value] if isinstance(value, str | bool) else list(value or ())
        if items:
            texts[name] = [str(item).lower() if isinstance(item, bool) else item for item in items]
    return texts


def _read(texts: Mapping[str, Sequence[str]]) -> tuple[dict[str, object], dict[str, str]]:
    """Return values and unreadable values' messages, both by flag name."""
    given: dict[str, object] = {}
    unreadable: dict[str, str] = {}
    for name, items in texts.items():
        kind = _BY_NAME[name].kind
        for text in items:
            try:
                value = kind.from_flag(text)
                given[name] = kind.merge(given[name], value) if kind.merge and name in given else value
            except ValueError as error:
                unreadable[name] = f"--{name}: {shown(text)} {error}"
    return given, unreadable


def _changes(
    given: Mapping[str, object], texts: Mapping[str, Sequence[str]], unreadable: dict[str, str]
) -> tuple[dict[str, object], list[Note]]:
    """Return values by option path. What cannot be used is added to ``unreadable``."""
    changes: dict[str, object] = {}
    notes: list[Note] = []
    for name, value in given.items():
        setting = BY_FLAG.get(name)
        if setting is None:
            continue
        # a flag of zero seconds and an empty address are meant; any other zero is "not set", as in a document
        is_meant = setting.kind.flag_type in {"duration", "ipport"}
        if is_meant or not setting.zero_is_default or value != setting.kind.zero:
            changes[setting.option] = value
    for name, option in _DEPRECATED_PORTS.items():
        if name in given:
            notes.append(Note("deprecated flag", {"flag": name, "instead": BY_OPTION[option].flag}))
            setting = BY_OPTION[option]
            try:
                address = _with_port(setting, given[name], texts.get(setting.flag, [None])[-1])
            except ValueError as error:
                unreadable[name] = f"--{name}: {given[name]} {error}"
                continue
            if address is not None:
                changes[option] = address
    override = changes.get("hostname_override")
    if isinstance(override, str) and override.strip():
        changes["hostname_override"] = override.strip().lower()
    if "cluster-cidr" in unreadable and ignores_cluster_cidrs(changes.get("detect_local_mode")):
        notes.append(Note("flag ignored in this detect-local-mode", {"problem": unreadable.pop("cluster-cidr")}))
    return changes, notes + settle_mode(changes)


def _with_port(setting: Setting, port: object, address: str | None) -> str | None:
    """Return what a deprecated port flag makes of an address flag; None: nothing.

    0 turns the server off, another port completes an address that names none; the default address names one.
    """
    if port == 0:
        return ""
    if not address or not isinstance(port, int):
        return None
    try:
        return addresses.parse_host_port(address, port)
    except ValueError:
        raise ValueError(f"must complete --{setting.flag} {address} to a valid address") from None


def flag_texts(values: FlagValues) -> dict[str, str]:
    """Return the text of every flag's value by name, as /flagz prints it: what was given, else the default."""
    given, _ = _read(_texts(values))
    return {flag.name: _text(flag, given) for flag in FLAGS}


def _text(flag: Flag, given: Mapping[str, object]) -> str:
    if flag.name not in given and flag.default:
        return flag.default
    default = default_of(BY_OPTION[flag.option]) if flag.option else flag.kind.zero
    value = given.get(flag.name, default)
    shape = flag.kind.flag_type
    if isinstance(value, bool):
        return str(value).lower()
    if shape in {"strings", "path"} and isinstance(value, tuple):
        return f"[{','.join(value)}]"
    if isinstance(value, dict):
        return ",".join(f"{name}={str(state).lower()}" for name, state in sorted(value.items()))
    if flag.kind is kinds.VMODULE and isinstance(value, tuple):
        return ",".join(f"{pattern}={level}" for pattern, level in value)
    return str(flag.kind.to_document(value))


def flag_options(command: _C) -> _C:
    """Add every flag to a click command or to the function that becomes one. All values arrive as tuples of texts."""
    for flag in reversed(FLAGS):
        if flag.name == "help":
            continue
        names = ["-v", "--v"] if flag.name == "v" else [f"--{flag.name}"]
        default = f"  [default: {flag.default}]" if flag.default else ""
        option = click.option(
            *names,
            flag.name.replace("-", "_"),
            multiple=True,
            metavar="[=BOOL]" if flag.is_boolean else flag.kind.flag_type,
            help=f"{flag.help}{default}",
            hidden=flag.is_hidden,
        )
        command = option(command)
    return command


class FlagCommand(click.Command):
    """A command whose arguments are read as pflag reads them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite the arguments to a form that click and pflag read alike."""
        return super().parse_args(ctx, _for_click(args))


class FlagGroup(click.Group):
    """A group whose own arguments are read as pflag reads them, up to the subcommand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite the arguments to a form that click and pflag read alike."""
        return super().parse_args(ctx, _for_click(args))


def _for_click(arguments: Sequence[str]) -> list[str]:
    pairs, rest = parse_arguments(arguments)
    if any(name == "help" and text != "false" for name, text in pairs):
        return ["--help"]
    return [f"--{name}={text}" for name, text in pairs if name != "help"] + rest
