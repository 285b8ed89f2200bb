"""Without the watch the faults stay until the sync period: what the other tests see is the watch's doing."""

import os
import sys
from pathlib import Path

import pytest

from tests.drift.drifting import (
    BACKENDS,
    NEVER,
    WEB,
    change,
    eventually,
    everything,
    healed,
    restore,
    running,
)

pytestmark = pytest.mark.netns

FAULT = f"*nat\n:{WEB.cluster} - [0:0]\nCOMMIT\n"


def blind(folder: Path) -> dict[str, str]:
    """Return an environment in which the daemon has no watch: Python loads this before anything else."""
    (folder / "sitecustomize.py").write_text(
        "import pykubeproxy.netfilter.watchers as watchers\n"
        "from pykubeproxy.netfilter.watch import NoWatch\n"
        "watchers.make_watch = lambda *_: NoWatch()\n"
    )
    root = Path(__file__).parents[2]
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(root), *filter(None, sys.path)])}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_blind_daemon_does_not_notice(backend, tmp_path):
    with running(backend, *NEVER, env=blind(tmp_path)) as it:
        restore(it, "IPv4", FAULT)
        change(it, 1)  # a sync that came after the fault has no eyes for it
        assert WEB.endpoint("10.244.0.1:8080") in it.save()
        assert f"-A {WEB.cluster} " not in it.save()
        assert healed(it, "nat") == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_sync_period_is_its_only_chance(backend, tmp_path):
    with running(backend, "--iptables-sync-period", "2s", env=blind(tmp_path)) as it:
        right = everything(it)
        restore(it, "IPv4", FAULT)
        eventually(lambda: healed(it, "nat"), f"healed at the sync period\n{it.words()}")
        eventually(lambda: everything(it) == right, "everything as it was")


@pytest.mark.parametrize("backend", BACKENDS)
def test_with_the_watch_the_same_is_healed_without_a_period(backend):
    with running(backend, *NEVER) as it:
        restore(it, "IPv4", FAULT)
        eventually(lambda: healed(it, "nat"), f"healed\n{it.words()}")


def test_a_legacy_writer_without_the_common_lock_is_found_at_the_sync_period():
    with running("legacy", "--iptables-sync-period", "1s") as it:
        right = everything(it)
        env = f"XTABLES_LOCKFILE={it.folder}/another.lock"
        marks = iter(range(1, 100))

        def is_healed():
            if healed(it, "nat"):
                return True
            # Who comes before the daemon's own write was taken for the new normal goes unseen: once more.
            rule = ["-A", WEB.cluster, "-m", "mark", "--mark", str(next(marks))]
            it.run("env", env, "iptables-legacy", "-t", "nat", *rule)
            return False

        eventually(is_healed, f"healed\n{it.words()}", interval=3)
        eventually(lambda: everything(it) == right, "everything as it was")
