"""What is wrong with a kubeconfig, in lines that say what to do.

It exists because the client library takes whatever it is given and complains in its own terms ("'str' object does not
support item assignment"), or not at all. Only the current context is judged, by client-go's rules. Nothing is kept from
here: the library reads the file for itself.
"""

from __future__ import annotations

import base64
import binascii
import shutil
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pykubeproxy import files
from pykubeproxy.config.addresses import url_fault
from pykubeproxy.errors import ConfigurationError

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Active:
    """What the current context names."""

    cluster: Entry
    user: Entry


def read(path: Path, *, needs_server: bool) -> Active:
    """Read a kubeconfig and return its current context's cluster and user.

    Raises ConfigurationError, with every fault that was found, each headed by the path.
    """
    try:
        return _active(_document(path), path.parent, needs_server=needs_server)
    except ConfigurationError as error:
        raise ConfigurationError([f"kubeconfig {path}: {problem}" for problem in error.problems]) from error


def _document(path: Path) -> Entry:
    try:
        text = files.read(path).decode("utf-8")
    except OSError as error:
        raise ConfigurationError(f"{_plain(error)}; name a file that can be read with --kubeconfig") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError("is not UTF-8 text") from error
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        said = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ConfigurationError(f"{where}not valid YAML: {said}") from error
    if document is None:
        raise ConfigurationError("is empty")
    if not isinstance(document, dict):
        raise ConfigurationError("is no kubeconfig, that is a mapping with clusters, contexts and users")
    return document


def _active(document: Entry, folder: Path, *, needs_server: bool) -> Active:
    contexts = _named(document, "contexts")
    current = document.get("current-context")
    known = f"it has {', '.join(contexts)}" if contexts else "it has none at all"
    if not current:
        raise ConfigurationError(f"has no current-context; set it to one of its contexts ({known})")
    if current not in contexts:
        raise ConfigurationError(
            f"current-context {current!r} is not among its contexts ({known}); set it to one that is there"
        )
    context = contexts[current]
    problems: list[str] = []
    found: dict[str, Entry] = {}
    for section, key in (("clusters", "cluster"), ("users", "user")):
        name, entries = context.get(key), _named(document, section)
        if name and name not in entries:
            problems.append(f"context {current!r} names the {key} {name!r}, which is not among its {section}")
        found[key] = entries.get(name, {}) if name else {}
    cluster, user = found["cluster"], found["user"]
    if problems:
        raise ConfigurationError(problems)
    problems += _cluster_faults(cluster, str(context.get("cluster")), folder, needs_server=needs_server)
    problems += _user_faults(user, str(context.get("user")), folder)
    if problems:
        raise ConfigurationError(problems)
    return Active(cluster, user)


def _named(document: Entry, section: str) -> dict[str, Entry]:
    """Return a section's entries by name."""
    entries = document.get(section) or []
    kind = section.removesuffix("s")
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get(kind) or {}, dict)
        for entry in entries
    ):
        raise ConfigurationError(f"{section} must be a list of mappings, each with a name and a {kind}")
    return {entry["name"]: entry.get(kind) or {} for entry in entries}


def _cluster_faults(cluster: Entry, name: str, folder: Path, *, needs_server: bool) -> list[str]:
    about = f"cluster {name!r}"
    problems = []
    server = cluster.get("server")
    if needs_server:
        fault = "is missing" if not server else url_fault(server) if isinstance(server, str) else "must be a text"
        if fault:
            problems.append(f"{about}: server {server!r} {fault}" if server else f"{about}: server {fault}")
    problems += _file_faults(cluster, about, ("certificate-authority",), folder)
    if not problems and (authority := cluster.get("certificate-authority")):
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(folder / authority)
        except ssl.SSLError:
            problems.append(f"{about}: certificate-authority {folder / authority} holds no certificate")
    return problems


def _user_faults(user: Entry, name: str, folder: Path) -> list[str]:
    about = f"user {name!r}"
    keys = ("client-certificate", "client-key", *(() if user.get("token") else ("tokenFile",)))
    problems = _file_faults(user, about, keys, folder)
    plugin = user.get("exec")
    command = plugin.get("command") if isinstance(plugin, dict) else None
    if isinstance(command, str):
        program = str(folder / command) if "/" in command else command
        if shutil.which(program) is None:
            problems.append(f"{about}: the credential plugin {command} is not there, or may not be run")
    return problems


def _file_faults(entry: Entry, about: str, keys: tuple[str, ...], folder: Path) -> list[str]:
    problems = []
    for key in keys:
        data, file = entry.get(f"{key}-data"), entry.get(key)
        if data:
            try:
                base64.b64decode("".join(data.split()), validate=True)
            except (binascii.Error, ValueError, AttributeError):
                problems.append(f"{about}: {key}-data is not base64")
        elif file:
            try:
                files.read(folder / file)
            except (OSError, TypeError) as error:
                fault = _plain(error) if isinstance(error, OSError) else "must be a path"
                problems.append(f"{about}: {key} {folder / str(file)}: {fault}")
    return problems


def _plain(error: OSError) -> str:
    said = error.strerror or str(error)
    return said[:1].lower() + said[1:]
