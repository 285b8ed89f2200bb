"""A service without endpoints says no at once instead of nothing at all."""

from __future__ import annotations

from e2e.demo.stage import Stage
from e2e.netlab import Traffic

TITLE = "A service without endpoints: refused at once"
ADDRESS, NODE, PORT = "10.101.0.9", "192.168.77.1", 30090


def run(stage: Stage) -> None:
    """Ask from everywhere, over both protocols; then let the first pod come."""
    stage.show.command("kubectl apply -f manifests/09-no-endpoints")
    stage.apply("09-no-endpoints")
    stage.await_rule('"default/orphan:web has no endpoints"', "-j REJECT", table="filter")
    curl, client, node = stage.curl, stage.lab.client, stage.lab.node
    attempts: list[tuple[str, str, Traffic]] = [
        ("pod curl", f"{ADDRESS}:80 TCP", curl.http(ADDRESS, 80, n=5)),
        ("pod curl", f"{ADDRESS}:53 UDP", curl.udp(ADDRESS, 53, n=5)),
        ("node", f"{ADDRESS}:80 TCP", node.http(ADDRESS, 80, n=5)),
        ("outside client", f"{ADDRESS}:80 TCP", client.http(ADDRESS, 80, n=5)),
        ("outside client", f"{NODE}:{PORT} TCP", client.http(NODE, PORT, n=5)),
        ("outside client", f"{NODE}:{PORT} UDP", client.udp(NODE, PORT, n=5)),
    ]
    control = curl.http("10.101.0.99", 80, timeout=0.5)
    stage.show.table(
        ["who asked", "what", "outcome", "after"],
        [
            (
                who,
                what,
                traffic.verdict(),
                f"{max(f.latency for f in traffic.failures):.1f} ms" if traffic.failures else "",
            )
            for who, what, traffic in [*attempts, ("pod curl", "10.101.0.99:80, no service", control)]
        ],
    )
    stage.check(
        all(traffic.verdict() == "refused" for _, _, traffic in attempts), "refused, from everywhere, each time"
    )
    stage.check(control.verdict() == "timeout", "control: an address of no service at all gives no answer")

    stage.apply_and_await("09-first-endpoint", "default/orphan:web", ["10.244.2.13:80"])
    stage.await_kernel(
        lambda: not stage.lab.save().find('"default/orphan:', "-j REJECT", table="filter"), "no REJECT any more"
    )
    stage.check(curl.http(ADDRESS, 80).pods == {"nginx-1": 1}, "its first pod comes: it answers over TCP")
    stage.check(curl.udp(ADDRESS, 53).pods == {"nginx-1": 1}, "and over UDP")
    stage.withdraw("orphan-service.yaml", "orphan-pods.yaml")
    stage.await_kernel(lambda: not stage.lab.save().find('"default/orphan'), "the orphan is gone")
