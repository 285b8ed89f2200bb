"""A node whose rules somebody else changes: a small cluster, foreign rules, and what is compared before and after."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

from pykubeproxy.model.service import ServicePortName
from pykubeproxy.netfilter.read import parse
from pykubeproxy.netfilter.suspects import JUMP_PLACES
from pykubeproxy.rules.base import ensured_rules
from pykubeproxy.rules.names import FIREWALL, TABLES, PortChains, is_ours
from pykubeproxy.rules.settings import RuleSettings
from tests.support.node import NODE, TestNode, endpoint_slice, eventually, node, pod, service

BACKENDS = ["nft", "legacy"]
FAMILIES = ["IPv4", "IPv6"]
OUR_TARGETS = {rule.rule.rpartition(" ")[2] for rule in ensured_rules(RuleSettings("IPv4")) if rule.at_top}
NEVER = ["--iptables-sync-period", "1h"]
"""So that only a notice can lead to healing."""

WEB = PortChains(ServicePortName("default", "web", "http", "TCP"))

FOREIGN = """*nat
:CNI-HOSTPORT-DNAT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
-A CNI-HOSTPORT-DNAT -p tcp -m tcp --dport 8443 -j ACCEPT
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -o cni0 -j MASQUERADE
COMMIT
*filter
:DOCKER-USER - [0:0]
-A DOCKER-USER -j RETURN
-A FORWARD -j DOCKER-USER
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
COMMIT
*mangle
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-IPTABLES-HINT - [0:0]
-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
COMMIT
"""
"""What a CNI plugin, Docker, kubelet and an admin may have there."""


def small_cluster() -> list[dict[str, Any]]:
    """Return a dual-stack service with endpoints of both families, one on a node port, and one without endpoints."""
    both = {
        "clusterIPs": ["10.96.0.1", "fd00:10:96::1"],
        "ipFamilies": ["IPv4", "IPv6"],
        "ipFamilyPolicy": "RequireDualStack",
    }
    web = service(0, name="web", **both)
    v4 = endpoint_slice(0, [pod(0, i) for i in range(3)], name="web")
    v6 = endpoint_slice(0, ["fd00:10:244::5", "fd00:10:244::6"], name="web", addressType="IPv6")
    v6["metadata"]["name"] = "web-six"
    outside = service(1, name="outside", type="NodePort")
    outside["spec"]["ports"][0]["nodePort"] = 30080
    return [NODE, web, v4, v6, outside, endpoint_slice(1, [pod(1, 0)], name="outside"), service(2, name="idle")]


@contextlib.contextmanager
def running(backend: str, *more: str, foreign: str = FOREIGN, env: dict[str, str] | None = None) -> Iterator[TestNode]:
    """Run the daemon on the small cluster; ``more`` are flags."""
    with node(backend) as it:
        for family in FAMILIES if foreign else ():
            restore(it, family, foreign)
        it.api.bulk_put(small_cluster())
        it.start("-v", "4", *(more or NEVER), env=env)
        it.wait_ready()
        eventually(lambda: len(synced(it)) >= 2, "both families' first sync")
        yield it


def stem(it: TestNode, family: str) -> str:
    return ("ip6tables-" if family == "IPv6" else "iptables-") + it.backend


def restore(it: TestNode, family: str, document: str, *, flush: bool = False) -> None:
    """Write as another program does, with the common lock."""
    wait = ["-w", "30"] if it.backend == "legacy" else []
    it.run(f"{stem(it, family)}-restore", *wait, *([] if flush else ["--noflush"]), stdin=document)


def iptables(it: TestNode, family: str, *words: str) -> str:
    wait = ["-w", "30"] if it.backend == "legacy" else []
    return it.run(stem(it, family), *wait, *words)


def standing(it: TestNode, family: str) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], list[str]]]:
    """Return our chains, and our rules in chains that are not ours: in their order, each for each time it stands."""
    chains: dict[tuple[str, str], str] = {}
    jumps: dict[tuple[str, str], list[str]] = {}
    for table in TABLES:
        saved = parse(it.save(family, table)).get(table)
        for chain, text in saved.chains.items() if saved is not None else ():
            if is_ours(table, chain):
                chains[table, chain] = text
            elif (table, chain) in JUMP_PLACES or chain == FIREWALL:
                jumps[table, chain] = [line for line in text.splitlines() if is_our_rule(chain, line)]
    return chains, jumps


def is_our_rule(chain: str, line: str) -> bool:
    return chain == FIREWALL or line.rpartition(" ")[2] in OUR_TARGETS


def everything(it: TestNode, *, in_order: bool = True) -> dict[str, Any]:
    """Return what is ours. Not ``in_order`` where a single jump was put back: on top, as kube-proxy puts it."""
    found = {family: standing(it, family) for family in FAMILIES}
    if not in_order:
        return {f: (chains, {k: sorted(v) for k, v in jumps.items()}) for f, (chains, jumps) in found.items()}
    return found


def foreign_rules(it: TestNode, family: str = "IPv4") -> dict[tuple[str, str], list[str]]:
    """Return what is not ours: other chains, and other rules in the builtin chains."""
    found: dict[tuple[str, str], list[str]] = {}
    for table in TABLES:
        saved = parse(it.save(family, table)).get(table)
        for chain, text in saved.chains.items() if saved is not None else ():
            if not is_ours(table, chain) and chain != FIREWALL:
                lines = [line for line in text.splitlines() if not is_our_rule(chain, line)]
                if lines or chain not in ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"):
                    found[table, chain] = lines
    return found


def words(it: TestNode, event: str, **fields: Any) -> list[dict[str, Any]]:
    """Return the log lines of one event."""
    lines = [json.loads(line) for line in it.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("event") == event and fields.items() <= line.items()]


def synced(it: TestNode, **fields: Any) -> list[dict[str, Any]]:
    return words(it, "synced", **fields)


def restores(it: TestNode, family: str = "IPv4") -> int:
    return int(it.metric(f'pykubeproxy_restores_total{{ip_family="{family}",result="success"}}'))


def healed(it: TestNode, table: str, family: str = "IPv4") -> float:
    return it.metric(f'pykubeproxy_drift_healed_total{{ip_family="{family}",table="{table}"}}')


def detected(it: TestNode, table: str, family: str = "IPv4") -> float:
    return it.metric(f'pykubeproxy_drift_detected_total{{ip_family="{family}",table="{table}"}}')


def change(it: TestNode, number: int) -> str:
    """Give the service ``idle`` another endpoint through the API, wait until it stands; return its chain."""
    address = f"10.251.{number // 250}.{number % 250 + 1}"
    it.api.put(endpoint_slice(2, [address], name="idle"))
    chain = PortChains(ServicePortName("default", "idle", "http", "TCP")).endpoint(f"{address}:8080")
    eventually(lambda: chain in it.save(), f"the chain of {address}")
    return chain


def first_rule(text: str) -> str:
    """Return the text behind ``-A CHAIN `` of a chain's first rule."""
    return re.sub(r"^-A \S+ ", "", text.splitlines()[0])
