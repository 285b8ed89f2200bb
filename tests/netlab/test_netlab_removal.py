"""Nothing of a laboratory outlives it, however it ends; nothing of others is ever removed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.netlab import Lab, LabError, ownership, wait_for

pytestmark = pytest.mark.netns

OWNER = """
import sys
from e2e.netlab import Lab
with Lab() as lab:
    lab.add_pod("p1", "10.244.2.13")
    sleeper = lab.node.spawn(["sleep", "1000"])
    print(lab.claim.name, sleeper.pid, flush=True)
    sys.stdin.read()
"""


def owner():
    return subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def start():
    process = owner()
    name, pid = process.stdout.readline().split()
    assert len(ownership.namespaces_of(name)) == 4
    return process, name, int(pid)


def close(process):
    process.wait(30)
    process.stdin.close()
    process.stdout.close()


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_namespaces_processes_and_files_are_gone_afterwards():
    with Lab() as lab:
        lab.add_pod("p1", "10.244.2.13")
        name, folder = lab.claim.name, lab.claim.folder
        sleeper = lab.node.spawn(["sleep", "1000"])
        assert alive(sleeper.pid)
    assert ownership.namespaces_of(name) == []
    assert not folder.exists()
    assert not alive(sleeper.pid)


def fail_within(names):
    with Lab() as lab:
        names.append(lab.claim.name)
        raise ZeroDivisionError


def test_an_exception_removes_it_too():
    names = []
    with pytest.raises(ZeroDivisionError):
        fail_within(names)
    assert ownership.namespaces_of(names[0]) == []


def test_a_pod_that_cannot_serve_removes_it_too():
    with Lab() as lab:
        name = lab.claim.name
        with pytest.raises(LabError, match="Address already in use"):
            lab.add_pod("p1", "10.244.2.13", http=[80, 80])
    assert ownership.namespaces_of(name) == []


def test_an_interrupt_removes_it():
    process, name, pid = start()
    process.send_signal(signal.SIGINT)
    process.wait(30)
    close(process)
    assert ownership.namespaces_of(name) == []
    assert not alive(pid)


def test_a_killed_owner_is_swept_by_the_next():
    process, name, pid = start()
    process.kill()
    close(process)
    with Lab():
        assert ownership.namespaces_of(name) == []
    wait_for(lambda: not alive(pid), "the end of what ran there")
    assert not (ownership.STATE / name).exists()


def test_a_living_laboratory_is_not_swept():
    process, name, pid = start()
    assert name not in ownership.sweep()
    assert len(ownership.namespaces_of(name)) == 4
    assert alive(pid)
    process.stdin.close()
    process.wait(30)
    process.stdout.close()


def test_namespaces_of_others_are_not_swept():
    foreign = "pkp-zzz0-node"  # a zero is in no name of ours
    subprocess.run(["ip", "netns", "add", foreign], check=True)
    try:
        ownership.sweep()
        assert ownership.namespaces_of("zzz0") == [foreign]
    finally:
        subprocess.run(["ip", "netns", "delete", foreign], check=True)
