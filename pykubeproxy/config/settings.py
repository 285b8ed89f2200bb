"""The one table of everything that can be set: where it lies in Options, in the document, on the command line.

Decoding, defaults, bounds, writing back, the flags, what a reload may change and the reference page are all read from
this table, so that they cannot disagree. Its order is that of kube-proxy's own /configz. Default values are not here
but in `options`, except for what is only written back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from pykubeproxy.config import kinds
from pykubeproxy.config.kinds import Kind
from pykubeproxy.config.options import Options

OWN_BLOCK = "pykubeproxy"
"""The document's block of options that kube-proxy does not have."""


class Reload(Enum):
    """What it takes to apply a changed value."""

    LIVE = "live"
    RESTART = "restart"
    NONE = "none"
    """It is only read and written back."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that can be set.

    ``option`` is a path in Options (``iptables.sync_period``; ``ipvs/scheduler`` is a key of the dict ``ipvs``).
    """

    option: str
    document: str
    """Path in the document; "" where only a flag sets it."""
    flag: str
    """Name of the flag; "" where only the document sets it."""
    kind: Kind
    reload: Reload
    effect: str
    """What it does in this program."""
    default: object = None
    """Only of what lives in a dict of Options."""
    zero_is_default: bool = False
    """Whether zero, as absent, means the default in a document. Pointer fields of Go keep an explicit zero."""
    omit_empty: bool = False
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    """The value must be greater than this."""
    is_reported: bool = True
    """Whether a value that has no effect here is worth a log line."""

    @property
    def has_effect(self) -> bool:
        """Whether the value changes anything in this program."""
        return self.reload is not Reload.NONE

    @property
    def is_own(self) -> bool:
        """Whether kube-proxy does not have it; such a flag applies with and without a document."""
        return self.document.startswith(f"{OWN_BLOCK}.")


_LIVE, _RESTART, _NONE = Reload.LIVE, Reload.RESTART, Reload.NONE
_OTHER_MODE = "No effect: belongs to another proxy mode."
_KUBE_PROXY_ONLY = "No effect here."


def _ipvs(name: str, kind: Kind, default: object, flag: str) -> Setting:
    return Setting(f"ipvs/{name}", f"ipvs.{name}", flag, kind, _NONE, _OTHER_MODE, default=default)


def _unused(document: str, kind: Kind, default: object, *, flag: str = "", omit: bool = False) -> Setting:
    effect = _OTHER_MODE if document.startswith(("nftables.", "winkernel.")) else _KUBE_PROXY_ONLY
    return Setting(
        f"unused/{document}", document, flag, kind, _NONE, effect, default=default, omit_empty=omit
    )  # fmt: skip


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "feature_gates", "featureGates", "feature-gates", kinds.GATES, _LIVE,
        "AllowServiceExternalIPs=false leaves external IPs out; PreferSameTrafficDistribution=false node hints. "
        "Other gates are accepted and change nothing.", omit_empty=True,
    ),
    Setting(
        "client.kubeconfig", "clientConnection.kubeconfig", "kubeconfig", kinds.STRING, _RESTART,
        "File that says where the API server is and who we are. Without it and --master: the pod's service account.",
    ),
    Setting(
        "client.accept_content_types", "clientConnection.acceptContentTypes", "", kinds.STRING, _NONE,
        "No effect: JSON is always asked for.", is_reported=False,
    ),
    Setting(
        "client.content_type", "clientConnection.contentType", "kube-api-content-type", kinds.STRING, _NONE,
        "No effect: JSON is always asked for.", zero_is_default=True, is_reported=False,
    ),
    Setting(
        "client.qps", "clientConnection.qps", "kube-api-qps", kinds.FLOAT, _NONE,
        "No effect: three watches and a few Events are all that is asked of the API server. A negative number, which "
        "means no limit to kube-proxy, is accepted as there.", zero_is_default=True, is_reported=False,
    ),
    Setting(
        "client.burst", "clientConnection.burst", "kube-api-burst", kinds.INT32, _NONE,
        "No effect, like qps.", zero_is_default=True, minimum=0, is_reported=False,
    ),
    Setting(
        "logging.format", "logging.format", "logging-format", kinds.LOG_FORMAT, _RESTART,
        "text or json; when not set (written back as text), text on a terminal and JSON elsewhere.",
        choices=("", "text", "json"),
    ),
    Setting(
        "logging.flush_frequency", "logging.flushFrequency", "log-flush-frequency", kinds.DURATION_OR_NANOSECONDS,
        _NONE, "No effect: log lines are not buffered.", zero_is_default=True, above=0,
        is_reported=False,
    ),
    Setting(
        "logging.verbosity", "logging.verbosity", "v", kinds.LEVEL, _LIVE,
        "How much is logged: the higher, the more.",
    ),
    Setting(
        "logging.vmodule", "logging.vmodule", "vmodule", kinds.VMODULE, _NONE,
        "No effect: the patterns name kube-proxy's source files.", omit_empty=True,
    ),
    _unused("logging.options.text.splitStream", kinds.BOOL, default=False, flag="log-text-split-stream", omit=True),
    _unused("logging.options.text.infoBufferSize", kinds.QUANTITY, default="0", flag="log-text-info-buffer-size"),
    _unused("logging.options.json.splitStream", kinds.BOOL, default=False, flag="log-json-split-stream", omit=True),
    _unused("logging.options.json.infoBufferSize", kinds.QUANTITY, default="0", flag="log-json-info-buffer-size"),
    Setting(
        "hostname_override", "hostnameOverride", "hostname-override", kinds.STRING, _RESTART,
        "Name of the Node object of this machine; otherwise the host name. Lower-cased, blanks trimmed. An override "
        "that no Node can have (RFC 1123) is refused; of such a host name there is a warning.",
    ),
    Setting(
        "bind_address", "bindAddress", "bind-address", kinds.IP, _RESTART,
        "Overrides the node's address and, when the Node has none, picks the primary IP family. Nothing binds to it.",
        zero_is_default=True,
    ),
    Setting(
        "healthz_bind_address", "healthzBindAddress", "healthz-bind-address", kinds.HEALTHZ_ADDRESS, _RESTART,
        "Where /healthz, /livez and /readyz are served; port 10256 if none is named. An empty flag turns it off.",
        zero_is_default=True,
    ),
    Setting(
        "metrics_bind_address", "metricsBindAddress", "metrics-bind-address", kinds.METRICS_ADDRESS, _RESTART,
        "Where /metrics is served; port 10249 if none is named. An empty flag turns it off.", zero_is_default=True,
    ),
    Setting(
        "bind_address_hard_fail", "bindAddressHardFail", "bind-address-hard-fail", kinds.BOOL, _RESTART,
        "Exit when one of these addresses cannot be bound, instead of trying again every 5 s.",
    ),
    Setting(
        "profiling", "enableProfiling", "profiling", kinds.BOOL, _RESTART,
        "Serve /debug/pprof and /debug/flags/v beside /metrics.",
    ),
    Setting(
        "show_hidden_metrics_for_version", "showHiddenMetricsForVersion", "show-hidden-metrics-for-version",
        kinds.STRING, _NONE, "No effect: no metric is hidden.",
    ),
    Setting(
        "mode", "mode", "proxy-mode", kinds.PROXY_MODE, _RESTART,
        "Always iptables. ipvs and nftables are read as iptables, with a log line.",
        zero_is_default=True, choices=("iptables", "ipvs", "nftables"),
    ),
    Setting(
        "iptables.masquerade_bit", "iptables.masqueradeBit", "iptables-masquerade-bit", kinds.INT32, _LIVE,
        'Bit of the packet mark that means "masquerade me".', minimum=0, maximum=31,
    ),
    Setting(
        "iptables.masquerade_all", "iptables.masqueradeAll", "masquerade-all", kinds.BOOL, _LIVE,
        "Masquerade everything that is sent to a service's cluster IP.",
    ),
    Setting(
        "iptables.localhost_nodeports", "iptables.localhostNodePorts", "iptables-localhost-nodeports", kinds.BOOL,
        _LIVE, "Node ports answer on 127.0.0.1 too (IPv4 only; sets route_localnet).",
    ),
    Setting(
        "iptables.sync_period", "iptables.syncPeriod", "iptables-sync-period", kinds.DURATION, _LIVE,
        "Time between verifications of the rules in the kernel.", zero_is_default=True, above=0,
    ),
    Setting(
        "iptables.min_sync_period", "iptables.minSyncPeriod", "iptables-min-sync-period", kinds.DURATION, _LIVE,
        "Time that two syncs are at least apart. As a flag, 0 means at once.",
        zero_is_default=True, minimum=0,
    ),
    _ipvs("syncPeriod", kinds.DURATION, 0.0, "ipvs-sync-period"),
    _ipvs("minSyncPeriod", kinds.DURATION, 0.0, "ipvs-min-sync-period"),
    _ipvs("scheduler", kinds.STRING, "", "ipvs-scheduler"),
    _ipvs("excludeCIDRs", kinds.STRINGS, (), "ipvs-exclude-cidrs"),
    _ipvs("strictARP", kinds.BOOL, default=False, flag="ipvs-strict-arp"),
    _ipvs("tcpTimeout", kinds.DURATION, 0.0, "ipvs-tcp-timeout"),
    _ipvs("tcpFinTimeout", kinds.DURATION, 0.0, "ipvs-tcpfin-timeout"),
    _ipvs("udpTimeout", kinds.DURATION, 0.0, "ipvs-udp-timeout"),
    _unused("nftables.masqueradeBit", kinds.INT32, 14),
    _unused("nftables.masqueradeAll", kinds.BOOL, default=False),
    _unused("nftables.syncPeriod", kinds.DURATION, 0.0),
    _unused("nftables.minSyncPeriod", kinds.DURATION, 0.0),
    _unused("winkernel.networkName", kinds.STRING, ""),
    _unused("winkernel.sourceVip", kinds.STRING, ""),
    _unused("winkernel.enableDSR", kinds.BOOL, default=False),
    _unused("winkernel.rootHnsEndpointName", kinds.STRING, ""),
    _unused("winkernel.forwardHealthCheckVip", kinds.BOOL, default=False),
    Setting(
        "detect_local_mode", "detectLocalMode", "detect-local-mode", kinds.LOCAL_MODE, _LIVE,
        "How traffic of local pods is told from other traffic.", zero_is_default=True,
        choices=("ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"),
    ),
    Setting(
        "bridge_interface", "detectLocal.bridgeInterface", "pod-bridge-interface", kinds.STRING, _LIVE,
        "With BridgeInterface: the bridge that local pods' traffic comes from.",
    ),
    Setting(
        "interface_name_prefix", "detectLocal.interfaceNamePrefix", "pod-interface-name-prefix", kinds.STRING, _LIVE,
        "With InterfaceNamePrefix: how the names of the interfaces begin that local pods' traffic comes from.",
    ),
    Setting(
        "cluster_cidrs", "clusterCIDR", "cluster-cidr", kinds.CLUSTER_CIDRS, _LIVE,
        "With ClusterCIDR: the pods' addresses, at most one CIDR of each IP family, separated by a comma.",
    ),
    Setting(
        "nodeport_addresses", "nodePortAddresses", "nodeport-addresses", kinds.NODEPORTS, _LIVE,
        "CIDRs of the local addresses on which node ports answer, or the word primary. None: all local addresses.",
    ),
    Setting(
        "oom_score_adj", "oomScoreAdj", "oom-score-adj", kinds.INT32, _RESTART,
        "oom_score_adj of this process.", minimum=-1000, maximum=1000,
    ),
    Setting(
        "conntrack.max_per_core", "conntrack.maxPerCore", "conntrack-max-per-core", kinds.INT32, _RESTART,
        "Tracked connections per CPU core. 0: leave the limit alone and ignore the minimum.", minimum=0,
    ),
    Setting(
        "conntrack.min", "conntrack.min", "conntrack-min", kinds.INT32, _RESTART,
        "Tracked connections at least, whatever the number of cores.", minimum=0,
    ),
    Setting(
        "conntrack.tcp_established_timeout", "conntrack.tcpEstablishedTimeout", "conntrack-tcp-timeout-established",
        kinds.TIMEOUT, _RESTART, "How long an idle TCP connection is tracked. 0: leave alone.",
    ),
    Setting(
        "conntrack.tcp_close_wait_timeout", "conntrack.tcpCloseWaitTimeout", "conntrack-tcp-timeout-close-wait",
        kinds.TIMEOUT, _RESTART, "How long a TCP connection in CLOSE_WAIT is tracked. 0: leave alone.",
    ),
    Setting(
        "conntrack.tcp_be_liberal", "conntrack.tcpBeLiberal", "conntrack-tcp-be-liberal", kinds.BOOL, _RESTART,
        "Let TCP packets outside the window pass (nf_conntrack_tcp_be_liberal), and do not drop INVALID ones.",
    ),
    Setting(
        "conntrack.udp_timeout", "conntrack.udpTimeout", "conntrack-udp-timeout", kinds.DURATION, _RESTART,
        "How long an unanswered UDP flow is tracked. 0: leave alone.", minimum=0,
    ),
    Setting(
        "conntrack.udp_stream_timeout", "conntrack.udpStreamTimeout", "conntrack-udp-timeout-stream", kinds.DURATION,
        _RESTART, "How long an answered UDP flow is tracked. 0: leave alone.", minimum=0,
    ),
    Setting(
        "config_sync_period", "configSyncPeriod", "config-sync-period", kinds.DURATION, _NONE,
        "No effect: nothing is re-read, since nothing is kept twice.", zero_is_default=True, above=0,
    ),
    _unused("portRange", kinds.STRING, ""),
    _unused("windowsRunAsService", kinds.BOOL, default=False, omit=True),
    Setting(
        "client.master", "", "master", kinds.STRING, _RESTART,
        "URL of the API server; wins over the kubeconfig's.",
    ),
    Setting(
        "manifests", "pykubeproxy.manifests", "manifests", kinds.PATHS, _RESTART,
        "Files or folders of Services, EndpointSlices and Nodes that take the API server's place. May be repeated.",
    ),
    Setting(
        "iptables_backend", "pykubeproxy.iptablesBackend", "iptables-backend", kinds.STRING, _RESTART,
        "Which iptables programs are used; auto decides as kube-proxy's image does.", zero_is_default=True,
        choices=("auto", "legacy", "nft"),
    ),
    Setting(
        "service_dispatch", "pykubeproxy.serviceDispatch", "service-dispatch", kinds.STRING, _LIVE,
        "Form of KUBE-SERVICES and KUBE-NODEPORTS in nat: flat lists as in kube-proxy, or trees for many services.",
        zero_is_default=True, choices=("auto", "flat", "tree"),
    ),
    Setting(
        "assume_nfacct", "pykubeproxy.assumeNfacct", "assume-nfacct", kinds.BOOL, _LIVE,
        "Let --dry-run print the nfacct matches; restoring them needs the nfacct objects.",
    ),
    Setting(
        "strict_source_ranges", "pykubeproxy.strictSourceRanges", "strict-source-ranges", kinds.BOOL, _LIVE,
        "Close a load balancer address whose source ranges all belong to the other IP family.",
    ),
    Setting(
        "connection_metrics", "pykubeproxy.connectionMetrics", "connection-metrics", kinds.BOOL, _RESTART,
        "Count new connections of each service port and endpoint (docs/metrics.md says at what price).",
    ),
    Setting(
        "connection_metrics_period", "pykubeproxy.connectionMetricsPeriod", "connection-metrics-period",
        kinds.DURATION, _RESTART, "Least time between two readings of what connection metrics are made of.",
        zero_is_default=True, above=0,
    ),
    Setting(
        "status_page", "pykubeproxy.statusPage", "status-page", kinds.BOOL, _RESTART,
        "Serve a page for people beside /metrics, if that is bound to a loopback address (docs/status-page.md).",
    ),
)  # fmt: skip

BY_OPTION = {setting.option: setting for setting in SETTINGS}
BY_DOCUMENT = {setting.document: setting for setting in SETTINGS if setting.document}
BY_FLAG = {setting.flag: setting for setting in SETTINGS if setting.flag}
_DEFAULTS = Options()


def get(options: Options, setting: Setting) -> object:
    """Return the value of one setting."""
    path, _, key = setting.option.partition("/")
    value: Any = options
    for name in path.split("."):
        value = getattr(value, name)
    return value.get(key, setting.default) if key else value


def default_of(setting: Setting) -> object:
    """Return the value of a setting that nobody has set."""
    return get(_DEFAULTS, setting)


def with_values(options: Options, values: Mapping[str, object]) -> Options:
    """Return ``options`` with the values of some option paths replaced."""
    groups: dict[str, dict[str, object]] = {}
    top: dict[str, Any] = {}
    for path, value in values.items():
        if "/" in path:
            group, _, key = path.partition("/")
            top.setdefault(group, dict(getattr(options, group)))[key] = value
        elif "." in path:
            group, _, name = path.partition(".")
            groups.setdefault(group, {})[name] = value
        else:
            top[path] = value
    for group, changes in groups.items():
        top[group] = replace(getattr(options, group), **changes)
    return replace(options, **top)
