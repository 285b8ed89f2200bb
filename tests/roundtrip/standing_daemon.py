"""A whole daemon, started in a namespace where the rules of the real kube-proxy stand: what does it write?

Runs in a forked child (tests/oracle/child.py says why).
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
import traceback
from pathlib import Path

import yaml
from pyroute2 import netns

from pykubeproxy import daemon, log
from pykubeproxy.config.flags import resolve
from pykubeproxy.config.hostname import hostname
from pykubeproxy.netfilter.process import SubprocessRunner
from pykubeproxy.node import nfacct
from tests.oracle.cases_of import FAMILIES, Case, Step, run
from tests.support.kernel import EMPTY

PATIENCE = 120.0
"""Seconds; a busy machine is no failure."""


class Notes(SubprocessRunner):
    """Notes the inputs of all restores."""

    def __init__(self) -> None:
        self.restores: list[str] = []

    def run(self, argv, stdin=b"", **more):
        if "-restore" in argv[0]:
            self.restores.append(f"{argv[0]}: {stdin.decode()}")
        return super().run(argv, stdin, **more)


def restores_over_what_stands(case: Case, step: Step, name: str, backend: str) -> list[str]:
    """Return the restores of a daemon that starts over the recorded rules of a backend; [] is what should be."""
    netns.setns(name)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XTABLES_LOCKFILE"] = f"{folder}/xtables.lock"
        nfacct.ensure()
        for family in FAMILIES:
            stem = "iptables" if family == "ipv4" else "ip6tables"
            run([f"{stem}-{backend}-restore"], step.save(backend, family))
        found = _started(case, step, backend, Path(folder))
        for stem in ("iptables", "ip6tables"):
            run([f"{stem}-{backend}-restore"], EMPTY)
    return found


def _started(case: Case, step: Step, backend: str, folder: Path) -> list[str]:
    document = yaml.safe_load(step.config.read_text())
    document["clientConnection"] = {}
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(document))
    given = {
        "config": str(config),
        "iptables-backend": backend,
        "service-dispatch": "flat",
        "manifests": (str(step.objects),),
    }
    invocation, _ = resolve(given)
    log.set_up(quiet=True, stream=Path(os.devnull).open("w"))  # noqa: SIM115
    notes = Notes()
    program = daemon.Daemon(invocation, given, hostname(invocation.options, case.env["nodeName"]), notes)
    found: list[str] = []

    def control() -> None:
        try:
            limit = time.monotonic() + PATIENCE
            while not program.has_synced:
                if time.monotonic() > limit:
                    found.append("it has not synced")
                    return
                time.sleep(0.01)
        except BaseException:  # noqa: BLE001 - shown by the parent
            found.append(traceback.format_exc())
        finally:
            program.end(0)

    controller = threading.Thread(target=control)
    controller.start()
    status = program.run()
    controller.join()
    if status:
        found.append(f"the daemon exited {status}")
    return found + [f"{backend}: {text}" for text in notes.restores]
