"""Who is masqueraded on the way to a cluster address, and who is not."""

from __future__ import annotations

from functools import partial

from e2e.demo.stage import BRIDGE, INNER, NGINX, PODS, Stage

TITLE = "Source addresses: outsiders are masqueraded, pods are not"


def run(stage: Stage) -> None:
    """Ask from outside the cluster's range, and from inside; on both nodes a pod tells what it saw."""
    service = "default/nginx-svc"
    stage.apply_and_await("03-three-pods", service, [f"{ip}:80" for ip in PODS.values()])
    askers = {"outside client 192.168.77.2": stage.lab.client, f"pod curl {stage.curl.ip}": stage.curl}
    rows = []
    seen = {}
    for name, asker in askers.items():
        traffic, way = stage.watch(partial(asker.http, NGINX, 80, n=60, concurrency=4))
        found = sorted({(answer.pod, answer.source) for answer in traffic.answers})
        marked = way.through("KUBE-MARK-MASQ")
        rows += [(name, pod, source, f"{marked} of 60") for pod, source in found]
        seen[name] = (dict(found), marked, traffic.verdict())
    stage.show.table(["who asked", "who answered", "saw", "masqueraded"], rows)
    outside, inside = seen.values()
    stage.check(
        outside == ({"nginx-1": BRIDGE, "nginx-2": BRIDGE, "nginx-3": INNER}, 60, "answered"),
        "the outside client is masqueraded: pods saw the node's address towards them",
    )
    stage.check(
        inside == (dict.fromkeys(PODS, stage.curl.ip), 0, "answered"),
        f"the pod is not: all saw {stage.curl.ip}, also on the other node",
    )
    stage.apply_and_await("00-cluster", service, [f"{PODS['nginx-1']}:80"])
