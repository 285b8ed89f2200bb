"""Builders of KubeProxyConfiguration texts and the recorded ones."""

from pathlib import Path

import yaml

from pykubeproxy.config.document import load_document
from pykubeproxy.config.options import Options
from pykubeproxy.errors import ConfigurationError

RECORDINGS = Path(__file__).parent / "recordings"
HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"


def recorded(name: str) -> str:
    return (RECORDINGS / name).read_text(encoding="utf-8")


def with_field(path: str, value: object) -> str:
    """A document that sets one field, named by its dotted path."""
    *groups, name = path.split(".")
    inner: dict[str, object] = {name: value}
    for group in reversed(groups):
        inner = {group: inner}
    return HEAD + yaml.safe_dump(inner)


def load(body: str) -> Options:
    return load_document(HEAD + body).options


def events(body: str) -> list[tuple[str, dict[str, object]]]:
    return [(note.event, note.data) for note in load_document(HEAD + body).notes]


def problems_of(text: str) -> list[str]:
    try:
        load_document(text)
    except ConfigurationError as error:
        return error.problems
    return []
