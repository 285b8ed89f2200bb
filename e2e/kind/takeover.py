"""``python -m e2e.kind.takeover IMAGE``: take over a running kube-proxy cluster under load, and give it back."""

from __future__ import annotations

import argparse
import sys

from e2e.kind.__main__ import tell
from e2e.kind.cluster import Cluster
from e2e.kind.commands import Commands, Programs
from e2e.kind.site import KindSite
from e2e.lab import takeover
from e2e.lab.checks import await_that, service
from e2e.lab.site import CLIENT
from e2e.netlab import LabError

DAEMONSET = CONTAINER = "kube-proxy"


class Exchange(KindSite):
    """The site whose DaemonSet changes its image, as an operator would do it."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, DAEMONSET)
        self._original = cluster.image_of(DAEMONSET)

    def take_over(self) -> None:
        """Change the image to this project's."""
        self.cluster.apply_overlay("kubeadm")
        self.cluster.await_rollout(DAEMONSET)

    def give_back(self) -> None:
        """Change it back."""
        self.cluster.set_image(DAEMONSET, CONTAINER, self._original)
        self.cluster.await_rollout(DAEMONSET)


def main(arguments: list[str] | None = None, commands: Commands | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m e2e.kind.takeover", description=__doc__)
    parser.add_argument("image", help="the daemon's image, as docker (or podman) knows it")
    parser.add_argument("--name", default="pykubeproxy-takeover", help="name of the cluster")
    parser.add_argument("--engine", choices=("docker", "podman"), default="docker")
    parser.add_argument("--keep", action="store_true", help="leave the cluster standing")
    given = parser.parse_args(arguments)
    try:
        with Cluster(
            commands or Programs(), given.name, kube_proxy=True, engine=given.engine, keep=given.keep
        ) as cluster:
            cluster.load(given.image)
            cluster.await_nodes()
            site = Exchange(cluster)
            try:
                site.prepare()
                complaints = tell("kube-proxy → pykubeproxy → kube-proxy, twice", lambda: swap(site))
            finally:
                site.close()
    except LabError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 1 if complaints else 0


def swap(site: Exchange) -> list[str]:
    """Start the traffic, then exchange the proxies."""
    site.deploy("web", 2)
    made = site.expose(service("web", "web", type="NodePort"))
    address = made["spec"]["clusterIP"]
    node, port = site.node_address(""), next(p["nodePort"] for p in made["spec"]["ports"] if p["name"] == "http")
    pods = set(site.addresses("web"))
    found = await_that(lambda: set(site.ask(CLIENT, address, 80, n=20).pods) == pods, "kube-proxy serves the service")
    found += await_that(lambda: set(site.ask("outside", node, port, n=20).pods) == pods, "and its node port")
    if found:
        return found
    loads: dict[str, takeover.Ongoing] = {
        "new connections, pod → service": site.load(CLIENT, address, 80),
        "new connections, outside → node port": site.load("outside", node, port),
        "a long connection, pod → service": site.long_connection(CLIENT, address, 80),
        "a UDP flow, pod → service": site.udp_flow(CLIENT, address, 53),
    }
    return takeover.run(site, loads, print)


if __name__ == "__main__":
    sys.exit(main())
