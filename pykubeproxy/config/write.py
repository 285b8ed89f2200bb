"""Write Options back as a KubeProxyConfiguration: for --write-config-to and /configz.

Keys and forms of values are kube-proxy's own, so that its tools and ours read each other's files. The block of options
that kube-proxy does not have is written only where one of them differs from its default.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from pykubeproxy.config.document import API_VERSION, KIND
from pykubeproxy.config.options import Options
from pykubeproxy.config.settings import SETTINGS, default_of, get
from pykubeproxy.errors import EnvironmentProblem

Document = dict[str, object]

_GROUP_NAME = API_VERSION.partition("/")[0]


def to_document(options: Options) -> Document:
    """Return the document that loads as ``options``, in kube-proxy's order of fields."""
    document: Document = {"kind": KIND, "apiVersion": API_VERSION}
    for setting in SETTINGS:
        value = get(options, setting)
        if not setting.document or (setting.omit_empty and not value):
            continue
        if setting.is_own and value == default_of(setting):
            continue
        *groups, name = setting.document.split(".")
        block = document
        for group in groups:
            inner = block.setdefault(group, {})
            assert isinstance(inner, dict)
            block = inner
        block[name] = setting.kind.to_document(value)
    return document


def to_yaml(options: Options) -> str:
    """Return the document as YAML, keys sorted as kube-proxy writes them."""
    return yaml.dump(to_document(options), Dumper=_Dumper, sort_keys=True, default_flow_style=False, allow_unicode=True)


def to_configz_document(options: Options) -> Document:
    """Return the document as /configz shows it: no node port addresses are an empty list there."""
    document = to_document(options)
    document["nodePortAddresses"] = document["nodePortAddresses"] or []
    return document


def to_configz(options: Options) -> str:
    """Return the body of /configz: the document in JSON, under the name of its group."""
    return json.dumps({_GROUP_NAME: to_configz_document(options)}, separators=(",", ":"), ensure_ascii=False)


def write_config(path: str, options: Options) -> None:
    """Write the document to ``path``. Raises EnvironmentProblem where that cannot be done."""
    try:
        Path(path).write_text(to_yaml(options), encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"{path}: cannot be written: {error.strerror or error}") from error


class _Dumper(yaml.SafeDumper):
    """SafeDumper that puts in double quotes, as kube-proxy does, what would not read back as the same text."""


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = dumper.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    style = None if plain == "tag:yaml.org,2002:str" and text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _string)
