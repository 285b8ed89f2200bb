"""YAML (or JSON) text to plain values, reporting keys that stand twice in one mapping.

Scalars are read as Kubernetes' own YAML reader does: no dates, no base-60 numbers, so that an address or a version
never turns into one. Nothing here knows what a document means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from pykubeproxy.config.notes import Note
from pykubeproxy.errors import ConfigurationError

_MERGE = "tag:yaml.org,2002:merge"
_BASE_60 = ":"
_VALUE_LIMIT = 100_000


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalar forms of Kubernetes' YAML reader."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":value"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+"), list("-+0123456789")
)


@dataclass(slots=True)
class _Reader:
    """One conversion of nodes to values; ``open_nodes`` are the containers being read, to find a loop of aliases."""

    notes: list[Note]
    loader: _Loader
    open_nodes: set[int] = field(default_factory=set)
    count: int = 0

    def value(self, node: yaml.Node, path: str) -> object:
        self.count += 1
        if self.count > _VALUE_LIMIT:
            raise ConfigurationError(f"{path}: line {_line(node)}: the document grows too large through its aliases")
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        if id(node) in self.open_nodes:
            raise ConfigurationError(f"{path or 'document'}: line {_line(node)}: an alias refers to itself")
        self.open_nodes.add(id(node))
        value: object
        if isinstance(node, yaml.SequenceNode):
            value = [self.value(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        else:
            value = self.mapping(node, path)
        self.open_nodes.discard(id(node))
        return value

    def mapping(self, node: yaml.Node, path: str) -> dict[str, object]:
        merged: dict[str, object] = {}
        own: dict[str, object] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                parts = self.value(value_node, path)
                for part in parts if isinstance(parts, list) else [parts]:
                    merged = {**part, **merged} if isinstance(part, dict) else merged
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigurationError(f"{path or 'document'}: line {_line(key_node)}: a key must be a string")
            key = str(key_node.value)
            inner = f"{path}.{key}" if path else key
            if key in own:
                self.notes.append(
                    Note("config field given twice, the last one counts", {"field": inner, "line": _line(key_node)})
                )
            own[key] = self.value(value_node, inner)
        return {**merged, **own}

    def scalar(self, node: yaml.ScalarNode, path: str) -> object:
        if node.tag.endswith((":int", ":float")) and _BASE_60 in node.value:
            return node.value
        try:
            value: object = self.loader.construct_object(node)
        except (yaml.YAMLError, ValueError, KeyError) as error:
            raise ConfigurationError(
                f"{path or 'document'}: line {_line(node)}: {node.value!r} cannot be read"
            ) from error
        return value.decode("latin-1") if isinstance(value, bytes) else value


def read_yaml(text: str) -> tuple[object, list[Note]]:
    """Return the value of the first document in ``text`` and what is odd about its form.

    Raises ConfigurationError with the line where the text is no YAML.
    """
    notes: list[Note] = []
    loader = None
    try:
        loader = _Loader(text.removeprefix("\ufeff"))
        node: Any = loader.get_node() if loader.check_node() else None
        value = None if node is None else _Reader(notes, loader).value(node, "")
        if loader.check_node():
            notes.append(Note("only the first document of the configuration file counts", {}))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise ConfigurationError(f"{where}not valid YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ConfigurationError("not valid YAML: nested too deeply") from error
    finally:
        if loader is not None:
            loader.dispose()
    return value, notes


def read_all_yaml(text: str) -> list[object]:
    """Return the values of all documents in ``text``, as far as it is YAML."""
    found: list[object] = []
    loader = _Loader(text.removeprefix("\ufeff"))
    try:
        while loader.check_node():
            node: Any = loader.get_node()
            found.append(_Reader([], loader).value(node, ""))
    except (yaml.YAMLError, RecursionError, ConfigurationError):
        pass
    finally:
        loader.dispose()
    return found


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1 if node.start_mark else 0
