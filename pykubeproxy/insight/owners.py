"""Whose rule is it: ours or kube-proxy's, another program's, and which Service's. Judged by names alone; pure."""

from __future__ import annotations

import re

from pykubeproxy.rules.names import BUILTIN, FIREWALL, is_ours

_PROGRAMS: tuple[tuple[str, str], ...] = (
    ("KUBE-KUBELET-", "kubelet"),
    ("KUBE-IPTABLES-HINT", "kubelet"),
    ("KUBE-FIREWALL", "kubelet and this program"),
    ("KUBE-NWPLCY-", "kube-router"),
    ("KUBE-POD-FW-", "kube-router"),
    ("KUBE-ROUTER-", "kube-router"),
    ("KUBE-", "kube-proxy"),
    ("cali-", "Calico"),
    ("cali:", "Calico"),
    ("CILIUM_", "Cilium"),
    ("OLD_CILIUM_", "Cilium"),
    ("FLANNEL-", "flannel"),
    ("CNI-", "a CNI plugin"),
    ("WEAVE", "Weave Net"),
    ("ANTREA-", "Antrea"),
    ("ISTIO_", "Istio"),
    ("PROXY_INIT_", "Linkerd"),
    ("AWS-", "the AWS VPC CNI"),
    ("IP-MASQ", "ip-masq-agent"),
    ("DOCKER", "Docker"),
    ("NETAVARK", "Podman"),
    ("LIBVIRT_", "libvirt"),
    ("ufw", "ufw"),
    ("f2b-", "fail2ban"),
    ("ts-", "Tailscale"),
    ("firewalld", "firewalld"),
    ("inet firewalld", "firewalld"),
    ("inet netavark", "Podman"),
)
_SERVICE = re.compile(r'--comment "?([a-z0-9][-a-z0-9.]*/[a-z0-9][-a-z0-9.]*(?::[a-z0-9][-a-z0-9.]*)?)')
_SERVICE_IN_WORDS = re.compile(
    r'--comment "(?:(?:masquerade|route) (?:traffic|LOCAL traffic) for|pod traffic for|other traffic to) '
    r"([a-z0-9][-a-z0-9.]*/[a-z0-9][-a-z0-9.]*(?::[a-z0-9][-a-z0-9.]*)?) "
)


def program_of(table: str, chain: str, text: str = "") -> str:
    """Return the name of the other program that a rule belongs to; "" for rules of ours or of kube-proxy.

    A rule in a builtin chain is judged by where it jumps. "another program" is one that the name does not give away.
    """
    target = text.rpartition("-j ")[2].split(" ")[0] if "-j " in text else ""
    if is_ours(table, chain) or (chain in BUILTIN and target and (is_ours(table, target) or target == FIREWALL)):
        return ""
    if chain == FIREWALL and table == "filter":
        return ""
    names = (table, target, chain) if chain in BUILTIN else (table, chain)
    for name in names:
        for prefix, program in _PROGRAMS:
            if name.startswith(prefix):
                return program
    return "another program"


def service_of(text: str) -> str:
    """Return the ``namespace/name[:port]`` that a rule's or chain's comments name first, "" where none does."""
    found = _SERVICE.search(text) or _SERVICE_IN_WORDS.search(text)
    return found[1] if found is not None else ""
