"""The only wiring: builds the parts, starts the threads, handles signals, ends in order.

Threads: one for each watched resource (or one for manifests), one engine loop and one conntrack keeper for each IP
family, one HTTP server, one for Events, one for the configuration file. A crash in any of them ends the process with
its traceback: a half-dead daemon is worse than a restarted one, and the rules stand meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from pykubeproxy import __version__
from pykubeproxy import log as logging_setup
from pykubeproxy.config.flags import FlagValues, Invocation, flag_texts, resolve
from pykubeproxy.config.notes import log_notes
from pykubeproxy.config.options import Options
from pykubeproxy.config.reload import ConfigWatcher, plan_reload
from pykubeproxy.config.write import to_configz_document
from pykubeproxy.errors import EnvironmentProblem, LockBusyError, PykubeproxyError
from pykubeproxy.family import FamilyProxy, ServiceFeed, SliceFeed
from pykubeproxy.model.addresses import FAMILIES, Family
from pykubeproxy.model.service import Problem, ServiceKey
from pykubeproxy.netfilter.backend import Backend, choose, version
from pykubeproxy.netfilter.probe import is_supported
from pykubeproxy.netfilter.process import Runner, SubprocessRunner
from pykubeproxy.netfilter.watch import WatchedRunner
from pykubeproxy.netfilter.watchers import make_watch
from pykubeproxy.node import conntrack, memory, nfacct
from pykubeproxy.node.addresses import interface_addresses, ipv6_supported, node_ips
from pykubeproxy.node.check import findings, read_facts, warn
from pykubeproxy.node.leftovers import find_ipvs
from pykubeproxy.node.process import set_oom_score_adj
from pykubeproxy.node.single import only_one
from pykubeproxy.node.sysctl import init_sysctls, tcp_be_liberal
from pykubeproxy.once import connect, require_root, sysctl_plan
from pykubeproxy.serving.connections import ConnectionCollector
from pykubeproxy.serving.health import ProxierHealth
from pykubeproxy.serving.http import HttpServer
from pykubeproxy.serving.message import Routes
from pykubeproxy.serving.metrics import BuildInfo, Metrics
from pykubeproxy.serving.pages import About, add_state, health_routes, metrics_routes
from pykubeproxy.sync.abilities import Abilities
from pykubeproxy.sync.derive import Facts, pod_cidrs, rule_settings, without_cluster_cidr
from pykubeproxy.sync.engine import Engine
from pykubeproxy.sync.runner import LOCK_RETRY
from pykubeproxy.watch.apisource import ApiSource
from pykubeproxy.watch.early import Ahead, Gate, Gated
from pykubeproxy.watch.events import EventRecorder, ObjectRef, node_ref
from pykubeproxy.watch.following import ManifestSource
from pykubeproxy.watch.objects import Node
from pykubeproxy.watch.source import Handlers, Source

if TYPE_CHECKING:
    from pykubeproxy.watch.client import ApiClient

log = structlog.get_logger()
T = TypeVar("T")

NODE_PATIENCE = 5.0
"""Seconds that the first sync waits for the list of the own Node once the rest is there."""
POD_CIDR_PATIENCE = 300.0
"""Seconds that detectLocalMode NodeCIDR waits for the Node to have its pod network, as kube-proxy does."""
EXIT_RESTART = 1


def run(invocation: Invocation, given: FlagValues, node_name: str) -> int:
    """Run the daemon until a signal or a crash; return the exit status. ``given``: the flags, for a reload."""
    return Daemon(invocation, given, node_name).run()


class Daemon:
    """The daemon of one node. ``run`` blocks; everything else happens in threads that end with it."""

    def __init__(self, invocation: Invocation, given: FlagValues, node_name: str, runner: Runner | None = None) -> None:
        self._invocation = invocation
        self._given = given
        self._options = invocation.options
        self._node_name = node_name
        self._runner = runner or SubprocessRunner()
        self._ending: queue.SimpleQueue[int | BaseException] = queue.SimpleQueue()
        self._is_waiting = False
        self._node: Node | None = None
        self._facts: dict[Family, Facts] = {}
        self._abilities: dict[Family, Abilities] = {}
        self._families: dict[Family, FamilyProxy] = {}
        self._metrics: Metrics
        self._http = HttpServer()
        self._source: Source | None = None
        self._manifests: ManifestSource | None = None
        """The source, where it is one of files."""
        self._config: ConfigWatcher | None = None
        self._config_fault = ""
        """Why the configuration file, as it was read last, cannot be used."""
        self._gate = Gate()
        self._recorder: EventRecorder | None = None
        self._health: ProxierHealth | None = None

    def run(self) -> int:
        """Start everything, wait for the end, stop everything."""
        options = self._options
        memory.begin()
        require_root("write rules; --dry-run prints them without")
        if options.oom_score_adj is not None:
            set_oom_score_adj(options.oom_score_adj)
        with contextlib.ExitStack() as stack:
            self._catch_crashes(stack)
            self._catch_signals(stack)
            stack.enter_context(only_one())
            stack.callback(self._stop_source)
            listing = Ahead(self._start_source)
            backends = self._backends()
            self._metrics = Metrics(families=list(backends), build=BuildInfo(version=__version__))
            init_sysctls(sysctl_plan(options), load_conntrack=conntrack.load_module)
            self._http.start()
            stack.callback(self._http.stop)
            client = listing.result()
            self._start_events(client, stack)
            self._start_families(backends, stack)
            self._tell_of_cluster_cidr()
            self._serve()
            self._gate.open()
            self._warn_about_the_node(client)
            self._watch_config(stack)
            log.info("started", version=__version__, node=self._node_name, families=list(self._families))
            return self._wait()

    def end(self, status: int) -> None:
        """Let ``run`` return; may be called from any thread."""
        self._ending.put(status)

    @property
    def has_synced(self) -> bool:
        """Whether every family's rules have once been what they should be."""
        return bool(self._families) and all(proxy.engine.has_synced for proxy in self._families.values())

    @property
    def options(self) -> Options:
        """The options in force."""
        return self._options

    def engine(self, family: Family) -> Engine:
        """Return the engine of one family."""
        return self._families[family].engine

    def facts(self, family: Family) -> Facts:
        """Return what the machine says for one family."""
        return self._facts[family]

    # -- start

    def _backends(self) -> dict[Family, Backend]:
        """Choose the backend and find out which families it can serve; the primary one must be among them."""
        choice = choose(self._options.iptables_backend, self._runner)
        found = version(choice.kind, self._runner)
        log.info("iptables", backend=choice.kind, version=".".join(map(str, found)), reason=choice.reason)
        backends: dict[Family, Backend] = {}
        complaints: dict[Family, str] = {}
        for family in FAMILIES:
            backend = Backend(choice.kind, family, found)
            if family == "IPv6" and not ipv6_supported():
                complaints[family] = "the kernel has no IPv6, or it is switched off"
                log.info("family unsupported", family=family, reason=complaints[family])
                continue
            complaints[family] = _patiently(partial(is_supported, backend, self._runner))
            if complaints[family]:
                log.warning("family unsupported", family=family, reason=complaints[family])
                continue
            backends[family] = backend
        primary = node_ips((), self._options.bind_address).primary
        if primary not in backends:
            raise EnvironmentProblem(
                f"iptables-{choice.kind} cannot be used for {primary}, the primary family of this node: "
                f"{complaints[primary]}"
            )
        return backends

    def _look_again(self, family: Family) -> None:
        """Find out anew what the kernel can do: it has refused something."""
        self._learn(family, self._abilities[family].find_again(self._facts[family]))

    def _learn(self, family: Family, facts: Facts) -> None:
        """Take what was found out about the kernel into the rules."""
        if facts != self._facts[family]:
            self._facts[family] = facts
            self._families[family].configure(self._settings(family), self._options, "features")

    def _start_families(self, backends: Mapping[Family, Backend], stack: contextlib.ExitStack) -> None:
        options = self._options
        self._health = ProxierHealth(
            list(backends),
            options.iptables.sync_period,
            watch_ages=self._watch_ages,
            unread=partial(self._manifest_faults, are_unread=True),
            notes=self._notes,
        )
        watch = make_watch(next(iter(backends.values())).kind, list(backends), self._on_foreign_write, self._ending.put)
        watch.start()
        stack.callback(watch.stop)
        self._runner = WatchedRunner(self._runner, watch)
        for family, backend in backends.items():
            self._abilities[family] = abilities = Abilities(backend, self._runner)
            facts = Facts(tuple(interface_addresses()), tcp_be_liberal=tcp_be_liberal())
            self._facts[family] = _patiently(partial(abilities.find, facts))
            proxy = FamilyProxy(
                family,
                backend,
                self._runner,
                self._settings(family),
                options,
                watch=watch,
                metrics=self._metrics,
                health=self._health,
                http=self._http,
                reporter=self,
                on_problem=self._on_problem,
                on_crash=self._ending.put,
                refresh=self._refresh,
                on_refused=partial(self._look_again, family),
                on_loaded=self._on_loaded,
            )
            self._families[family] = proxy
            proxy.start()
            stack.callback(proxy.stop)

    def _start_source(self) -> ApiClient | None:
        """Connect and begin to list; what is listed waits at the gate."""
        options, gate = self._options, self._gate
        handlers: Handlers = Handlers(
            Gated(ServiceFeed(self._families), gate),
            Gated(SliceFeed(self._families), gate),
            Gated(_Nodes(self._on_node), gate),
        )
        client: ApiClient | None = None
        source: Source
        if options.manifests:
            source = self._manifests = ManifestSource(
                options.manifests,
                handlers,
                node_name=self._node_name,
                on_crash=self._ending.put,
                on_partial=self._set_partial,
            )
        else:
            client = connect(options)
            source = ApiSource(client.session, handlers, node_name=self._node_name, on_crash=self._ending.put)
        self._source = source
        source.start()
        return client

    def _set_partial(self, is_partial: bool) -> None:  # noqa: FBT001 - a callback
        """Take it that some manifests cannot be read, or that by now all can."""
        if self._gate.is_passed():
            for proxy in self._families.values():
                proxy.state.set_partial(is_partial=is_partial)

    def _notes(self) -> list[str]:
        """Return what an operator should know of a daemon that is ready."""
        fights = [proxy.engine.fight for proxy in self._families.values()]
        return [*self._manifest_faults(are_unread=False), *self._config_faults(), *filter(None, fights)]

    def _manifest_faults(self, *, are_unread: bool) -> list[str]:
        """Return why manifests cannot be read: those that have never been, or the others."""
        if self._manifests is None:
            return []
        unread = self._manifests.unread
        if are_unread:
            return [f"manifests: {fault}; what stands is left alone until it can be read" for fault in unread]
        stays = "its last good content is in force, and nothing is taken away"
        found = [f"manifests: {fault}; {stays}" for fault in self._manifests.faults if fault not in unread]
        return found + [f"manifests: {note}" for note in self._manifests.notes]

    def _config_faults(self) -> list[str]:
        """Return why the configuration file cannot be used as it is now."""
        fault = (self._config.fault if self._config is not None else "") or self._config_fault
        stays = "what was read before stays in force, but a restart would fail"
        return [f"configuration: {fault}; {stays}"] if fault else []

    def _stop_source(self) -> None:
        self._gate.close()
        if self._source is not None:
            self._source.stop()

    def _start_events(self, client: ApiClient | None, stack: contextlib.ExitStack) -> None:
        if client is None:
            return
        self._recorder = EventRecorder(client, host=self._node_name)
        self._recorder.start()
        stack.callback(client.close)
        stack.callback(self._recorder.stop)
        self._recorder.normal(node_ref(self._node_name), "Starting", "")

    def _serve(self) -> None:
        options, health = self._options, self._health
        assert health is not None
        hard = options.bind_address_hard_fail
        for resource in ("services", "endpointslices", "nodes"):
            self._metrics.watch_age_seconds.labels(resource=resource).set_function(
                _age(self._statuses, resource, "watch_age")
            )
            self._metrics.last_event_age_seconds.labels(resource=resource).set_function(
                _age(self._statuses, resource, "last_event_age")
            )
            self._metrics.relists_total.set_function(resource, _age(self._statuses, resource, "relists"))
            self._metrics.bad_objects_total.set_function(resource, _age(self._statuses, resource, "bad_objects"))
            self._metrics.watch_failures.labels(resource=resource).set_function(
                _age(self._statuses, resource, "consecutive_failures")
            )
        for family in self._families:
            self._metrics.oldest_unapplied_change_seconds.labels(ip_family=family).set_function(
                lambda family=family: health.oldest_change_age(family)  # type: ignore[misc]
            )
        self._metrics.xt_recent_list_size.set_function(lambda: float(nfacct.recent_limit() or 0))
        if "IPv4" in self._facts and self._facts["IPv4"].nfacct:
            for name, counter in (
                (nfacct.INVALID_DROPPED, self._metrics.iptables_ct_state_invalid_dropped_packets_total),
                (nfacct.LOCALHOST_ACCEPTED, self._metrics.iptables_localhost_nodeports_accepted_packets_total),
            ):
                counter.set_function(lambda name=name: _packets(name))  # type: ignore[misc]
        if options.connection_metrics:
            counts = [proxy.connections.counted for proxy in self._families.values() if proxy.connections is not None]
            self._metrics.registry.register(ConnectionCollector(counts))
        if options.healthz_bind_address:
            self._http.serve(
                "healthz",
                [options.healthz_bind_address],
                health_routes(health, self._metrics),
                is_hard_fail=hard,
                on_failure=lambda message: self._warn_node("FailedToStartProxierHealthcheck", message),
            )
        if options.metrics_bind_address:
            about = About(
                version=__version__,
                configuration=lambda: to_configz_document(self._options),
                flags=lambda: flag_texts(self._given),
                has_profiling=options.profiling,
                set_verbosity=self._set_verbosity,
            )
            routes = metrics_routes(self._metrics, about, stopping=self._http.stopping)
            add_state(routes, self._state)
            if options.status_page:
                self._add_status_page(routes, health)
            self._http.serve(
                "metrics",
                [options.metrics_bind_address],
                routes,
                is_hard_fail=hard,
                on_failure=lambda message: self._warn_node("FailedToStartMetricServer", message),
            )

    def _state(self) -> dict[str, object]:
        """Return what ``explain`` asks: whose daemon this is, whether it follows the cluster, what it leaves out."""
        return {
            "node": self._node_name,
            "version": __version__,
            "notReady": self._health.why_not_ready() if self._health is not None else ["starting"],
            "notes": self._notes(),
            "leftOut": {
                family: {str(key): why for key, why in sorted(proxy.engine.quarantined.items())}
                for family, proxy in self._families.items()
            },
        }

    def _add_status_page(self, routes: Routes, health: ProxierHealth) -> None:
        """Add the page for people, unless others than this machine's could read it."""
        from pykubeproxy.insight.partial import PartialReader  # noqa: PLC0415 - off by default, and some MB
        from pykubeproxy.insight.status import AboutNode, NodeStatus  # noqa: PLC0415
        from pykubeproxy.serving.loopback import is_loopback  # noqa: PLC0415
        from pykubeproxy.serving.page import add_pages  # noqa: PLC0415

        address = self._options.metrics_bind_address
        if not is_loopback(address):
            log.error(
                "status page refused",
                field="metricsBindAddress",
                address=address,
                why="it shows names and addresses of the whole cluster; bind the metrics port to 127.0.0.1 or ::1",
            )
            return
        backends = {family: proxy.backend for family, proxy in self._families.items()}
        backend = next(iter(backends.values()))
        about = AboutNode(
            node=self._node_name,
            version=__version__,
            backend=f"iptables-{backend.kind} {'.'.join(map(str, backend.version))}",
            not_ready=health.why_not_ready,
            notes=health.notes,
            watches=self._statuses,
        )
        readers = {family: PartialReader(backend, self._runner) for family, backend in backends.items()}
        add_pages(routes, NodeStatus(about, self._families, readers))

    def _warn_about_the_node(self, client: ApiClient | None) -> None:
        warn(findings(read_facts(), api_server=client.server if client is not None else ""))
        left = find_ipvs()
        if left:
            log.warning(
                "IPVS leftovers", found=str(left), hint="stop this daemon and run --cleanup, or restart the node"
            )

    def _tell_of_cluster_cidr(self) -> None:
        """Say where it is missing, as kube-proxy does for the primary family; it may be meant."""
        for family in without_cluster_cidr(self._options, self._families):
            log.info(
                "no cluster CIDR",
                family=family,
                consequence="pods' traffic cannot be told from other traffic, so neither is treated in its own way",
                hint="clusterCIDR, or --cluster-cidr; or another detectLocalMode",
            )

    # -- following

    def _settings(self, family: Family) -> Any:
        return rule_settings(family, self._options, self._node_name, self._node, self._facts[family])

    def _refresh(self) -> None:
        """Read again what the machine says; called before each verification."""
        for family in self._families:
            self._learn(family, self._abilities[family].refreshed(self._facts[family]))
        if not self._options.nodeport_addresses:
            return
        addresses = tuple(interface_addresses())
        for family, facts in self._facts.items():
            if facts.local_addresses != addresses:
                self._facts[family] = replace(facts, local_addresses=addresses)
                self._families[family].configure(self._settings(family), self._options, "addresses")

    def _on_loaded(self) -> None:
        """Everything was rendered for one family; once that is so for all, most of the memory in use will stay."""
        if self.has_synced:
            memory.settle()

    def _on_node(self, node: Node | None) -> None:
        """Take the own Node (None: there is none)."""
        self._node = node
        assert self._health is not None
        taints = [taint.key for taint in (node.spec.taints or ())] if node is not None and node.spec is not None else []
        self._health.set_node(
            is_known=node is not None,
            is_being_deleted=node is not None and node.metadata.deletion_timestamp is not None,
            taint_keys=taints,
        )
        if node is None:
            log.warning("node missing", node=self._node_name, consequence="no zone, no node address until it appears")
        waits = self._options.detect_local_mode == "NodeCIDR" and not pod_cidrs(node)
        for family, proxy in self._families.items():
            proxy.configure(self._settings(family), self._options, "node")
            if not waits:
                proxy.release()

    def _watch_config(self, stack: contextlib.ExitStack) -> None:
        if not self._invocation.config:
            return
        given = self._invocation
        self._config = ConfigWatcher(given.config, self._reload, digest=given.config_digest or None)
        self._config.start()
        stack.callback(self._config.stop)

    def _reload(self, digest: str) -> None:
        """Take over a changed configuration file: live, by an orderly exit, or not at all.

        ``digest`` is that of the content which has settled. What has changed since is looked at again when it has.
        """
        try:
            fresh, notes = resolve(self._given)
        except PykubeproxyError as exc:
            self._config_fault = str(exc)
            self._metrics.config_reload_failures_total.inc()
            log.error(
                "config invalid", path=self._invocation.config, error=str(exc), consequence="the old one stays in force"
            )
            self._warn_node("ConfigurationInvalid", str(exc))
            return
        if fresh.config_digest != digest:
            return
        self._config_fault = ""
        log_notes(notes)
        decision = plan_reload(self._options, fresh.options)
        if decision.needs_restart:
            log.warning("config needs restart", fields=decision.restart)
            self._ending.put(EXIT_RESTART)
            return
        self._options = fresh.options
        logging_setup.set_up(style=fresh.options.logging.format, verbosity=fresh.options.logging.verbosity)
        init_sysctls(sysctl_plan(fresh.options))
        log.info("config reloaded", fields=decision.live)
        if {"clusterCIDR", "detectLocalMode"} & {*decision.live}:
            self._tell_of_cluster_cidr()
        for family, proxy in self._families.items():
            proxy.configure(self._settings(family), self._options, "configuration")

    def _on_foreign_write(self, family: Family) -> None:
        """Look at the rules soon: somebody else may have changed them."""
        proxy = self._families.get(family)
        if proxy is not None:
            proxy.verify()

    # -- telling

    def service(self, key: ServiceKey, reason: str, message: str) -> None:
        """Report a Warning about a service as an Event."""
        if self._recorder is not None:
            self._recorder.warning(self._service_ref(key), reason, message)

    def _on_problem(self, problem: Problem) -> None:
        if self._recorder is not None and problem.kind == "Service":
            key = ServiceKey(problem.namespace, problem.name)
            self._recorder.warning(self._service_ref(key), "InvalidField", f"{problem.field}: {problem.message}")

    def _service_ref(self, key: ServiceKey) -> ObjectRef:
        uid = next((uid for proxy in self._families.values() if (uid := proxy.state.uid(key))), "")
        return ObjectRef("Service", key.namespace, key.name, uid=uid)

    def _warn_node(self, reason: str, message: str) -> None:
        if self._recorder is not None:
            self._recorder.warning(node_ref(self._node_name), reason, message)

    def _statuses(self) -> Mapping[Any, Any]:
        return self._source.statuses if self._source is not None else {}

    def _watch_ages(self) -> Mapping[str, float]:
        if self._options.manifests:
            return {}
        return {
            str(resource): status.watch_age if status.watch_age is not None else float("inf")
            for resource, status in self._statuses().items()
        }

    def _set_verbosity(self, text: str) -> None:
        logging_setup.set_up(style=self._options.logging.format, verbosity=int(text))

    # -- end

    def _catch_crashes(self, stack: contextlib.ExitStack) -> None:
        """End with whatever escapes a thread, also one that does not know of us: nothing goes on half-dead."""
        old = threading.excepthook

        def crashed(told: threading.ExceptHookArgs) -> None:
            self._ending.put(told.exc_value or RuntimeError(f"thread {told.thread} ended with {told.exc_type}"))

        threading.excepthook = crashed
        stack.callback(setattr, threading, "excepthook", old)

    def _catch_signals(self, stack: contextlib.ExitStack) -> None:
        def end(_number: int, _frame: object) -> None:
            if not self._is_waiting:
                # This thread is in the middle of starting, perhaps in a program that hangs; nothing needs an order yet.
                os._exit(0)
            self._ending.put(0)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # started by nohup
            old = signal.signal(number, end)
            stack.callback(signal.signal, number, old)

    def _wait(self) -> int:
        """Wait for a signal, a crash, or a decision to restart."""
        self._is_waiting = True
        limit = time.monotonic() + POD_CIDR_PATIENCE if self._options.detect_local_mode == "NodeCIDR" else None
        while True:
            try:
                ending = self._ending.get(timeout=1.0)
            except queue.Empty:
                self._release_if_node_is_late()
                if limit is not None and time.monotonic() > limit and not pod_cidrs(self._node):
                    log.error(
                        "no pod CIDR", node=self._node_name, consequence="detectLocalMode NodeCIDR cannot work; exiting"
                    )
                    return 1
                continue
            if isinstance(ending, BaseException):
                log.critical("crashed", error=repr(ending))
                traceback.print_exception(ending, file=sys.stderr)
                return 1
            log.info("stopping", consequence="rules stay")
            return ending

    def _release_if_node_is_late(self) -> None:
        if self._options.detect_local_mode == "NodeCIDR":
            return
        for proxy in self._families.values():
            proxy.release_after(NODE_PATIENCE)


def _patiently(ask: Callable[[], T]) -> T:
    """Ask again while the lock of iptables is busy: that is no failure, and at the start nothing else waits."""
    is_told = False
    while True:
        try:
            return ask()
        except LockBusyError as busy:
            if not is_told:
                is_told = True
                log.warning("lock busy", why=str(busy), consequence="waiting for it")
            time.sleep(LOCK_RETRY)


class _Nodes:
    def __init__(self, on_node: Callable[[Node | None], None]) -> None:
        self._on_node = on_node

    def replace(self, objects: Any) -> None:
        self._on_node(objects[0] if objects else None)

    def upsert(self, obj: Node) -> None:
        self._on_node(obj)

    def delete(self, namespace: str, name: str) -> None:
        del namespace, name
        self._on_node(None)


def _age(statuses: Callable[[], Mapping[Any, Any]], resource: str, what: str) -> Callable[[], float]:
    def read() -> float:
        status = statuses().get(resource)
        if status is None:
            return 0.0
        if what == "last_event_age":
            return max(0.0, time.monotonic() - status.last_event_at) if status.last_event_at is not None else 0.0
        return float(getattr(status, what) or 0.0)

    return read


def _packets(name: str) -> float | None:
    count = nfacct.read().get(name)
    return float(count.packets) if count is not None else None
