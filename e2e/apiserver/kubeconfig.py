"""A kubeconfig for a stand-in: one cluster, one user, one context."""

from __future__ import annotations

import json
from pathlib import Path


def write_kubeconfig(
    path: str | Path,
    url: str,
    *,
    token: str | None = None,
    token_file: str | Path | None = None,
    ca: str | Path | None = None,
    insecure: bool = False,
) -> Path:
    """Write a kubeconfig and return its path. ``ca`` and ``token_file`` are paths that are referred to, not copied.

    It is written as JSON, which YAML readers take.
    """
    cluster: dict[str, object] = {"server": url}
    if ca is not None:
        cluster["certificate-authority"] = str(ca)
    if insecure:
        cluster["insecure-skip-tls-verify"] = True
    user: dict[str, str] = {}
    if token is not None:
        user["token"] = token
    if token_file is not None:
        user["tokenFile"] = str(token_file)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "standin", "cluster": cluster}],
        "users": [{"name": "standin", "user": user}],
        "contexts": [{"name": "standin", "context": {"cluster": "standin", "user": "standin"}}],
        "current-context": "standin",
    }
    target = Path(path)
    target.write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    return target
