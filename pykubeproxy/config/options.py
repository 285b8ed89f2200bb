"""Options: everything the daemon can be told, as frozen values.

Two ways lead here (a KubeProxyConfiguration document, or flags) and both end in this one form, so that nothing behind
it knows which was used. Defaults are those of kube-proxy 1.36 (pkg/proxy/apis/config/v1alpha1/defaults.go). Durations
are float seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

DetectLocalMode = Literal["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"]
BackendChoice = Literal["auto", "legacy", "nft"]
DispatchChoice = Literal["auto", "flat", "tree"]


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How the API server is reached."""

    kubeconfig: str = ""
    master: str = ""
    qps: float = 5.0
    burst: int = 10
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    """Both content types are read and written back; answers are always asked for as JSON."""


@dataclass(frozen=True, slots=True)
class IptablesOptions:
    """The iptables group of the configuration."""

    masquerade_bit: int = 14
    """Bit of the packet mark that means "masquerade me", 0..31."""
    masquerade_all: bool = False
    localhost_nodeports: bool = True
    """Whether node ports answer on 127.0.0.1 (IPv4 only; needs route_localnet)."""
    sync_period: float = 30.0
    """Seconds between verifications of the kernel's rules."""
    min_sync_period: float = 1.0
    """Seconds that two syncs are at least apart."""


@dataclass(frozen=True, slots=True)
class ConntrackOptions:
    """The conntrack group. None means "leave the sysctl alone"."""

    max_per_core: int = 32768
    min: int = 131072
    tcp_established_timeout: float | None = 86400.0
    tcp_close_wait_timeout: float | None = 3600.0
    tcp_be_liberal: bool = False
    udp_timeout: float = 0.0
    udp_stream_timeout: float = 0.0


@dataclass(frozen=True, slots=True)
class LoggingOptions:
    """format: ``text`` (console) or ``json``; "" picks console on a terminal and JSON elsewhere."""

    format: str = ""
    verbosity: int = 0
    flush_frequency: float = 5.0
    """Read and written back; nothing is buffered here."""
    vmodule: tuple[tuple[str, int], ...] = ()
    """Pairs of file pattern and verbosity, read and written back: the patterns name kube-proxy's own files."""


@dataclass(frozen=True, slots=True)
class Options:
    """All options of the daemon."""

    client: ClientOptions = field(default_factory=ClientOptions)
    iptables: IptablesOptions = field(default_factory=IptablesOptions)
    conntrack: ConntrackOptions = field(default_factory=ConntrackOptions)
    logging: LoggingOptions = field(default_factory=LoggingOptions)
    mode: str = "iptables"
    hostname_override: str = ""
    bind_address: str = "0.0.0.0"  # noqa: S104 - kube-proxy's default; only chooses the family, nothing binds to it
    healthz_bind_address: str = "0.0.0.0:10256"
    """host:port; "" switches the server off (flags only)."""
    metrics_bind_address: str = "127.0.0.1:10249"
    bind_address_hard_fail: bool = False
    profiling: bool = False
    detect_local_mode: DetectLocalMode = "ClusterCIDR"
    bridge_interface: str = ""
    interface_name_prefix: str = ""
    cluster_cidrs: tuple[str, ...] = ()
    """At most one of each family, canonical text."""
    nodeport_addresses: tuple[str, ...] = ()
    """CIDRs in canonical text, or the single word ``primary``; empty: all local addresses."""
    oom_score_adj: int | None = -999
    config_sync_period: float = 900.0
    feature_gates: dict[str, bool] = field(default_factory=dict)
    show_hidden_metrics_for_version: str = ""
    ipvs: dict[str, object] = field(default_factory=dict)
    """Read and kept only to be written back by --write-config-to and /configz; keys are the document's."""
    unused: dict[str, object] = field(default_factory=dict)
    """What else is only written back (nftables, winkernel, log streams), by path in the document."""
    # What kube-proxy does not have:
    manifests: tuple[str, ...] = ()
    """Files or folders that take the API server's place."""
    iptables_backend: BackendChoice = "auto"
    service_dispatch: DispatchChoice = "auto"
    assume_nfacct: bool = False
    strict_source_ranges: bool = False
    """Close a load balancer address whose source ranges all belong to the other family (kube-proxy leaves it open)."""
    connection_metrics: bool = False
    connection_metrics_period: float = 10.0
    """Least seconds between two readings of the rules' counters."""
    status_page: bool = False
