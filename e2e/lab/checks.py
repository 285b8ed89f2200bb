"""What must hold on any cluster that this daemon serves: the demo's promises, asked of real objects.

Each check takes a Site, makes what it needs, awaits it, and returns complaints; none is good. It cleans up behind
itself. A check knows nothing of how the cluster is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from e2e.lab.site import CLIENT, HTTP, UDP, Replies, Site

Json = dict[str, Any]
PATIENCE = 60.0
SPREAD = 150
LEAST, MOST = 0.18, 0.50
"""Bounds of one pod's share of three in SPREAD attempts: six standard deviations on both sides of a third."""


def service(name: str, app: str, **spec: Any) -> Json:
    """Build a Service of HTTP on port 80 and UDP on port 53 for an application."""
    ports = [
        {"name": "http", "port": 80, "targetPort": HTTP, "protocol": "TCP"},
        {"name": "udp", "port": 53, "targetPort": UDP, "protocol": "UDP"},
    ]
    return {"metadata": {"name": name}, "spec": {"selector": {"app": app}, "ports": ports, **spec}}


def await_that(condition: Callable[[], bool], what: str) -> list[str]:
    """Poll a condition; return a complaint when it does not come true."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > limit:
            return [f"waited {PATIENCE:g} s in vain: {what}"]
        time.sleep(0.1)
    return []


def _reaches(site: Site, place: str, address: str, port: int, pods: Iterable[str], *, udp: bool = False) -> list[str]:
    """Wait until a service leads to exactly these pods."""
    wanted = set(pods)

    def settled() -> bool:
        told = site.ask(place, address, port, n=max(1, 15 * len(wanted)), udp=udp)
        return set(told.pods) == wanted and not told.failures

    return await_that(settled, f"{address}:{port} leads to {', '.join(sorted(wanted))}")


def _expect(told: Replies, *, n: int, pods: Iterable[str], sources: Iterable[str] | None = None) -> list[str]:
    found = []
    if told.answered != n or told.failures:
        found.append(f"{told.answered} of {n} answered; failures: {dict(told.failures)}")
    if set(told.pods) - set(pods):
        found.append(f"answers from {sorted(set(told.pods) - set(pods))}, which are none of its pods")
    if sources is not None and set(told.sources) != set(sources):
        found.append(f"sources seen: {sorted(told.sources)}, expected {sorted(sources)}")
    return found


def cluster_ip(site: Site) -> list[str]:
    """A pod and the node reach a service by its address; the pod's own address is seen."""
    site.deploy("one", 1)
    address = site.expose(service("one", "one"))["spec"]["clusterIP"]
    pods = site.addresses("one")
    found = _reaches(site, CLIENT, address, 80, pods)
    found += _expect(site.ask(CLIENT, address, 80, n=20), n=20, pods=pods, sources=[site.source(CLIENT)])
    found += _expect(site.ask("node", address, 80, n=20), n=20, pods=pods)
    site.withdraw("one")
    return found + _goes(site, address)


def udp(site: Site) -> list[str]:
    """The same by UDP."""
    site.deploy("one", 1)
    address = site.expose(service("datagrams", "one"))["spec"]["clusterIP"]
    found = _reaches(site, CLIENT, address, 53, site.addresses("one"), udp=True)
    found += _expect(site.ask(CLIENT, address, 53, n=20, udp=True), n=20, pods=site.addresses("one"))
    site.withdraw("datagrams")
    return found


def spread(site: Site) -> list[str]:
    """Three pods get a third each; scaled down to one, that one gets all."""
    site.deploy("three", 3)
    address = site.expose(service("three", "three"))["spec"]["clusterIP"]
    pods = site.addresses("three")
    found = _reaches(site, CLIENT, address, 80, pods)
    told = site.ask(CLIENT, address, 80, n=SPREAD)
    found += _expect(told, n=SPREAD, pods=pods)
    shares = {pod: told.pods[pod] / SPREAD for pod in pods}
    found += [f"{pod} got {share:.0%}" for pod, share in shares.items() if not LEAST < share < MOST]
    site.deploy("three", 1)
    found += _reaches(site, CLIENT, address, 80, site.addresses("three"))
    site.withdraw("three")
    return found


def affinity(site: Site) -> list[str]:
    """With session affinity one client stays with one pod."""
    site.deploy("three", 3)
    address = site.expose(service("sticky", "three", sessionAffinity="ClientIP"))["spec"]["clusterIP"]
    found = await_that(lambda: bool(site.ask(CLIENT, address, 80).answered), "the service answers")
    told = site.ask(CLIENT, address, 80, n=30)
    found += _expect(told, n=30, pods=site.addresses("three"))
    if len(told.pods) != 1:
        found.append(f"one client was served by {len(told.pods)} pods")
    site.withdraw("sticky")
    return found


def hairpin(site: Site) -> list[str]:
    """A pod reaches itself through its own service."""
    site.deploy("one", 1)
    address = site.expose(service("self", "one"))["spec"]["clusterIP"]
    (pod,) = site.addresses("one")
    found = _reaches(site, CLIENT, address, 80, [pod])
    found += _expect(site.ask(pod, address, 80, n=10), n=10, pods=[pod])
    site.withdraw("self")
    return found


def node_port(site: Site) -> list[str]:
    """A node port from outside: policy Cluster masquerades, policy Local shows the client's address."""
    site.deploy("one", 1)
    (pod,) = site.addresses("one")
    address = site.node_address(pod)
    port = _node_port(site.expose(service("door", "one", type="NodePort")))
    found = _reaches(site, "outside", address, port, [pod])
    told = site.ask("outside", address, port, n=10)
    found += _expect(told, n=10, pods=[pod])
    if site.source("outside") in told.sources:
        found.append("policy Cluster: the pod saw the client's own address")
    local = site.expose(service("door", "one", type="NodePort", externalTrafficPolicy="Local"))
    port = _node_port(local)

    def shows_the_client() -> bool:
        return set(site.ask("outside", address, port).sources) == {site.source("outside")}

    found += await_that(shows_the_client, "policy Local shows the client's address")
    site.withdraw("door")
    return found


def no_endpoints(site: Site) -> list[str]:
    """A service without endpoints refuses at once, and answers as soon as it has one."""
    site.deploy("late", 0)
    address = site.expose(service("late", "late"))["spec"]["clusterIP"]
    found = await_that(lambda: site.ask(CLIENT, address, 80).failures["refused"] == 1, "the service refuses")
    site.deploy("late", 1)
    found += _reaches(site, CLIENT, address, 80, site.addresses("late"))
    site.deploy("late", 0)
    found += await_that(lambda: site.ask(CLIENT, address, 80).failures["refused"] == 1, "the service refuses again")
    site.withdraw("late")
    return found


def both_families(site: Site) -> list[str]:
    """A service of two IP families answers on both addresses (where the cluster has two)."""
    site.deploy("one", 1)
    spec = site.expose(service("two-stacks", "one", ipFamilyPolicy="PreferDualStack"))["spec"]
    found: list[str] = []
    for address in spec["clusterIPs"]:
        found += _reaches(site, CLIENT, address, 80, site.addresses("one"))
    site.withdraw("two-stacks")
    return found


def restart(site: Site) -> list[str]:
    """The proxy restarts under load: no connection fails."""
    site.deploy("three", 3)
    made = site.expose(service("steady", "three", type="NodePort"))
    address, pods = made["spec"]["clusterIP"], site.addresses("three")
    found = _reaches(site, CLIENT, address, 80, pods)
    outside = site.node_address(next(iter(pods)))
    found += _reaches(site, "outside", outside, _node_port(made), pods)
    loads = [site.load(CLIENT, address, 80), site.load("outside", outside, _node_port(made))]
    site.restart_proxy()
    for number, load in enumerate(loads):
        told = load.stop()
        if told.failures or not told.answered:
            found.append(f"load {number}: {told.answered} answered, failures: {dict(told.failures)}")
    site.withdraw("steady")
    return found


CHECKS: dict[str, Callable[[Site], list[str]]] = {
    "a service's address": cluster_ip,
    "UDP": udp,
    "three pods": spread,
    "session affinity": affinity,
    "a pod asks itself": hairpin,
    "node port": node_port,
    "no endpoints": no_endpoints,
    "two IP families": both_families,
    "restart under load": restart,
}


def _node_port(made: Json) -> int:
    return int(next(port["nodePort"] for port in made["spec"]["ports"] if port["name"] == "http"))


def _goes(site: Site, address: str) -> list[str]:
    return await_that(lambda: not site.ask(CLIENT, address, 80).answered, f"{address} no longer answers")
