"""A node port from outside, with both external traffic policies."""

from __future__ import annotations

from e2e.demo.stage import BRIDGE, INNER, PODS, Stage
from e2e.netlab import Answer

TITLE = "NodePort from outside: policy Cluster and policy Local"
NODE, PORT = "192.168.77.1", 30080


def run(stage: Stage) -> None:
    """See who answers and what they see, under each policy."""
    service, addresses = "default/shop", [f"{ip}:80" for ip in PODS.values()]
    client = stage.lab.client
    stage.apply_and_await("07-node-port", service, addresses)
    stage.await_rule(f"--dport {PORT} -j KUBE-EXT-")
    everyone, way = stage.watch(lambda: client.http(NODE, PORT, n=90, concurrency=4))
    stage.show.say(f"{NODE}:{PORT} from 192.168.77.2, externalTrafficPolicy Cluster:")
    stage.show.way(way, "PREROUTING")
    _show(stage, everyone.answers)
    stage.check(
        {(a.pod, a.source) for a in everyone.answers} == {("nginx-1", BRIDGE), ("nginx-2", BRIDGE), ("nginx-3", INNER)}
        and not everyone.failures,
        "Cluster: all three pods answer, all see a masqueraded sender",
    )

    stage.show.command("kubectl apply -f manifests/07-node-port-local")
    stage.apply("07-node-port-local")
    stage.await_rule("-j KUBE-SVL-")
    local, way = stage.watch(lambda: client.http(NODE, PORT, n=90, concurrency=4))
    stage.show.say(f"{NODE}:{PORT} from 192.168.77.2, externalTrafficPolicy Local:")
    stage.show.way(way, "PREROUTING")
    _show(stage, local.answers)
    stage.check(
        {(a.pod, a.source) for a in local.answers} == {("nginx-1", "192.168.77.2"), ("nginx-2", "192.168.77.2")}
        and not local.failures,
        "Local: only this node's two pods answer, and they see 192.168.77.2",
    )
    stage.check(way.through("KUBE-MARK-MASQ") == 0, "Local: nothing was masqueraded")
    stage.withdraw("shop-service.yaml", "shop-pods.yaml")
    stage.await_kernel(lambda: not stage.lab.save().find('"default/shop'), "the shop is gone")


def _show(stage: Stage, answers: list[Answer]) -> None:
    found = sorted({(answer.pod, answer.source) for answer in answers})
    count = {pair: sum((answer.pod, answer.source) == pair for answer in answers) for pair in found}
    stage.show.table(["pod", "saw", "times"], [(pod, source, str(n)) for (pod, source), n in count.items()])
