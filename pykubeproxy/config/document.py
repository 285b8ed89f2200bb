"""Read KubeProxyConfiguration documents (kubeproxy.config.k8s.io/v1alpha1) into Options.

Strict first, lenient after: what kube-proxy would only complain about (unknown fields, fields given twice) is a note,
what it could not use is an error, and all errors are reported at once, the notes behind them. ``null`` and absent are
the same; whether a zero means the default is a matter of each setting. Nothing here logs or looks at the machine,
except that `read_document` opens one file.
"""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import dataclass, replace

from pykubeproxy import files
from pykubeproxy.config import addresses, kinds
from pykubeproxy.config.notes import Note
from pykubeproxy.config.options import Options
from pykubeproxy.config.settings import BY_DOCUMENT, BY_OPTION, SETTINGS, default_of, get, with_values
from pykubeproxy.config.validate import find_problems, shown
from pykubeproxy.config.yamltree import read_all_yaml, read_yaml
from pykubeproxy.errors import ConfigurationError

API_VERSION = "kubeproxy.config.k8s.io/v1alpha1"
KIND = "KubeProxyConfiguration"

_GROUPS = frozenset(path[:index] for path in BY_DOCUMENT for index, letter in enumerate(path) if letter == ".")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A document's Options, and what is worth logging about it."""

    options: Options
    notes: tuple[Note, ...]
    digest: str = ""
    """Of the file's content: tells later whether it has changed since."""


def read_document(path: str) -> Loaded:
    """Load the file at ``path``. Raises ConfigurationError, each problem headed by the path."""
    try:
        content = files.read(path)
        loaded = load_document(content.decode())
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: is not UTF-8 text") from error
    except ConfigurationError as error:
        raise ConfigurationError([f"{path}: {problem}" for problem in error.problems]) from error
    return replace(loaded, digest=digest_of_content(content))


def digest_of(path: str) -> str | None:
    """Return the digest of a file's content now; None if it cannot be read, or only once as a pipe."""
    try:
        return digest_of_content(files.read(path, regular_only=True))
    except OSError:
        return None


def digest_of_content(content: bytes) -> str:
    """Return the digest of what a file holds."""
    return hashlib.sha256(content).hexdigest()


def load_document(text: str) -> Loaded:
    """Turn a document's text into Options. Raises ConfigurationError that names every faulty field and its value."""
    root, notes = read_yaml(text)
    if not isinstance(root, dict):
        raise ConfigurationError(f"a {KIND} document must be a mapping, not {kinds.kind_of_json(root)}")
    problems = [
        f"{key}: {shown(root.get(key))} must be {wanted}"
        for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND))
        if root.get(key) != wanted
    ]
    if len(problems) == 2:  # another kind of document: its fields would only add noise
        raise ConfigurationError(problems + _where_it_is(text))
    root.pop("apiVersion", None)
    root.pop("kind", None)

    given: dict[str, object] = {}
    _collect(root, "", given, problems, notes)
    values, unreadable = _read_values(given)
    notes += settle_mode(values)
    if addresses.family_of(str(values.get("bind_address", ""))) == 6:
        values = {"healthz_bind_address": "[::]:10256", "metrics_bind_address": "[::1]:10249", **values}
    if "cluster_cidrs" in unreadable and ignores_cluster_cidrs(values.get("detect_local_mode")):
        notes.append(Note("config field ignored in this detectLocalMode", {"problem": unreadable.pop("cluster_cidrs")}))
    options = with_values(Options(), values)
    problems += unreadable.values()
    problems += find_problems(options, lambda setting: setting.document, unreadable.keys())
    if problems:
        raise ConfigurationError(problems + [note.text() for note in notes])
    notes += note_without_effect(options)
    return Loaded(options, tuple(notes))


def _where_it_is(text: str) -> list[str]:
    """Say which document of the file is ours, if another than the first is: kubeadm keeps several kinds together."""
    for number, document in enumerate(read_all_yaml(text), start=1):
        if isinstance(document, dict) and document.get("kind") == KIND:
            return [f"document {number} of the file is a {KIND}, but only the first counts: give that one alone"]
    return []


def ignores_cluster_cidrs(mode: object) -> bool:
    """Tell whether clusterCIDR is not read in this detectLocalMode, so that its faults are none."""
    return mode != "ClusterCIDR" and mode in BY_OPTION["detect_local_mode"].choices


def settle_mode(values: dict[str, object]) -> list[Note]:
    """Replace another proxy mode by iptables in ``values`` (by option path), and say so.

    A document made for nftables mode leaves node ports to the primary addresses when it names none; that stays, or
    switching to this program would open ports on addresses that nobody meant to serve.
    """
    mode = values.get("mode")
    if mode not in ("ipvs", "nftables"):
        return []
    del values["mode"]
    if mode == "nftables" and not values.get("nodeport_addresses"):
        values["nodeport_addresses"] = (addresses.PRIMARY,)
    return [Note("proxy mode not supported, using iptables", {"mode": mode})]


def note_without_effect(options: Options) -> list[Note]:
    """Return the one note that names what is set and changes nothing in this program; none if nothing is."""
    ignored = {
        setting.document or f"--{setting.flag}": setting.kind.to_document(value)
        for setting in SETTINGS
        if not setting.has_effect and setting.is_reported
        if (value := get(options, setting)) not in (default_of(setting), setting.kind.zero)
    }
    return [Note("config fields without effect here", {"fields": ignored})] if ignored else []


def _collect(
    mapping: dict[str, object], prefix: str, given: dict[str, object], problems: list[str], notes: list[Note]
) -> None:
    """Sort a mapping's entries into ``given`` (by document path); null is as good as absent."""
    for key, value in mapping.items():
        path = f"{prefix}{key}"
        if path in BY_DOCUMENT:
            if value is not None:
                given[path] = value
        elif path not in _GROUPS:
            close = _close_to(path)
            meant = {"did_you_mean": close} if close else {}
            notes.append(Note("unknown config field", {"field": path, "value": shown(value), **meant}))
        elif isinstance(value, dict):
            _collect(value, f"{path}.", given, problems, notes)
        elif value is not None:
            problems.append(f"{path}: {shown(value)} must be a mapping, not {kinds.kind_of_json(value)}")


def _close_to(path: str) -> str:
    """Return the field that an unknown one may be meant for: of nearly its name beside it, or of its name elsewhere."""
    prefix, dot, name = path.rpartition(".")
    known = [*BY_DOCUMENT, *_GROUPS]
    beside = {one.rpartition(".")[2]: one for one in known if one.rpartition(".")[0] == prefix}
    close = difflib.get_close_matches(name, beside, n=1, cutoff=0.75)
    if close:
        return beside[close[0]]
    elsewhere = (one for one, setting in BY_DOCUMENT.items() if one.endswith(f".{name}") and setting.has_effect)
    return next(elsewhere, name if dot and name in BY_DOCUMENT else "")


def _read_values(given: dict[str, object]) -> tuple[dict[str, object], dict[str, str]]:
    """Return values by option path, and one line for each that cannot be read, by option path."""
    values: dict[str, object] = {}
    unreadable: dict[str, str] = {}
    for path, raw in given.items():
        setting = BY_DOCUMENT[path]
        try:
            value = setting.kind.from_document(raw)
        except ValueError as error:
            unreadable[setting.option] = f"{path}: {shown(raw)} {error}"
            continue
        is_unset = setting.zero_is_default and value == setting.kind.zero
        if not is_unset and ("/" not in setting.option or value != setting.default):
            values[setting.option] = value
    return values, unreadable
