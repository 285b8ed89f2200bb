"""Whose rule is it: ours or kube-proxy's, or another program's. Judged by names alone; pure."""

from __future__ import annotations

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
