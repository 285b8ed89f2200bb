"""A pod reaches itself through its own service."""

from __future__ import annotations

from e2e.demo.stage import BRIDGE, NGINX, Stage

TITLE = "A pod that reaches itself through its own service"


def run(stage: Stage) -> None:
    """See it masqueraded: else the pod would get a packet from itself and drop it."""
    pod = stage.nginx[0]
    stage.show.command(f"curl http://{NGINX}/            (in pod nginx-1, the only one behind it)")
    traffic, way = stage.watch(lambda: pod.http(NGINX, 80))
    stage.show.way(way, "PREROUTING")
    stage.check(traffic.pods == {"nginx-1": 1}, "nginx-1 answered itself")
    stage.check(
        traffic.sources == {BRIDGE: 1} and way.matched("-j MASQUERADE", "service traffic requiring SNAT") == 1,
        f"masqueraded: it saw the bridge's address {BRIDGE}, not its own",
    )
    stage.lab.node.run(["ip", "link", "set", pod.port, "type", "bridge_slave", "hairpin", "off"])
    without = pod.http(NGINX, 80, timeout=0.5)
    stage.lab.node.run(["ip", "link", "set", pod.port, "type", "bridge_slave", "hairpin", "on"])
    stage.check(not without.answers, "control: with hairpin mode off at the bridge port (the CNI's part) it fails")
    stage.check(pod.http(NGINX, 80).pods == {"nginx-1": 1}, "control: with hairpin mode on it works again")
