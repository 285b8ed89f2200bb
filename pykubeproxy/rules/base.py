"""The rules that stand whatever the services are: jumps, masquerading, forwarding, the localnet guard.

Where the kernel lacks a match they do without it as far as that keeps their meaning; what cannot be said is left out.

Texts are kube-proxy's (pkg/proxy/iptables/proxier.go, iptablesJumpChains and syncProxyRules) in iptables-save's words.
"""

from __future__ import annotations

from pykubeproxy.model.addresses import Family, host
from pykubeproxy.rules.names import (
    CANARY,
    EXTERNAL_SERVICES,
    FILTER,
    FIREWALL,
    FORWARD,
    MANGLE,
    MARK_MASQ,
    NAT,
    NODEPORTS,
    POSTROUTING,
    PROXY_FIREWALL,
    SERVICES,
)
from pykubeproxy.rules.ruleset import Ensured, chain_text
from pykubeproxy.rules.settings import RuleSettings

INVALID_COUNTER = "ct_state_invalid_dropped_pkts"
LOCALHOST_COUNTER = "localhost_nps_accepted_pkts"
"""Names of kube-proxy's nfacct objects."""

_NEW = "-m conntrack --ctstate NEW "
_JUMPS: tuple[tuple[str, str, str, str, str], ...] = (
    (FILTER, EXTERNAL_SERVICES, "INPUT", "kubernetes externally-visible service portals", _NEW),
    (FILTER, EXTERNAL_SERVICES, "FORWARD", "kubernetes externally-visible service portals", _NEW),
    (FILTER, NODEPORTS, "INPUT", "kubernetes health check service ports", ""),
    (FILTER, SERVICES, "FORWARD", "kubernetes service portals", _NEW),
    (FILTER, SERVICES, "OUTPUT", "kubernetes service portals", _NEW),
    (FILTER, FORWARD, "FORWARD", "kubernetes forwarding rules", ""),
    (FILTER, PROXY_FIREWALL, "INPUT", "kubernetes load balancer firewall", _NEW),
    (FILTER, PROXY_FIREWALL, "OUTPUT", "kubernetes load balancer firewall", _NEW),
    (FILTER, PROXY_FIREWALL, "FORWARD", "kubernetes load balancer firewall", _NEW),
    (NAT, SERVICES, "OUTPUT", "kubernetes service portals", ""),
    (NAT, SERVICES, "PREROUTING", "kubernetes service portals", ""),
    (NAT, POSTROUTING, "POSTROUTING", "kubernetes postrouting rules", ""),
    (FILTER, FIREWALL, "INPUT", "", ""),
    (FILTER, FIREWALL, "OUTPUT", "", ""),
)
"""(table, our chain, builtin chain, comment, match), each prepended in this order."""

GUARD = "! -s 127.0.0.0/8 -d 127.0.0.0/8 {comment}-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"
"""Keeps neighbours off 127.0.0.1 while route_localnet is on (CVE-2020-8558). kubelet writes the same rule."""
GUARD_COMMENT = "block incoming localnet connections"


def comment(text: str, settings: RuleSettings) -> str:
    """Return the comment match, with a trailing blank, or "" where the kernel has none. 255 characters at most."""
    return f'-m comment --comment "{text[:255]}" ' if settings.comments else ""


def ensured_rules(settings: RuleSettings) -> tuple[Ensured, ...]:
    """Return the rules that stand in chains that are not ours, in the order of their insertion."""
    rules = []
    for table, chain, builtin, text, match in _JUMPS:
        note = comment(text, settings) if text else ""
        # Looking at new connections only spares work; what the chains behind it do does not depend on it.
        asked = "" if "conntrack" in settings.missing else match
        rules.append(Ensured(table, builtin, f"{asked}{note}-j {chain}"))
    if settings.family == "IPv4" and settings.localhost_nodeports and "conntrack" not in settings.missing:
        note = comment(GUARD_COMMENT, settings)
        rules.append(Ensured(FILTER, FIREWALL, GUARD.format(comment=note), at_top=False))
    return tuple(rules)


def known_by(family: Family, table: str, chain: str) -> dict[str, str]:
    """Return our rules in a chain that is not ours by what tells them where it cannot be printed: their targets."""
    return {
        rule.rule.rpartition(" ")[2]: f"-A {chain} {rule.rule}\n"
        for rule in ensured_rules(RuleSettings(family))
        if rule.table == table and rule.chain == chain
    }


def jump_pattern() -> dict[str, frozenset[str]]:
    """Return, by table, the chains that our jumps in builtin chains lead to (for clean-up by value)."""
    found: dict[str, set[str]] = {}
    for table, chain, _, _, _ in _JUMPS:
        if chain != FIREWALL:
            found.setdefault(table, set()).add(chain)
    return {table: frozenset(chains) for table, chains in found.items()}


def static_chains(settings: RuleSettings) -> dict[str, dict[str, str]]:
    """Return the chains of ours that do not depend on services, as texts by table and name."""
    mark = settings.mark
    accounting = f"-m nfacct --nfacct-name  {INVALID_COUNTER} " if settings.nfacct else ""
    forward = [f"{comment('kubernetes forwarding rules', settings)}-m mark --mark {mark}/{mark} -j ACCEPT"]
    if "conntrack" not in settings.missing:
        note = comment("kubernetes forwarding conntrack rule", settings)
        forward.append(f"{note}-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
    if not settings.tcp_be_liberal and "conntrack" not in settings.missing:
        forward.insert(0, f"-m conntrack --ctstate INVALID {accounting}-j DROP")
    masquerade = comment("kubernetes service traffic requiring SNAT", settings) + "-j MASQUERADE"
    postrouting = [
        f"-m mark ! --mark {mark}/{mark} -j RETURN",
        f"-j MARK --set-xmark {mark}/0x0",
        masquerade + (" --random-fully" if settings.random_fully else ""),
    ]
    return {
        MANGLE: {CANARY: ""},
        FILTER: {CANARY: "", FORWARD: chain_text(FORWARD, forward)},
        NAT: {
            CANARY: "",
            POSTROUTING: chain_text(POSTROUTING, postrouting),
            MARK_MASQ: chain_text(MARK_MASQ, [f"-j MARK --set-xmark {mark}/{mark}"]),
        },
    }


def nodeport_jumps(settings: RuleSettings) -> tuple[str, ...]:
    """Return the rules that end KUBE-SERVICES in nat: the way to the node ports."""
    note = comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain", settings)
    if settings.nodeport_addresses is None:
        if "addrtype" in settings.missing:
            return ()
        excluded = ""
        if settings.family == "IPv6":
            excluded = "! -d ::1/128 "
        elif not settings.localhost_nodeports:
            excluded = "! -d 127.0.0.0/8 "
        return (f"{excluded}{note}-m addrtype --dst-type LOCAL -j {NODEPORTS}",)
    return tuple(
        f"-d {host(address)} {note}-j {NODEPORTS}"
        for address in settings.nodeport_addresses
        if not (_is_loopback(address) and (settings.family == "IPv6" or not settings.localhost_nodeports))
    )


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")
