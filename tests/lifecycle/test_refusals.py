"""Whatever keeps it from working is one clear line, and exit status 1 (the machine) or 2 (what was asked)."""

import fcntl
import os
import subprocess
import sys

import pytest

from tests.lifecycle.bare import bare
from tests.support.node import ROOT, eventually

NO_SUCH_SERVER = """apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


AS_NOBODY = """
import os, sys
import pykubeproxy.cli, pykubeproxy.daemon, pykubeproxy.watch.once
os.setgroups([]), os.setgid(65534), os.setuid(65534)
pykubeproxy.cli.main()
"""


def run(*arguments, program=("-m", "pykubeproxy")):
    return subprocess.run(
        [sys.executable, *program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def errors(done):
    return [line for line in done.stderr.splitlines() if line.startswith("pykubeproxy: ")]


def test_an_unknown_flag():
    done = run("--no-such-flag")
    assert done.returncode == 2
    assert len(errors(done)) == 1
    assert "--no-such-flag" in errors(done)[0]
    assert "--help" in done.stderr


def test_a_value_that_makes_no_sense():
    done = run("--iptables-masquerade-bit", "32")
    assert done.returncode == 2
    assert len(errors(done)) == 1
    assert "masquerade" in errors(done)[0].lower()


def test_a_positional_argument():
    done = run("start")
    assert done.returncode == 2
    assert "start" in errors(done)[0]


def test_every_fault_of_a_configuration_at_once(tmp_path):
    config = tmp_path / "config.conf"
    config.write_text(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
        "clusterCIDR: 10.0.0.0/33\noomScoreAdj: 5000\n"
    )
    done = run("--config", str(config))
    assert done.returncode == 2
    assert [word for word in ("clusterCIDR", "oomScoreAdj") if word in done.stderr] == ["clusterCIDR", "oomScoreAdj"]
    assert len(errors(done)) == 2


def test_a_configuration_that_is_not_there(tmp_path):
    done = run("--config", str(tmp_path / "none"))
    assert done.returncode == 2
    assert len(errors(done)) == 1
    assert str(tmp_path / "none") in errors(done)[0]


@pytest.mark.netns
def test_no_cluster():
    with bare() as it:
        done = it.program("--hostname-override", "node-a", env={"KUBERNETES_SERVICE_HOST": ""})
    assert done.returncode == 2
    assert len(errors(done)) == 1
    assert "--kubeconfig" in errors(done)[0]


@pytest.mark.netns
def test_a_kubeconfig_that_names_no_server():
    with bare() as it:
        (it.folder / "kubeconfig").write_text(NO_SUCH_SERVER)
        done = it.program("--kubeconfig", str(it.folder / "kubeconfig"))
    assert done.returncode == 2
    assert len(errors(done)) == 1
    assert "server" in errors(done)[0]


@pytest.mark.netns
@pytest.mark.parametrize("what", [["--cleanup"], ["--manifests", "/dev/null"]])
def test_no_iptables(what):
    with bare() as it:
        done = it.program(*what, env={"PATH": "/nonexistent"})
    assert done.returncode == 1
    assert len(errors(done)) == 1
    assert "install the iptables package" in errors(done)[0]


@pytest.mark.netns
def test_a_backend_that_is_not_installed():
    with bare() as it:
        folder = it.folder / "bin"
        folder.mkdir()
        for name in ("iptables-nft", "iptables-nft-restore", "iptables-nft-save"):
            (folder / name).symlink_to(it.run("which", name).stdout.strip())
        done = it.program("--manifests", "/dev/null", "--iptables-backend", "legacy", env={"PATH": str(folder)})
    assert done.returncode == 1
    assert "iptables-legacy-restore is not installed" in errors(done)[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
@pytest.mark.parametrize("what", [["--cleanup"], ["--manifests", "/dev/null"]])
def test_no_root(what):
    # It may not be allowed to read this interpreter's libraries, so everything is loaded first.
    done = run(*what, program=("-c", AS_NOBODY))
    assert done.returncode == 1
    assert len(errors(done)) == 1
    assert "needs root" in errors(done)[0]


@pytest.mark.netns
@pytest.mark.parametrize("backend", ["legacy", "nft"])
def test_root_without_the_capabilities(backend):
    with bare() as it:
        program = [sys.executable, "-m", "pykubeproxy", "--manifests", "/dev/null", "--iptables-backend", backend]
        done = it.run("setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin", *program, check=False)
    assert done.returncode == 1
    assert len(errors(done)) == 1
    assert "CAP_NET_ADMIN" in errors(done)[0]


@pytest.mark.netns
@pytest.mark.parametrize("what", [["--cleanup"], ["--manifests", "/dev/null"]])
def test_a_lock_file_that_is_a_directory(what):
    """R020 (k/k#46103): docker makes a directory where a hostPath without a type leads nowhere."""
    with bare() as it:
        it.restore("legacy", "IPv4", "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n")
        (it.folder / "xtables.lock").unlink()
        (it.folder / "xtables.lock").mkdir()
        done = it.program(*what, "--iptables-backend", "legacy")
    assert done.returncode == 1
    assert len(errors(done)) == 1
    assert "xtables.lock" in errors(done)[0]
    assert "FileOrCreate" in errors(done)[0]


@pytest.mark.netns
def test_a_lock_that_is_held_for_long_costs_no_family():
    with bare() as it:
        (it.folder / "xtables.lock").touch()
        it.restore("legacy", "IPv4", "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n")
        log = it.folder / "log"
        with (it.folder / "xtables.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            process = it.spawn("--manifests", "/dev/null", "--iptables-backend", "legacy", log=log)
            try:
                eventually(lambda: "lock busy" in log.read_text(), "told that it waits")
                fcntl.flock(lock, fcntl.LOCK_UN)
                eventually(lambda: '"event": "started"' in log.read_text(), "started")
            finally:
                process.terminate()
                process.wait(30)
        assert "family unsupported" not in log.read_text()
