"""Services, EndpointSlices and Nodes from files, in place of an API server.

It exists for --dry-run, for tests, and for nodes that get their objects by other ways. What an API server would do to a
hand-written object (default fields, kube-proxy's selectors) is done here; what it would allocate (a cluster IP, a node
port) cannot be, and is named. Reading is pure but for opening files: problems come back as values, one line each.
It must not decide what an invalid address or port means: that is the model's business, as for objects from a server.
"""

from __future__ import annotations

import difflib
import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog
import yaml

from pykubeproxy.files import read
from pykubeproxy.watch.decode import FAULTS, BadObject, describe, mended, trim
from pykubeproxy.watch.objects import SERVICE_NAME_LABEL, EndpointSlice, KubeObject, Node, Service, place
from pykubeproxy.watch.selectors import is_selected

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubeObject)

SUFFIXES = (".yaml", ".yml", ".json")
"""What is read of a folder; its hidden files and its folders are not."""

_GROUPS: dict[str, tuple[type[KubeObject], str]] = {
    "Service": (Service, "v1"),
    "EndpointSlice": (EndpointSlice, "discovery.k8s.io/v1"),
    "Node": (Node, "v1"),
}


NO_SPEC = "spec: is missing"
NO_ADDRESS = "spec.clusterIP: is missing, and there is no API server to allocate one"

_CLOSE = 0.85
"""How like a word must be to one of ours to be taken for it: Servce and service are, ServiceAccount is not."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML as Kubernetes reads it: a time stays text. libyaml's parser where PyYAML was built with it (ten times)."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}

Key = tuple[str, str]


class ManifestError(ValueError):
    """A file that cannot be read or parsed; ``str()`` is one line that names file and line."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one object that could be named; ``said`` is ``field: why; what goes``."""

    kind: str
    key: Key
    said: str

    def __str__(self) -> str:
        return f"{describe(self.kind, *self.key)}: {self.said}"


@dataclass(slots=True)
class Manifest:
    """What one file holds, and what in it cannot be used."""

    services: dict[Key, Service] = field(default_factory=dict)
    slices: dict[Key, EndpointSlice] = field(default_factory=dict)
    nodes: dict[Key, Node] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    """Those of the problems that are about objects with a name."""
    unreadable: dict[tuple[str, Key], str] = field(default_factory=dict)
    """Why objects with a name do not decode."""
    unserved: dict[tuple[str, Key], str] = field(default_factory=dict)
    """Why Services that do decode cannot be served: the address is missing."""
    incomplete: str = ""
    """The first thing in it of which nobody can tell what object it is, if any."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Kinds that are not ours, and how often they came."""

    def table(self, kind: str) -> dict[Key, Any]:
        """Return the objects of a kind; a Service that is not served is among them."""
        tables: dict[str, dict[Key, Any]] = {"Service": self.services, "EndpointSlice": self.slices, "Node": self.nodes}
        return tables[kind]

    @property
    def unusable(self) -> dict[tuple[str, Key], str]:
        """Why objects with a name cannot be used; each reason is one of the problems."""
        return {**self.unreadable, **self.unserved}


@dataclass(frozen=True, slots=True)
class Repeat:
    """An object that comes in two files."""

    problem: str
    files: tuple[str, str]


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """What all manifests together hold, selected as kube-proxy's selectors would; ``problems`` are one line each."""

    services: list[Service]
    slices: list[EndpointSlice]
    nodes: list[Node]
    problems: list[str]
    left_aside: list[Service] = field(default_factory=list)
    """Services that are not selected: headless ones, and those of another proxy. Empty where a server selects."""
    faults: list[Fault] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Those of the problems that kept a whole file or folder from being read."""
    repeats: list[Repeat] = field(default_factory=list)
    """Those of the problems that are about two files."""

    def faults_of(self, key: Key) -> list[str]:
        """Return what did not decode in a Service and its EndpointSlices, or would have been allocated: a line each."""
        known = {(one.metadata.namespace, one.metadata.name): one.metadata.labels or {} for one in self.slices}

        def is_about(fault: Fault) -> bool:
            if fault.kind == "Service":
                return fault.key == key
            if fault.key in known:
                return (fault.key[0], known[fault.key].get(SERVICE_NAME_LABEL)) == key
            # A slice that could not be used at all is known by the name that its controller gives it.
            return fault.key[0] == key[0] and fault.key[1].startswith(f"{key[1]}-")

        return [str(fault) for fault in self.faults if fault.kind != "Node" and is_about(fault)]


def load(paths: Sequence[str]) -> ClusterObjects:
    """Read files and folders once. What cannot be read or decoded is a problem, never an exception."""
    manifests: dict[str, Manifest] = {}
    problems: list[str] = []
    for path in paths:
        try:
            files = list(files_of(path))
        except OSError as error:
            hint = "; standard input is /dev/stdin" if path == "-" else ""
            problems.append(f"{path or repr(path)}: {error.strerror}{hint}")
            continue
        if not files:
            problems.append(f"{path}: no manifests in this folder ({', '.join('*' + suffix for suffix in SUFFIXES)})")
        for file in files:
            try:
                # What lies in a folder is meant to lie there: a pipe in it is none that the shell made for us.
                manifests[file] = parse(read(file, regular_only=file != path), file)
            except OSError as error:
                problems.append(f"{file}: {error.strerror}")
            except ManifestError as error:
                problems.append(str(error))
    merged = merge(manifests)
    return replace(merged, problems=problems + merged.problems, unread=problems)


def files_of(path: str) -> Iterator[str]:
    """Yield the manifest files that a path stands for: itself, or a folder's in the order of their names."""
    if not path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    where = Path(path)
    if not stat.S_ISDIR(where.stat().st_mode):
        yield path
        return
    for entry in sorted(where.iterdir()):
        if entry.suffix in SUFFIXES and not entry.name.startswith(".") and not entry.is_dir():
            yield str(entry)


def merge(manifests: Mapping[str, Manifest]) -> ClusterObjects:
    """Put files together in their order; of an object that comes twice the later one counts, and a problem says so."""
    repeats: list[Repeat] = []
    found: dict[str, dict[Key, KubeObject]] = {}
    for kind in _GROUPS:
        origin: dict[Key, str] = {}
        objects = found[kind] = {}
        for file, manifest in manifests.items():
            for key, obj in manifest.table(kind).items():
                if key in origin:
                    problem = f"{file}: {describe(kind, *key)} is also in {origin[key]}; the one in {file} counts"
                    repeats.append(Repeat(problem, (file, origin[key])))
                origin[key] = file
                objects[key] = obj
    return ClusterObjects(
        services=_selected(found["Service"]),
        slices=_selected(found["EndpointSlice"]),
        nodes=_selected(found["Node"]),
        problems=[problem for manifest in manifests.values() for problem in manifest.problems]
        + [repeat.problem for repeat in repeats],
        left_aside=[obj for obj in found["Service"].values() if isinstance(obj, Service) and not is_selected(obj, "")],
        faults=[fault for manifest in manifests.values() for fault in manifest.faults],
        repeats=repeats,
    )


def _selected(objects: Mapping[Key, Any]) -> list[Any]:
    return [obj for obj in objects.values() if is_selected(obj, "")]


def parse(data: bytes, file: str) -> Manifest:
    """Read one file's content: JSON or YAML, one document or many, objects or Lists of them, nested or not.

    Raises ManifestError when it is neither; a single bad object is a problem of the result.
    """
    manifest = Manifest()
    for document in _documents(data, file):
        _collect(manifest, file, document)
    return manifest


@dataclass(frozen=True, slots=True)
class _Document:
    """A document or an item of a List; what a typed List says of its items is what they say of themselves."""

    tree: Any
    line: int
    """Where it begins, or where the document begins that it is in."""
    node: Any = None
    """YAML only: the parsed form that knows lines."""
    list_kind: str = ""
    list_version: str = ""

    def items(self, items: Sequence[Any], kind: str, version: str) -> Iterator[_Document]:
        nodes: Sequence[Any] = ()
        if isinstance(self.node, yaml.MappingNode):
            values = [value for key, value in self.node.value if key.value == "items"]
            nodes = values[-1].value if values else ()
        for index, item in enumerate(items):
            node = nodes[index] if index < len(nodes) else None
            line = node.start_mark.line + 1 if node is not None else self.line
            yield _Document(item, line, node, kind, version)


def _documents(data: bytes, file: str) -> Iterator[_Document]:
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            yield _Document(msgspec.json.decode(data), 1)
        except FAULTS:
            yield from _more_json(data, file)
        return
    loader = _Loader(data)
    try:
        while loader.check_node():
            node = loader.get_node()
            yield _Document(loader.construct_document(node), node.start_mark.line + 1, node)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _no_yaml(file, error) from error
    finally:
        loader.dispose()


def _no_yaml(file: str, error: Exception) -> ManifestError:
    where, said = file, str(error)
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}" if mark else file
        said = " ".join(part for part in (error.context, error.problem) if part)
    return ManifestError(f"{where}: no YAML: {' '.join(said.split())}")


def _more_json(data: bytes, file: str) -> Iterator[_Document]:
    """Read JSON documents that follow each other, or YAML that merely begins like JSON."""
    found: list[_Document] = []
    try:
        text = data.decode("utf-8")
        decoder = json.JSONDecoder()
        at = _next_text(text, 0)
        while at < len(text):
            tree, end = decoder.raw_decode(text, at)
            found.append(_Document(tree, text.count("\n", 0, at) + 1))
            at = _next_text(text, end)
    except UnicodeDecodeError as error:
        raise ManifestError(f"{file}: no UTF-8: {error.reason} at byte {error.start}") from error
    except (json.JSONDecodeError, RecursionError) as error:
        where, said = file, "nested too deeply"
        if isinstance(error, json.JSONDecodeError):
            where, said = f"{file}:{error.lineno}", f"{error.msg} (column {error.colno})"
        refusal = ManifestError(f"{where}: no JSON: {said}")
        if file.endswith(".json"):
            raise refusal from error
        try:
            found = [_Document(tree, 1) for tree in yaml.load_all(data, _Loader)]
        except (yaml.YAMLError, ValueError, RecursionError) as fault:
            raise (_no_yaml(file, fault) if file.endswith((".yaml", ".yml")) else refusal) from error
    yield from found


def _next_text(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _collect(manifest: Manifest, file: str, document: _Document) -> None:
    """Sort a document, or an item of a List, into ``manifest``."""
    tree, where = document.tree, f"{file}:{document.line}"
    if tree is None:
        return
    if not isinstance(tree, dict):
        _incomplete(manifest, f"{where}: a document is no object but {_type_name(tree)}")
        return
    kind = tree.get("kind") or document.list_kind
    version = tree.get("apiVersion") or document.list_version
    if not isinstance(kind, str) or not kind or not isinstance(version, str):
        _incomplete(manifest, f"{where}: an object has no kind and apiVersion")
    elif kind == "List" or (kind.endswith("List") and isinstance(tree.get("items"), list)):
        items = tree.get("items") or []
        if not isinstance(items, list):
            _incomplete(manifest, f"{where}: {kind}: items: expected array, got {_type_name(items)}")
            return
        item_kind, item_version = ("", "") if kind == "List" else (kind.removesuffix("List"), version)
        for item in document.items(items, item_kind, item_version):
            _collect(manifest, file, item)
    elif kind not in _GROUPS or (version and version != _GROUPS[kind][1]):
        meant, problem = _misspelt(kind, version)
        if meant:
            _leave_out(manifest, where, _about(tree, meant), problem)
        else:
            name = f"{version} {kind}".strip()
            manifest.skipped[name] = manifest.skipped.get(name, 0) + 1
    else:
        _decode(manifest, where, tree, kind)


def _decode(manifest: Manifest, where: str, tree: dict[str, Any], kind: str) -> None:
    faults: list[str] = []
    try:
        obj: Any = msgspec.convert(tree, _GROUPS[kind][0])
    except (msgspec.ValidationError, RecursionError):
        found = mended(_GROUPS[kind][0], tree)
        if isinstance(found, BadObject):
            about = (kind, "" if kind == "Node" else found.namespace or "default", found.name)
            _leave_out(manifest, where, about, found.problem)
            return
        obj, faults = found.obj, found.faults
    if not obj.metadata.name:
        _incomplete(manifest, f"{where}: {kind}: metadata.name: is missing")
        return
    problems = [*faults, *default(obj)]
    key = (obj.metadata.namespace, obj.metadata.name)
    table = manifest.table(kind)
    if key in table:
        problems.append("comes twice in this file, the later one counts")
    manifest.unserved.pop((kind, key), None)
    for problem in problems:
        _fault(manifest, where, Fault(kind, key, problem))
        if problem in (NO_SPEC, NO_ADDRESS):
            manifest.unserved[kind, key] = manifest.problems[-1]
    trim((obj,))
    table[key] = obj


def _misspelt(kind: str, version: str) -> tuple[str, str]:
    """Return which kind of ours is meant by words that are not ours, and what is wrong; "" for foreign ones."""
    by_letters = {known.casefold(): known for known in _GROUPS}
    close = difflib.get_close_matches(kind.casefold(), by_letters, 1, _CLOSE)
    if not close:
        return "", ""
    meant = by_letters[close[0]]
    ours = _GROUPS[meant][1]
    is_our_group = version.rpartition("/")[0] == ours.rpartition("/")[0]
    if version and not is_our_group and not difflib.get_close_matches(version, [ours], 1, _CLOSE):
        return "", ""
    if kind != meant:
        return meant, f"kind: {version} {kind} is unknown; did you mean {meant}?".replace("  ", " ")
    return meant, f"apiVersion: {version} is not read; did you mean {ours}?"


def _about(tree: dict[str, Any], kind: str) -> tuple[str, str, str | None]:
    meta = tree.get("metadata")
    name, namespace = (meta.get("name"), meta.get("namespace")) if isinstance(meta, dict) else (None, None)
    said = namespace if isinstance(namespace, str) and namespace else "default"
    return kind, "" if kind == "Node" else said, name if isinstance(name, str) and name else None


def _leave_out(manifest: Manifest, where: str, about: tuple[str, str, str | None], problem: str) -> None:
    kind, namespace, name = about
    if name is None:
        _incomplete(manifest, f"{where}: {describe(kind, namespace, None)}: {problem}")
        return
    _fault(manifest, where, Fault(kind, (namespace, name), problem))
    manifest.unreadable[kind, (namespace, name)] = manifest.problems[-1]


def _incomplete(manifest: Manifest, problem: str) -> None:
    manifest.problems.append(problem)
    manifest.incomplete = manifest.incomplete or problem


def _fault(manifest: Manifest, where: str, fault: Fault) -> None:
    manifest.faults.append(fault)
    manifest.problems.append(f"{where}: {fault}")


def _type_name(value: object) -> str:
    return {list: "array", str: "str", bool: "bool"}.get(type(value), type(value).__name__)


def default(obj: KubeObject) -> Iterator[str]:
    """Fill in what an API server would fill in; yield what it would have allocated, or not have accepted.

    Source: pkg/apis/core/v1/defaults.go, pkg/apis/discovery/v1/defaults.go and pkg/registry/core/service of 1.36.
    """
    if isinstance(obj, Node):
        obj.metadata.namespace = ""
        return
    obj.metadata.namespace = obj.metadata.namespace or "default"
    if isinstance(obj, EndpointSlice):
        for port in obj.ports or ():
            port.protocol = port.protocol or "TCP"
            port.name = port.name or ""
    else:
        yield from _default_service(obj)


def _default_service(service: Service) -> Iterator[str]:
    spec = service.spec
    if spec is None:
        yield NO_SPEC
        return
    spec.type = spec.type or "ClusterIP"
    is_external = spec.type in ("NodePort", "LoadBalancer")
    for index, port in enumerate(spec.ports or ()):
        port.protocol = port.protocol or "TCP"
        if spec.type == "NodePort" and not port.node_port:
            path = place(f"spec.ports[{index}].nodePort", service.places)
            yield f"{path}: is missing, and there is no API server to allocate one"
    if spec.type == "ExternalName":
        return
    spec.session_affinity = spec.session_affinity or "None"
    spec.internal_traffic_policy = spec.internal_traffic_policy or "Cluster"
    if is_external or spec.external_ips:
        spec.external_traffic_policy = spec.external_traffic_policy or "Cluster"
    if not spec.cluster_ip and spec.cluster_ips:
        spec.cluster_ip = spec.cluster_ips[0]
    if not spec.cluster_ip:
        yield NO_ADDRESS
        return
    spec.cluster_ips = spec.cluster_ips or [spec.cluster_ip]
    if spec.ip_families is None and spec.cluster_ip != "None":
        # An address that is none is named by the model.
        spec.ip_families = ["IPv6" if ":" in address else "IPv4" for address in spec.cluster_ips]
