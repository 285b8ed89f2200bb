"""The take-over in the laboratory: the traffic that must not notice, and what must be true of the rules."""

from __future__ import annotations

from collections.abc import Callable

from e2e.lab import takeover
from e2e.lab.checks import await_that, service
from e2e.lab.site import CLIENT, LabSite, Replies

FAILED = "kubeproxy_sync_proxy_rules_iptables_restore_failures_total"
TREE = ("KUBE-SVC-IP-", "KUBE-SVC-NP-")
FILLERS = 60
"""Other services, so that the tree has something to branch for."""


class _Watched:
    """The site, with a look at the rules after each exchange."""

    def __init__(self, site: LabSite, found: list[str]) -> None:
        self._site = site
        self._found = found

    def __getattr__(self, name: str) -> object:
        return getattr(self._site, name)

    def take_over(self) -> None:
        self._failed()
        self._site.take_over()
        if not self._tree():
            self._found.append("our daemon runs with the tree, but there are no chains of it")

    def give_back(self) -> None:
        self._failed()
        self._site.give_back()
        self._found += await_that(lambda: not self._tree(), "kube-proxy removes the tree's chains as stale")

    def _failed(self) -> None:
        failed = self._site.metric(FAILED)
        if failed:
            self._found.append(f"{failed:g} restores failed:\n{self._site.last_words()}")

    def _tree(self) -> list[str]:
        return [chain for chain in self._site.chains() if chain.startswith(TREE)]


def swap(site: LabSite, tell: Callable[[str], None] = lambda _: None) -> list[str]:
    """Start kube-proxy, then take over and give back twice under new and long TCP connections and UDP flows."""
    found: list[str] = []
    site.deploy("web", 2)
    for number in range(FILLERS):
        site.expose(service(f"filler-{number}", "web"))
    made = site.expose(service("web", "web", type="NodePort"))
    address = made["spec"]["clusterIP"]
    node_port = next(port["nodePort"] for port in made["spec"]["ports"] if port["name"] == "http")
    site.give_back()
    node = site.node_address("")
    pods = set(site.addresses("web"))

    def ready(told: Replies) -> bool:
        return set(told.pods) == pods and not told.failures

    found += await_that(lambda: ready(site.ask(CLIENT, address, 80, n=20)), "kube-proxy serves the cluster address")
    found += await_that(lambda: ready(site.ask("outside", node, node_port, n=20)), "kube-proxy serves the node port")
    if found:
        return found
    loads: dict[str, takeover.Ongoing] = {
        "new connections, pod → service": site.load(CLIENT, address, 80),
        "new connections, outside → node port": site.load("outside", node, node_port),
        "new connections, node → service": site.load("node", address, 80),
        "a long connection, pod → service": site.long_connection(CLIENT, address, 80),
        "a long connection, outside → node port": site.long_connection("outside", node, node_port),
        "a UDP flow, pod → service": site.udp_flow(CLIENT, address, 53),
        "new UDP flows, pod → service": site.udp_load(CLIENT, address, 53),
    }
    found += takeover.run(_Watched(site, found), loads, tell)  # type: ignore[arg-type]
    found += _clean_up(site, address, pods)
    return list(dict.fromkeys(found))


def _clean_up(site: LabSite, address: str, pods: set[str]) -> list[str]:
    """Take over a last time, clean up, and let kube-proxy start on nothing."""
    site.take_over()
    site.stop_proxy()
    site.clean_up()
    left = [chain for chain in site.chains() if chain.startswith("KUBE-") and chain != "KUBE-FIREWALL"]
    found = [f"--cleanup left {sorted(left)}"] if left else []
    site.give_back()
    found += await_that(
        lambda: set(site.ask(CLIENT, address, 80, n=20).pods) == pods, "kube-proxy serves again after --cleanup"
    )
    failed = site.metric(FAILED)
    if failed:
        found.append(f"{failed:g} restores of kube-proxy failed after --cleanup")
    site.stop_proxy()
    return found
