"""What is done once and is over: ``--cleanup``, ``--init-only``, reading all objects; also what a daemon begins with.

It must not start a thread, nor keep anything.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import structlog

from pykubeproxy.config.options import Options
from pykubeproxy.errors import ConfigurationError, EnvironmentProblem, NetfilterError
from pykubeproxy.model.addresses import FAMILIES
from pykubeproxy.netfilter.backend import KINDS, Backend, choose
from pykubeproxy.netfilter.process import Runner, SubprocessRunner
from pykubeproxy.node import conntrack
from pykubeproxy.node.addresses import ipv6_supported
from pykubeproxy.node.leftovers import find_ipvs, remove_ipvs, remove_nftables_mode
from pykubeproxy.node.single import described, holder
from pykubeproxy.node.sysctl import SysctlPlan, init_sysctls, routes_localnet
from pykubeproxy.sync.cleanup import clean_up, tables_in_use
from pykubeproxy.sync.derive import answers_on_loopback
from pykubeproxy.watch.manifests import ClusterObjects, load

if TYPE_CHECKING:
    from pykubeproxy.model.service import ServiceKey
    from pykubeproxy.watch.client import ApiClient
    from pykubeproxy.watch.objects import Service

log = structlog.get_logger()


def read_objects(options: Options, node_name: str) -> ClusterObjects:
    """Read all objects once: from manifests, or by listing from the API server."""
    if options.manifests:
        objects = load(options.manifests)
        if objects.problems and not (objects.services or objects.slices or objects.nodes):
            raise ConfigurationError([f"--manifests: {problem}" for problem in objects.problems])
        for problem in objects.problems:
            log.warning("manifest problem", problem=problem)
        return objects
    from pykubeproxy.watch.once import list_once  # noqa: PLC0415 - see connect

    return list_once(connect(options), node_name)


def find_service(options: Options, objects: ClusterObjects, key: ServiceKey) -> Service | None:
    """Return a Service as it is, also one that a proxy leaves aside; ``objects``: what was read before."""
    for known in (*objects.services, *objects.left_aside):
        if (known.metadata.namespace, known.metadata.name) == key:
            return known
    if options.manifests:
        return None
    from pykubeproxy.watch import once  # noqa: PLC0415 - see connect

    return once.find_service(connect(options), key.namespace, key.name)


def connect(options: Options) -> ApiClient:
    """Connect to the API server that the options name."""
    from pykubeproxy.watch import client  # noqa: PLC0415 - 0.2 s and 36 MB that manifests do without

    return client.connect(options.client)


def require_root(what: str) -> None:
    """Raise EnvironmentProblem unless this process may do ``what``, which is to change rules."""
    if os.geteuid() != 0:
        raise EnvironmentProblem(f"needs root (uid 0 with CAP_NET_ADMIN and CAP_NET_RAW) to {what}")


def cleanup(options: Options, runner: Runner | None = None) -> None:
    """Do ``--cleanup``: remove our rules from both families of both backends. No API server is asked.

    Beside a daemon of ours it would cut all traffic for the moment that the daemon takes to put its rules back.
    """
    require_root("remove rules")
    if (running := holder()) is not None and running[1] == 0:
        raise EnvironmentProblem(
            f"--cleanup: {described(running)} runs in this network namespace and would write its rules again; nothing "
            "was removed: stop it first, or delete its DaemonSet"
        )
    runner = runner or SubprocessRunner()
    there = [kind for kind in KINDS if shutil.which(f"iptables-{kind}-restore")]
    if not there:
        choose(options.iptables_backend, runner)
    failures: list[str] = []
    for kind in there:
        for family in FAMILIES:
            backend = Backend(kind, family)
            try:
                clean_up(backend, runner, tables=tables_in_use(backend))
            except (NetfilterError, EnvironmentProblem) as exc:
                if family == "IPv6" and not ipv6_supported():
                    continue
                failures.append(f"{kind} {family}: {exc}")
    for family in FAMILIES:
        remove_nftables_mode(family)
    failures += remove_ipvs(find_ipvs())
    if routes_localnet():
        log.info(
            "sysctl left",
            name="net.ipv4.conf.all.route_localnet",
            value=1,
            why="what it was before is not known; the rule in KUBE-FIREWALL that guards it is left too",
        )
    if failures:
        raise NetfilterError("encountered an error while tearing down rules: " + "; ".join(failures))


def sysctl_plan(options: Options, node_ip: str | None = None) -> SysctlPlan:
    """Return the sysctls that the options ask for."""
    conntrack = options.conntrack
    return SysctlPlan(
        route_localnet=options.iptables.localhost_nodeports and answers_on_loopback(options, node_ip),
        conntrack_max_per_core=conntrack.max_per_core,
        conntrack_min=conntrack.min,
        cores=os.cpu_count() or 1,
        tcp_established_timeout=conntrack.tcp_established_timeout,
        tcp_close_wait_timeout=conntrack.tcp_close_wait_timeout,
        tcp_be_liberal=conntrack.tcp_be_liberal,
        udp_timeout=conntrack.udp_timeout,
        udp_stream_timeout=conntrack.udp_stream_timeout,
    )


def initialise(options: Options) -> None:
    """Do ``--init-only``: what needs more rights than the daemon should have.

    A setting that stands already needs no rights. One that should be written and cannot be is a failure, as for
    kube-proxy: to set it is all that this was started for. Only where /proc/sys is mounted read-only (LXC, rootless)
    the warning is all, so that a pod can start there.
    """
    result = init_sysctls(sysctl_plan(options), load_conntrack=conntrack.load_module)
    if result.lacks_rights:
        raise EnvironmentProblem(
            f"--init-only could not set what it was asked for ({'; '.join(result.refusals())}): it needs to be root, "
            "in a pod privileged; or ask for less (conntrack.maxPerCore 0, timeouts 0)"
        )
