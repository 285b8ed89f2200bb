"""The only wiring."""

from __future__ import annotations

import structlog

from pykubeproxy.config.options import Options
from pykubeproxy.errors import UsageError
from pykubeproxy.watch.manifests import ClusterObjects, load

log = structlog.get_logger()


def read_objects(options: Options, node_name: str) -> ClusterObjects:
    """Read all objects once."""
    if not options.manifests:
        raise UsageError("needs --manifests")
    objects = load(options.manifests)
    for problem in objects.problems:
        log.warning("manifest_problem", problem=problem)
    return objects
