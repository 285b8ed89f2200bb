"""``--init-only`` sets what needs more rights than the daemon should have, once and without lowering anything."""

import sys

import pytest

from tests.lifecycle.bare import bare

pytestmark = pytest.mark.netns
LOCALNET = "net.ipv4.conf.all.route_localnet"
ESTABLISHED = "net.netfilter.nf_conntrack_tcp_timeout_established"


def value(it, name):
    return int(it.run("sysctl", "-n", name).stdout)


def test_it_sets_sysctls_and_ends():
    with bare() as it:
        done = it.program("--init-only", "--conntrack-max-per-core", "0", "--conntrack-tcp-timeout-established", "1h")
        assert done.returncode == 0, done.stderr
        assert value(it, LOCALNET) == 1
        assert value(it, ESTABLISHED) == 3600
        assert it.chains("nft", "IPv4") == set()


def test_it_asks_no_api_server():
    with bare() as it:
        done = it.program("--init-only", "--conntrack-max-per-core", "0", env={"KUBERNETES_SERVICE_HOST": ""})
        assert done.returncode == 0, done.stderr


def test_zero_leaves_everything_alone():
    with bare() as it:
        before = value(it, ESTABLISHED)
        zeros = [
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        ]
        assert it.program("--init-only", "--iptables-localhost-nodeports=false", *zeros).returncode == 0
        assert value(it, ESTABLISHED) == before
        assert value(it, LOCALNET) == 0


def test_the_configuration_of_kubeadm_is_enough():
    with bare() as it:
        (it.folder / "config.conf").write_text(
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
            "conntrack: {maxPerCore: 0, min: null, tcpCloseWaitTimeout: null, tcpEstablishedTimeout: 0s}\n"
            "clientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig.conf}\nmode: ''\n"
        )
        done = it.program("--init-only", "--config", str(it.folder / "config.conf"))
        assert done.returncode == 0, done.stderr
        assert value(it, LOCALNET) == 1


def test_without_rights_it_fails_and_says_what_it_could_not_set():
    """As kube-proxy does. What is set already needs no rights."""
    # Imported first: nobody may not be able to read where this Python lies.
    nobody = "import encodings.ascii, gettext, os; from pykubeproxy import cli, once; os.setuid(65534); cli.main()"
    zeros = ["--conntrack-max-per-core=0", "--conntrack-tcp-timeout-close-wait=0"]
    asked = ["-c", nobody, "--init-only", "--conntrack-tcp-timeout-established=1h", *zeros]
    with bare() as it:
        done = it.run(sys.executable, *asked, check=False)
        assert done.returncode == 1
        assert "tcp_timeout_established=3600: Permission denied" in done.stderr.splitlines()[-1]
        it.run("sysctl", "-qw", f"{LOCALNET}=1", f"{ESTABLISHED}=3600")
        assert it.run(sys.executable, *asked, check=False).returncode == 0


def test_a_read_only_sysctl_is_one_warning_and_no_failure():
    """R016 (kind#2240, LXC, rootless)."""
    with bare() as it:
        remount = "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys"
        script = f"{remount} && {sys.executable} -m pykubeproxy --init-only"
        done = it.run("unshare", "-m", "sh", "-c", script, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("sysctls not set") + done.stdout.count("sysctls not set") == 1
