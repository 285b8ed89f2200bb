"""The demo as a program: what holds ends with 0, what does not with 1 and is named, and nothing is left behind."""

import os
import signal
import subprocess
import sys

import pytest

from e2e.netlab import ownership

pytestmark = pytest.mark.netns


def demo(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "e2e.demo", "--backend", "nft", *arguments], capture_output=True, text=True, check=False
    )


def test_what_holds_ends_with_0():
    done = demo("--only", "1,9")
    assert done.returncode == 0, done.stdout
    assert "KUBE-SEP-" in done.stdout
    assert "What was run holds." in done.stdout


def test_a_proxy_that_does_not_start_ends_with_1():
    done = demo("--command", "false")
    assert done.returncode == 1
    assert "the proxy has ended by itself" in done.stdout


UNTRUE = """
import os, shutil, sys
programs = os.path.dirname(sys.argv[1])
for family in ("ip", "ip6"):
    name = family + "tables-nft-restore"
    real = shutil.which(name)
    with open(os.path.join(programs, name), "w") as file:
        file.write(f"#!/bin/sh\\nsed '/KUBE-MARK-MASQ$/d' | exec {real} \\"$@\\"\\n")
    os.chmod(os.path.join(programs, name), 0o755)
os.environ["PATH"] = programs + ":" + os.environ["PATH"]
os.execv(sys.executable, [sys.executable, "-m", "pykubeproxy", *sys.argv[2:]])
"""


def test_a_proxy_that_does_not_masquerade_ends_with_1(tmp_path):
    script = tmp_path / "untrue.py"
    script.write_text(UNTRUE)
    done = demo("--only", "1,6", "--command", f"{sys.executable} {script} {script}")
    assert done.returncode == 1, done.stdout
    assert "✗ the outside client is masqueraded" in done.stdout
    assert "✓ it saw who asked" in done.stdout


def test_a_number_that_is_no_experiment_is_bad_usage():
    done = demo("--only", "99")
    assert done.returncode == 2
    assert "there is no experiment 99" in done.stderr


def interrupt_when_it_stands(process, number):
    """Send the signal once the laboratory stands and has rules; return the laboratory's name."""
    for line in process.stdout:
        if line.strip().startswith("the node"):
            node = line.split("node", 1)[1].split()
        if "tail -f" in line:
            break
    listed = subprocess.run(
        [*node[:-1], "iptables-nft", "-t", "nat", "-S", "KUBE-SERVICES"], capture_output=True, text=True, check=True
    )
    assert "10.101.245.66" in listed.stdout
    name = line.split("/run/pkp-lab/")[1].split("/")[0]
    assert ownership.namespaces_of(name)
    process.send_signal(number)
    return name


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_keep_stands_until_it_is_interrupted(number):
    process = subprocess.Popen(
        [sys.executable, "-m", "e2e.demo", "--backend", "nft", "--only", "1", "--keep"],
        stdout=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    with process:
        try:
            name = interrupt_when_it_stands(process, number)
            rest = process.stdout.read()
        except BaseException:
            process.terminate()  # it would stand for ever, and leaving the block waits for it
            raise
    assert "removing the laboratory" in rest
    assert process.returncode == 0
    assert ownership.namespaces_of(name) == []
