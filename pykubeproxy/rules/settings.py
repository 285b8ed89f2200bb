"""Everything besides Services and EndpointSlices that rule text depends on, for one IP family, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass

from pykubeproxy.model.addresses import Family
from pykubeproxy.model.topology import Placement

LARGE_CLUSTER_ENDPOINTS = 1000
"""Above this many endpoints (counted per service port) per-endpoint rules carry no comments, as in kube-proxy."""


NOWHERE = Placement("")
"""No node name: nothing is local."""


@dataclass(frozen=True, slots=True)
class LocalDetector:
    """How "from a pod of this cluster" is told: by source network or by incoming interface. Exactly one field is set.

    ``interface`` is as iptables takes it: a trailing ``+`` matches every name that begins so.
    """

    network: str = ""
    interface: str = ""


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """The settings of one IP family."""

    family: Family
    here: Placement = NOWHERE
    node_ip: str = ""
    """The node's own address of this family; the loopback address when it has none (kube-proxy does the same)."""
    masquerade_bit: int = 14
    masquerade_all: bool = False
    local_detector: LocalDetector | None = None
    """None: local traffic cannot be told, so nothing is masqueraded for being off-cluster."""
    localhost_nodeports: bool = True
    """Effective value: the option, and 127.0.0.0/8 lies within the node port addresses. Meaningless in IPv6."""
    nodeport_addresses: tuple[str, ...] | None = None
    """Addresses that node ports answer on; None means every local one."""
    tcp_be_liberal: bool = False
    """net.netfilter.nf_conntrack_tcp_be_liberal: out-of-window packets are not INVALID, so none are dropped."""
    random_fully: bool = True
    """MASQUERADE --random-fully (iptables 1.6.2)."""
    comments: bool = True
    """Whether the kernel has the comment match."""
    missing: frozenset[str] = frozenset()
    """Other matches that the kernel lacks: a service that cannot be written without one is left out."""
    nfacct: bool = False
    """Whether rules may carry the nfacct match: the kernel has it and both objects exist."""
    uses_external_ips: bool = True
    """Feature gate AllowServiceExternalIPs."""
    uses_node_hints: bool = True
    """Feature gate PreferSameTrafficDistribution."""
    strict_source_ranges: bool = False

    @property
    def mark(self) -> str:
        """The masquerade mark as iptables prints it."""
        return hex(1 << self.masquerade_bit)
