"""The laboratory has an xtables lock of its own: neither waits for the other's."""

import contextlib
import fcntl
from pathlib import Path

import pytest

from e2e.netlab import Lab, wait_for

pytestmark = pytest.mark.netns

WRITE = ["iptables-legacy", "-w", "1", "-t", "nat", "-A", "OUTPUT", "-j", "ACCEPT"]


@pytest.fixture(scope="module")
def lab():
    with Lab(backend="legacy") as lab:
        yield lab


def test_a_writer_in_the_node_does_not_wait_for_the_machine(lab):
    with Path("/run/xtables.lock").open("ab") as machine:
        with contextlib.suppress(BlockingIOError):  # held by somebody else: just as good
            fcntl.flock(machine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert lab.node.run(WRITE, check=False).status == 0


def test_writers_in_the_node_exclude_each_other(lab):
    lock = lab.claim.folder / "xtables.lock"
    with lock.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert lab.node.run(WRITE, check=False).status == 4
    assert lab.node.run(WRITE, check=False).status == 0


def test_what_a_person_is_told_to_type_leads_into_the_node(lab):
    inside = lab.node.enter().split()
    holder = lab.node.spawn(["flock", "/run/xtables.lock", "sleep", "60"])
    wait_for(lambda: lab.node.run(["flock", "-n", "/run/xtables.lock", "true"], check=False).status, "the lock")
    done = lab.client.run([*inside, *WRITE], check=False)
    holder.signal()
    assert done.status == 4
