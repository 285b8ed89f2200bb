"""Walk one case with the whole daemon, fed by the API stand-in, inside the case's network namespace.

Runs in a forked child: everything is imported already, so a walk costs the daemon's own time and not Python's start.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import tempfile
import threading
import time
import traceback
from pathlib import Path

import yaml
from pyroute2 import netns

from e2e.apiserver import StandIn, read_objects
from pykubeproxy import daemon, dryrun, log
from pykubeproxy.config.flags import resolve
from pykubeproxy.config.hostname import hostname
from pykubeproxy.model.addresses import FAMILIES
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.process import SubprocessRunner
from pykubeproxy.netfilter.read import Reader
from pykubeproxy.sync.derive import rule_settings
from pykubeproxy.sync.diff import difference
from pykubeproxy.watch.manifests import load
from tests.oracle import compare
from tests.oracle.cases_of import Case, Step

PATIENCE = 20.0


class CountingRunner(SubprocessRunner):
    """Counts what is run."""

    def __init__(self) -> None:
        self.restores = 0

    def run(self, argv, stdin=b"", **more):
        self.restores += "-restore" in argv[0]
        return super().run(argv, stdin, **more)


def forked(function, *args):
    """Run a function in a forked child and return what it returns."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            answer = function(*args)
        except BaseException:  # noqa: BLE001 - whatever it is, the parent shall show it
            answer = ["the walk crashed", traceback.format_exc()]
        with os.fdopen(write, "wb") as out:
            pickle.dump(answer, out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as source:
        data = source.read()
    os.waitpid(pid, 0)
    return pickle.loads(data)  # noqa: S301 - our own child's


def walk(case: Case, name: str, backend: str) -> list[str]:
    """Return the differences of all steps; empty when every state was reached exactly."""
    netns.setns(name)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XTABLES_LOCKFILE"] = f"{folder}/xtables.lock"
        server = StandIn()
        server.start()
        try:
            return _steps(case, server, backend, Path(folder))
        finally:
            server.stop()


def _steps(case: Case, server: StandIn, backend: str, folder: Path) -> list[str]:
    found: list[str] = []
    steps = list(case.steps)
    while steps and not found:
        run = [steps.pop(0)]
        while steps and steps[0].config.read_text() == run[0].config.read_text():
            run.append(steps.pop(0))
        _put_all(server, run[0])
        found = _one_daemon(case, run, server, backend, folder)
    return found


def _put_all(server: StandIn, step: Step) -> None:
    wanted = list(read_objects(step.objects))
    keys = {_key(obj) for obj in wanted}
    for kind in ("Service", "EndpointSlice", "Node"):
        for obj in server.objects(kind):
            key = _key({"kind": kind, **obj})
            if key not in keys:
                server.delete(*key)
    server.bulk_put(wanted)


def _key(obj):
    meta = obj["metadata"]
    return obj["kind"], "" if obj["kind"] == "Node" else meta.get("namespace", ""), meta["name"]


def _one_daemon(case: Case, steps: list[Step], server: StandIn, backend: str, folder: Path) -> list[str]:
    document = yaml.safe_load(steps[0].config.read_text())
    document["clientConnection"] = {"kubeconfig": str(server.write_kubeconfig(folder / "kubeconfig"))}
    document["iptables"] = {**(document.get("iptables") or {}), "minSyncPeriod": "1ms"}
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(document))
    given = {"config": str(config), "iptables-backend": backend, "service-dispatch": "flat"}
    invocation, _ = resolve(given)
    log.set_up(quiet=True, stream=Path(os.devnull).open("w"))  # noqa: SIM115
    program = daemon.Daemon(invocation, given, hostname(invocation.options, case.env["nodeName"]))
    found: list[str] = []

    def control() -> None:
        try:
            for number, step in enumerate(steps):
                if number:
                    _put_all(server, step)
                found.extend(_await(case, step, program, backend))
                if found:
                    return
        except BaseException:  # noqa: BLE001
            found.append(traceback.format_exc())
        finally:
            program.end(0)

    controller = threading.Thread(target=control)
    controller.start()
    status = program.run()
    controller.join()
    if status:
        found.append(f"the daemon exited {status}")
    return found


def _await(case: Case, step: Step, program: daemon.Daemon, backend: str) -> list[str]:
    """Wait until the kernel holds the recorded rules and, chain by chain, what is rendered for these objects."""
    limit = time.monotonic() + PATIENCE
    while True:
        differences = []
        for family, stem in (("ipv4", "iptables"), ("ipv6", "ip6tables")):
            text = subprocess.run([f"{stem}-{backend}-save"], capture_output=True, text=True, check=True).stdout
            if not (step.is_last and case.depends_on_history):
                differences += [f"{family}: {line}" for line in compare.compare(step.save(backend, family), text)]
        if not differences and not program.has_synced:
            differences = ["the daemon has not synced yet"]
        if not differences:
            differences = _stale(step, program, backend)
        if not differences or time.monotonic() > limit:
            return [f"{step.objects.name}: {line}" for line in differences]
        time.sleep(0.03)


def _stale(step: Step, program: daemon.Daemon, backend: str) -> list[str]:
    objects = load([str(step.objects)])
    found = []
    for family in FAMILIES:
        engine = program.engine(family)
        settings = engine.settings
        wanted = dryrun.desired(family, objects, settings, dispatch="flat").ruleset
        standing = Reader(Backend(backend, family), SubprocessRunner()).read().ruleset
        left = difference(standing, wanted, None)
        if left:
            found.append(f"{family}: not what these objects mean: {left}")
        node = dryrun.own_node(objects, settings.here.node)
        again = rule_settings(family, program.options, settings.here.node, node, program.facts(family))
        if again != settings:
            found.append(f"{family}: settings differ: {again} != {settings}")
    return found
