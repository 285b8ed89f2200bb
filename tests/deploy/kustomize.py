"""As much of kustomize as deploy/ uses: resources, config maps, images, patches (JSON 6902 and ``$patch: delete``).

It exists so that the manifests are checked where there is no kubectl; where there is one, a test compares the two.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]
CLUSTER_WIDE = {"ClusterRoleBinding", "ClusterRole", "Namespace", "PriorityClass"}


def build(folder: Path) -> list[Json]:
    """Render one kustomization."""
    spec = yaml.safe_load((folder / "kustomization.yaml").read_text())
    unknown = spec.keys() - {
        "apiVersion", "kind", "namespace", "resources", "configMapGenerator", "generatorOptions", "images", "patches"
    }  # fmt: skip
    assert not unknown, f"{folder}: this renderer does not know {unknown}"
    objects: list[Json] = []
    for name in spec.get("resources", ()):
        path = folder / name
        objects += build(path) if path.is_dir() else [d for d in yaml.safe_load_all(path.read_text()) if d]
    for generator in spec.get("configMapGenerator", ()):
        _generate(objects, generator, spec.get("generatorOptions", {}), folder)
    if "namespace" in spec:
        for obj in objects:
            if obj["kind"] not in CLUSTER_WIDE:
                obj["metadata"]["namespace"] = spec["namespace"]
    for patch in spec.get("patches", ()):
        objects = _patched(objects, patch)
    for image in spec.get("images", ()):
        _set_image(objects, image)
    return objects


def _generate(objects: list[Json], generator: Json, options: Json, folder: Path) -> None:
    assert options.get("disableNameSuffixHash"), "a name with a hash is not made here"
    data = {Path(file).name: (folder / file).read_text() for file in generator["files"]}
    if generator.get("behavior") == "merge":
        (there,) = [o for o in objects if o["kind"] == "ConfigMap" and o["metadata"]["name"] == generator["name"]]
        there["data"] |= data
        return
    meta: Json = {"name": generator["name"]}
    if "labels" in options:
        meta["labels"] = dict(options["labels"])
    objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})


def _patched(objects: list[Json], patch: Json) -> list[Json]:
    body = yaml.safe_load(patch["patch"])
    if isinstance(body, dict):
        assert body.pop("$patch", None) == "delete", "only deleting patches are known besides JSON 6902"
        kept = [obj for obj in objects if _key(obj) != _key(body)]
        assert len(kept) == len(objects) - 1, f"nothing to delete: {_key(body)}"
        return kept
    target = patch["target"]
    (obj,) = [o for o in objects if o["kind"] == target["kind"] and o["metadata"]["name"] == target["name"]]
    for operation in body:
        _apply(obj, operation)
    return objects


def _key(obj: Json) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _apply(obj: Json, operation: Json) -> None:
    *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
    at: Any = obj
    for part in way:
        at = at[int(part)] if isinstance(at, list) else at[part]
    key: Any = int(last) if isinstance(at, list) else last
    if operation["op"] == "replace":
        assert key in at if isinstance(at, dict) else key < len(at), operation["path"]
    else:
        assert operation["op"] == "add"
    at[key] = copy.deepcopy(operation["value"])


def _set_image(objects: list[Json], image: Json) -> None:
    for obj in objects:
        spec = obj.get("spec", {}).get("template", {}).get("spec", {})
        for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
            if container.get("image", "").partition(":")[0] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"
