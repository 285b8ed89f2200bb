"""The proxy stops and comes back: nobody notices."""

from __future__ import annotations

import signal

from e2e.demo.stage import NGINX, PODS, Stage
from e2e.netlab import Process, Snapshot, Soak, Traffic, wait_for

TITLE = "SIGTERM and restart: rules stay, traffic goes on, nothing is restored"
NODE, PORT = "192.168.77.1", 30080


def run(stage: Stage) -> None:
    """Stop and start the proxy under traffic and look at the kernel's own record of writes."""
    stage.apply_and_await("07-node-port", "default/shop", [f"{ip}:80" for ip in PODS.values()])
    stage.await_rule(f"--dport {PORT} -j KUBE-EXT-")
    soaks = {
        f"pod curl → {NGINX}:80": stage.curl.soak_http(NGINX, 80, interval=0.01, timeout=5),
        f"outside → {NODE}:{PORT}": stage.lab.client.soak_http(NODE, PORT, interval=0.01, timeout=5),
    }
    held = stage.curl.connect(NGINX, 80)
    _more(soaks)
    monitor = Monitor(stage)
    before = {family: stage.lab.save(family) for family in (4, 6)}
    calls = len(stage.proxy.restore_calls())

    stage.show.command(f"kill {stage.proxy.pid}")
    status = stage.proxy.stop(signal.SIGTERM)
    _more(soaks)
    stopped = {family: stage.lab.save(family) for family in (4, 6)}
    stage.check(status == 0, f"SIGTERM: it ended with status {status}")
    stage.check(
        all(before[family].canonical() == stopped[family].canonical() for family in (4, 6)), "every rule still stands"
    )
    stage.show.command("pykubeproxy …                     (the same command line again)")
    stage.proxy.start()
    stage.proxy.wait_synced()
    _more(soaks)
    after = {family: stage.lab.save(family) for family in (4, 6)}
    written = stage.proxy.restore_calls()[calls:]
    noticed = monitor.changes()
    stage.check(
        all(before[family].canonical() == after[family].canonical() for family in (4, 6)),
        "after the restart: the same rules",
    )
    stage.check(not written, f"it ran no iptables-restore{': ' + '; '.join(written) if written else ''}")
    stage.check(
        all(_counters_grew(before[family], after[family]) for family in (4, 6)), "no rule's counter went back to zero"
    )
    if stage.lab.backend == "nft":
        stage.check(not noticed, f"nft monitor saw no change{': ' + noticed[0] if noticed else ''}")

    stage.apply_and_await("03-three-pods", "default/nginx-svc", [f"{ip}:80" for ip in PODS.values()])
    stage.check(
        len(stage.proxy.restore_calls()) > calls and (stage.lab.backend != "nft" or monitor.changes()),
        "control: a change of a service is seen by the same instruments",
    )
    _more(soaks)
    answer = held.ask()
    stage.check(answer.get("answer", {}).get("pod") == "nginx-1", "a connection that was open all the time still is")
    ended = {name: soak.stop() for name, soak in soaks.items()}
    stage.show.table(
        ["traffic meanwhile", "connections", "failed", "delayed"],
        [(name, str(t.started), str(len(t.failures)), str(len(t.delayed))) for name, t in ended.items()],
    )
    stage.check(all(_is_clean(traffic) for traffic in ended.values()), "not one connection failed or lost a packet")
    held.close()
    monitor.close()
    stage.withdraw("shop-service.yaml", "shop-pods.yaml")
    stage.apply_and_await("00-cluster", "default/nginx-svc", [f"{PODS['nginx-1']}:80"])
    stage.await_kernel(lambda: not stage.lab.save().find('"default/shop'), "the shop is gone")


def _more(soaks: dict[str, Soak]) -> None:
    """Wait until every soak has made fifty more attempts than now."""
    goals = {name: soak.so_far().started + 50 for name, soak in soaks.items()}
    wait_for(lambda: all(soak.so_far().started >= goals[name] for name, soak in soaks.items()), "traffic to go on")


def _is_clean(traffic: Traffic) -> bool:
    return bool(traffic.answers) and not traffic.failures and not traffic.delayed


def _counters_grew(before: Snapshot, after: Snapshot) -> bool:
    """Tell whether no rule counts less than it did: a chain that is written anew starts from zero."""
    now: dict[tuple[str, str, str], int] = {}
    for table, chain, rule in after.rules():
        now[table, chain, rule.text] = max(now.get((table, chain, rule.text), 0), rule.packets)
    return all(now.get((table, chain, rule.text), -1) >= rule.packets for table, chain, rule in before.rules())


class Monitor:
    """``nft monitor`` in the node: the kernel's own record of changes. It sees nothing of legacy tables."""

    def __init__(self, stage: Stage) -> None:
        self._node = stage.lab.node
        self._process: Process = self._node.spawn(["nft", "monitor"])
        self._marks = 0
        self._read = 0
        wait_for(self._mark_is_seen, "nft monitor to listen")

    def changes(self) -> list[str]:
        """Return the changes since the last call."""
        wait_for(self._mark_is_seen, "nft monitor to catch up")
        lines = self._process.output().splitlines()
        fresh, self._read = lines[self._read :], len(lines)
        return [line for line in fresh if "pkp-mark" not in line and not line.startswith("#")]

    def close(self) -> None:
        """End it."""
        self._process.signal()

    def _mark_is_seen(self) -> bool:
        """Make a change of our own, and look for it."""
        self._marks += 1
        name = f"pkp-mark-{self._marks}"
        self._node.run(["nft", f"add table ip6 {name}; delete table ip6 {name}; add table ip6 {name}"])
        self._node.run(["nft", f"delete table ip6 {name}"])
        return f"delete table ip6 {name}" in self._process.output()
