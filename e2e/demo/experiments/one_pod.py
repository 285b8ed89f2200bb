"""A pod asks a service that has one pod."""

from __future__ import annotations

from e2e.demo.stage import NGINX, PODS, Stage, kube_chains

TITLE = "A service with one pod, asked by another pod"


def run(stage: Stage) -> None:
    """See the chains that the packet takes, and who answers."""
    stage.show.command(f"curl http://{NGINX}/            (in pod curl, {stage.curl.ip})")
    traffic, way = stage.watch(lambda: stage.curl.http(NGINX, 80, path="/hello"))
    stage.show.way(way, "PREROUTING")
    wanted = ["PREROUTING", "KUBE-SERVICES", "KUBE-SVC", "KUBE-SEP"]
    stage.check(
        kube_chains(way.chains("PREROUTING")) == wanted and way.destinations() == {f"{PODS['nginx-1']}:80": 1},
        "PREROUTING → KUBE-SERVICES → KUBE-SVC → KUBE-SEP → 10.244.2.13:80",
    )
    stage.check(traffic.pods == {"nginx-1": 1}, "nginx-1 answered")
    stage.check(traffic.sources == {stage.curl.ip: 1}, f"it saw who asked: {stage.curl.ip}")
