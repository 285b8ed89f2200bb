"""A second daemon on the same node is refused with clear text (R098); one in another namespace is nobody's business."""

import os
import signal
import subprocess
import sys

import pytest

from tests.lifecycle.bare import bare
from tests.support.node import ROOT, cluster, eventually, node

pytestmark = pytest.mark.netns

SQUATTER = """
import os, socket, time
os.setuid(65534)
held = socket.socket(socket.AF_UNIX)
held.bind("\\0pykubeproxy")
held.listen()
print("held", flush=True)
time.sleep(600)
"""


def test_the_second_is_refused_and_the_first_goes_on():
    with node("nft") as it:
        it.api.bulk_put(cluster(2))
        first = it.start()
        it.wait_ready()
        log = it.log.read_text()
        second = it.start("--healthz-bind-address", "127.0.0.1:20256", "--metrics-bind-address", "127.0.0.1:20249")
        assert second.wait(30) == 1
        said = [line for line in it.log.read_text().removeprefix(log).splitlines() if line.startswith("pykubeproxy: ")]
        assert len(said) == 1
        assert f"another pykubeproxy (process {first.pid}) runs in this network namespace" in said[0]
        assert it.get(10256, "/readyz")[0] == 200
        it.process = first
        assert it.stop(signal.SIGKILL) == -signal.SIGKILL
        it.start()
        it.wait_ready()


def test_it_is_refused_before_it_looks_at_any_table():
    with node("nft") as it:
        it.api.bulk_put(cluster(2))
        first = it.start()
        it.wait_ready()
        assert it.start("--iptables-backend", "legacy").wait(30) == 1
        assert it.run("cat", "/proc/net/ip_tables_names") == "", "the second did not so much as look at legacy tables"
        it.process = first


def test_other_namespaces_have_their_own():
    with node("nft") as one, node("nft") as other:
        for it in (one, other):
            it.api.bulk_put(cluster(1))
            it.start()
        for it in (one, other):
            it.wait_ready()


def test_init_only_and_version_work_beside_it():
    with node("nft") as it:
        it.api.bulk_put(cluster(1))
        it.start()
        it.wait_ready()
        program = ["-m", "pykubeproxy"]
        for what in (["--init-only"], ["--version"]):
            it.run("env", f"PYTHONPATH={ROOT}", sys.executable, *program, *what)


def test_cleanup_beside_it_is_refused_and_removes_nothing():
    with node("nft") as it:
        it.api.bulk_put(cluster(1))
        running = it.start()
        it.wait_ready()
        before = it.table().chains
        argv = ["ip", "netns", "exec", it.name, sys.executable, "-m", "pykubeproxy", "--cleanup"]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f"pykubeproxy (process {running.pid}) runs in this network namespace" in done.stderr
        assert "nothing was removed" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert it.table().chains == before


def test_a_user_without_rights_cannot_keep_it_from_starting():
    with bare() as it:
        (it.folder / "m.yaml").write_text("")
        argv = ["ip", "netns", "exec", it.name, sys.executable, "-c", SQUATTER]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as squatter:
            try:
                assert squatter.stdout.readline() == "held\n"
                log = it.folder / "log"
                process = it.spawn("--manifests", str(it.folder / "m.yaml"), log=log)
                try:
                    eventually(lambda: "started" in log.read_text(), "started")
                    assert "lock not had" in log.read_text()
                finally:
                    process.terminate()
                    assert process.wait(30) == 0
            finally:
                squatter.kill()
