"""Stale UDP flows: conntrack compared with what is wanted, after a UDP service changed and at the sync period.

Never on the sync path: a thread of its own for each family. Level-based: what is compared is the present state, not
the change that led to it, so a failed pass or a lost moment loses nothing. What this process once programmed (or
found in the kernel when it started) and wants no more is remembered until two passes in a row had nothing to delete:
the state may be ahead of the kernel, whose old rules can make an entry again that was just deleted.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

import structlog

from pykubeproxy.errors import PykubeproxyError
from pykubeproxy.model.addresses import Family
from pykubeproxy.model.service import ServicePort
from pykubeproxy.model.state import ClusterState
from pykubeproxy.node.conntrack import NOTHING, DesiredUdp, Programmed, Result, reconcile
from pykubeproxy.rules.names import DISPATCH_PREFIX, NAT, NODEPORTS, PORT_DISPATCH_PREFIX, SERVICES
from pykubeproxy.rules.ruleset import Ruleset
from pykubeproxy.rules.settings import RuleSettings
from pykubeproxy.serving.metrics import Metrics

log = structlog.get_logger()

Address = tuple[str, int]


def wanted_udp(state: ClusterState, settings: RuleSettings, node_addresses: frozenset[str]) -> DesiredUdp:
    """Return the UDP service ports of a state; takes its lock."""
    services: dict[Address, frozenset[Address]] = {}
    node_ports: dict[int, frozenset[Address]] = {}
    with state.lock:
        for key in state.udp_keys():
            ports = [port for port in state.ports(key) if port.id.protocol == "UDP"]
            endpoints = state.endpoints(key)
            for port in ports:
                serving = frozenset(
                    (e.address, e.port) for e in endpoints.get(port.id, ()) if e.is_ready or e.is_serving
                )
                for address in _addresses(port, settings):
                    services[address, port.port] = services.get((address, port.port), frozenset()) | serving
                if port.node_port:
                    node_ports[port.node_port] = node_ports.get(port.node_port, frozenset()) | serving
    return DesiredUdp(services, node_ports, _nodeport_addresses(settings, node_addresses))


def _addresses(port: ServicePort, settings: RuleSettings) -> tuple[str, ...]:
    external = port.external_ips if settings.uses_external_ips else ()
    return (port.cluster_ip, *external, *port.load_balancer_ips)


def _nodeport_addresses(settings: RuleSettings, local: frozenset[str]) -> frozenset[str]:
    chosen = local if settings.nodeport_addresses is None else frozenset(settings.nodeport_addresses)
    if settings.family == "IPv6" or not settings.localhost_nodeports:
        return frozenset(a for a in chosen if a != "::1" and not a.startswith("127."))
    return chosen


_PORTAL = re.compile(r"^-A \S+ -d ([0-9a-f:.]+)/(?:32|128) -p udp .*--dport (\d+) ", re.MULTILINE)
_NODE_PORT = re.compile(r"^-A \S+ -p udp .*--dport (\d+) ", re.MULTILINE)


def found_udp(standing: Ruleset) -> Programmed:
    """Return the UDP addresses and node ports that the standing rules of nat serve."""
    services: dict[Address, None] = {}
    node_ports: dict[int, None] = {}
    for chain, text in standing.chains[NAT].items():
        if chain == SERVICES or chain.startswith(DISPATCH_PREFIX):
            services.update({(address, int(port)): None for address, port in _PORTAL.findall(text)})
        elif chain == NODEPORTS or chain.startswith(PORT_DISPATCH_PREFIX):
            node_ports.update({int(port): None for port in _NODE_PORT.findall(text)})
    return Programmed(services, node_ports)


class FlowKeeper:
    """The thread that makes the passes of one family."""

    def __init__(
        self,
        state: ClusterState,
        settings: Callable[[], RuleSettings],
        node_addresses: Callable[[], frozenset[str]],
        *,
        metrics: Metrics,
        on_crash: Callable[[BaseException], None],
        reconcile: Callable[[Family, DesiredUdp, Programmed], Result] = reconcile,
    ) -> None:
        self._state = state
        self._settings = settings
        self._node_addresses = node_addresses
        self._metrics = metrics
        self._on_crash = on_crash
        self._reconcile = reconcile
        self._programmed: Programmed = NOTHING
        self._last: DesiredUdp | None = None
        self._wake = threading.Event()
        self._stopped = False
        self._last_error = ""
        self._thread = threading.Thread(target=self._run, name=f"conntrack-{state.family}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Let the thread end after the pass that is running."""
        self._stopped = True
        self._wake.set()

    def adopt(self, standing: Ruleset) -> None:
        """Remember the UDP addresses and node ports of rules that stood at the start: their endpoints are unknown."""
        self._programmed = found_udp(standing)

    def request(self) -> None:
        """Ask for a pass."""
        self._wake.set()

    def _run(self) -> None:
        try:
            while True:
                self._wake.wait()
                self._wake.clear()
                if self._stopped:
                    return
                self.once()
        except BaseException as exc:  # noqa: BLE001 - see SyncLoop
            self._on_crash(exc)

    def once(self) -> None:
        """Make one pass."""
        family = self._state.family
        wanted = wanted_udp(self._state, self._settings(), self._node_addresses())
        self._programmed = self._programmed.learn(wanted)
        try:
            result = self._reconcile(family, wanted, self._programmed.without(wanted))
        except PykubeproxyError as exc:
            self._complain(str(exc))
            return
        self._complain(f"{result.failed} stale entries cannot be deleted now" if result.failed else "")
        self._metrics.conntrack_reconciler_sync_duration_seconds.labels(ip_family=family).observe(result.seconds)
        self._metrics.conntrack_reconciler_deleted_entries_total.labels(ip_family=family).inc(result.deleted)
        if not result.failed and not result.deleted:
            known = NOTHING if self._last is None else NOTHING.learn(self._last)
            self._programmed = known.learn(wanted)
            self._last = wanted
        if result.deleted:
            log.info("conntrack cleaned", family=family, deleted=result.deleted, scanned=result.scanned)

    def _complain(self, error: str) -> None:
        """Log a failure once, until a pass succeeds or fails otherwise."""
        if error and error != self._last_error:
            log.warning("conntrack failed", family=self._state.family, error=error)
        self._last_error = error
