"""What must hold of Options as a whole: bounds, choices, and the rules between two settings.

The same for documents and flags; only the names in the messages differ. It finds every fault, never just the first, and
changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection

from pykubeproxy.config.addresses import url_fault
from pykubeproxy.config.durations import format_duration
from pykubeproxy.config.kinds import PATHS, Kind
from pykubeproxy.config.options import Options
from pykubeproxy.config.settings import BY_OPTION, SETTINGS, Setting, get

NODE_NAME_RULE = "lower case letters, digits, '-' and '.', a letter or digit first and last, at most 253 characters"
_NODE_NAME_LIMIT = 253
_NODE_NAME_PART = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_INTERFACE_NAME_LIMIT = 15  # IFNAMSIZ - 1, include/uapi/linux/if.h
_VERSION = re.compile(r"[0-9]+\.[0-9]+", re.ASCII)
_SHOWN = 120


def shown(value: object) -> str:
    """Write a value for a message: JSON, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def shown_setting(kind: Kind, value: object) -> str:
    """Write a setting's value as the document would."""
    return shown(kind.to_document(value))


def find_problems(options: Options, name: Callable[[Setting], str], already: Collection[str] = ()) -> list[str]:
    """Return one line per fault: the setting's name, its value, what is wrong.

    ``already`` holds option paths whose value could not be read at all; they stand at their default and are not judged.
    """
    found = [(setting.option, _own_fault(setting, get(options, setting))) for setting in SETTINGS]
    found += _faults_between(options)
    return [
        f"{name(BY_OPTION[path])}: {shown_setting(BY_OPTION[path].kind, get(options, BY_OPTION[path]))} {fault}"
        for path, fault in found
        if fault and path not in already
    ]


def is_node_name(name: str) -> bool:
    """Tell whether the API server would take a Node of this name: an RFC 1123 subdomain."""
    return len(name) <= _NODE_NAME_LIMIT and all(_NODE_NAME_PART.fullmatch(part) for part in name.split("."))


def _own_fault(setting: Setting, value: object) -> str:
    if setting.choices and value not in setting.choices:
        return f"must be one of {', '.join(choice for choice in setting.choices if choice)}"
    if setting.kind is PATHS and isinstance(value, tuple) and "" in value:
        return "must not hold an empty path"
    if not isinstance(value, int | float):
        return ""
    if setting.above is not None and value <= setting.above:
        return f"must be greater than {setting.above:g}"
    if setting.maximum is not None and setting.minimum is not None and not setting.minimum <= value <= setting.maximum:
        return f"must be from {setting.minimum:g} to {setting.maximum:g}"
    if setting.minimum is not None and value < setting.minimum:
        return f"must be {setting.minimum:g} or more"
    return ""


def _faults_between(options: Options) -> list[tuple[str, str]]:
    found = []
    if 0 < options.iptables.sync_period < options.iptables.min_sync_period:
        period = format_duration(options.iptables.sync_period)
        found.append(("iptables.min_sync_period", f"must not be longer than the sync period ({period})"))
    for mode, path, value in (
        ("BridgeInterface", "bridge_interface", options.bridge_interface),
        ("InterfaceNamePrefix", "interface_name_prefix", options.interface_name_prefix),
    ):
        if options.detect_local_mode == mode and (fault := _interface_fault(value)):
            found.append((path, f"{fault} in detectLocalMode {mode}"))
    if options.show_hidden_metrics_for_version and not _VERSION.fullmatch(options.show_hidden_metrics_for_version):
        found.append(("show_hidden_metrics_for_version", 'must be empty or a version like "1.35"'))
    if options.client.master:
        found.append(("client.master", url_fault(options.client.master)))
    if options.hostname_override:
        name = options.hostname_override.strip().lower()
        if not name:
            found.append(("hostname_override", "must not be blank"))
        elif not is_node_name(name):
            found.append(("hostname_override", f"must be a name that a Node can have ({NODE_NAME_RULE})"))
    return found


def _interface_fault(name: str) -> str:
    if not name:
        return "must not be empty"
    if not name.isprintable() or set(name) & set(" /\"'\\!"):  # half a surrogate pair is not printable either
        return "must be the name of a network interface"
    if len(name.encode()) > _INTERFACE_NAME_LIMIT:
        return f"must be at most {_INTERFACE_NAME_LIMIT} characters long"
    return ""
