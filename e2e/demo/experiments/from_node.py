"""The node itself asks: the packet starts in OUTPUT instead of PREROUTING."""

from __future__ import annotations

from e2e.demo.stage import BRIDGE, NGINX, PODS, Stage, kube_chains

TITLE = "The same service, asked by the node itself"


def run(stage: Stage) -> None:
    """See the chains from OUTPUT on."""
    stage.show.command(f"curl http://{NGINX}/            (on the node)")
    traffic, way = stage.watch(lambda: stage.lab.node.http(NGINX, 80))
    stage.show.way(way, "OUTPUT")
    chains = kube_chains(way.chains("OUTPUT"))
    stage.check(
        [name for name in chains if name != "KUBE-MARK-MASQ"] == ["OUTPUT", "KUBE-SERVICES", "KUBE-SVC", "KUBE-SEP"]
        and way.destinations() == {f"{PODS['nginx-1']}:80": 1},
        "OUTPUT → KUBE-SERVICES → KUBE-SVC → KUBE-SEP → 10.244.2.13:80",
    )
    stage.check(way.chains("PREROUTING") == ["PREROUTING"], "nothing went through PREROUTING")
    stage.check(
        traffic.sources == {BRIDGE: 1} and "KUBE-MARK-MASQ" in chains,
        f"the node is no pod, so it is masqueraded: nginx-1 saw {BRIDGE}",
    )
