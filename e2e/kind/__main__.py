"""``python -m e2e.kind IMAGE``: a cluster without kube-proxy, the daemon, the checks. Exit status 1 if one fails."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from e2e.kind.cluster import Cluster
from e2e.kind.commands import Commands, Programs
from e2e.kind.site import KindSite
from e2e.lab.checks import CHECKS
from e2e.netlab import LabError

# The parts of the suite in which a service proxy has a part, without what a kind cluster of one IP family has not got.
FOCUS = (
    r"\[sig-network\] (Services|Service endpoints|Service CIDRs|EndpointSlice|Endpoints|Conntrack|KubeProxy|Networking"
    r"|Topology Hints|Traffic Distribution|HostPort)"
)
SKIP = r"\[Disruptive\]|\[Serial\]|\[Feature:|\[Flaky\]"


def main(arguments: list[str] | None = None, commands: Commands | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m e2e.kind", description=__doc__)
    parser.add_argument("image", help="the daemon's image, as docker (or podman) knows it")
    parser.add_argument("--name", default="pykubeproxy", help="name of the cluster")
    parser.add_argument("--engine", choices=("docker", "podman"), default="docker")
    parser.add_argument("--keep", action="store_true", help="leave the cluster standing")
    parser.add_argument(
        "--e2e-test", type=Path, metavar="FILE", help="the upstream suite's e2e.test: run its parts for a proxy"
    )
    given = parser.parse_args(arguments)
    try:
        with Cluster(
            commands or Programs(), given.name, kube_proxy=False, engine=given.engine, keep=given.keep
        ) as cluster:
            complaints = _run(cluster, given.image, given.e2e_test)
    except LabError as problem:
        print(problem, file=sys.stderr)
        return 1
    print("All of it holds." if not complaints else f"{complaints} complaints.")
    return 1 if complaints else 0


def _run(cluster: Cluster, image: str, suite: Path | None) -> int:
    cluster.load(image)
    cluster.apply_overlay("kind")
    cluster.await_rollout("pykubeproxy")
    cluster.await_nodes()
    site = KindSite(cluster, "pykubeproxy")
    try:
        site.prepare()
        complaints = sum(tell(name, lambda check=check: check(site)) for name, check in CHECKS.items())  # type: ignore[misc]
    finally:
        site.close()
    if suite is not None:
        complaints += tell("the upstream suite", lambda: upstream(cluster, suite))
    return complaints


def upstream(cluster: Cluster, suite: Path) -> list[str]:
    """Run the tests of the upstream suite in which a service proxy has a part."""
    argv = [str(suite), f"--kubeconfig={cluster.kubeconfig}", "--provider=skeleton", "--ginkgo.no-color"]
    argv += [f"--ginkgo.focus={FOCUS}", f"--ginkgo.skip={SKIP}"]
    done = cluster.commands.run(argv, timeout=7200)
    return [] if done.status == 0 else [line for line in done.stdout.splitlines() if "[FAIL]" in line] or [done.stderr]


def tell(title: str, work: Callable[[], list[str]]) -> int:
    """Do a piece of work, print what came of it, and return how many complaints there are."""
    try:
        found = work()
    except LabError as problem:
        found = [str(problem)]
    print(f"{'✗' if found else '✓'} {title}")
    for line in found:
        print(f"    {line}")
    sys.stdout.flush()
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
