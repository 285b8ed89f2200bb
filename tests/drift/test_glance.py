"""A glance through python-iptables: what it sees, what it must not touch, and that it leaks nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pykubeproxy.errors import NetfilterError
from pykubeproxy.netfilter import legacy
from pykubeproxy.netfilter.contents import tables_in_use
from tests.drift.drifting import eventually, iptables, running, words
from tests.support.kernel import netns, real_kernel
from tests.support.node import inside

pytestmark = pytest.mark.netns

FILTER = """*filter
:KUBE-FORWARD - [0:0]
:KUBE-SERVICES - [0:0]
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -p tcp -m tcp --dport 80 -j REJECT --reject-with {reject}
-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES
-A FORWARD
-A FORWARD -j ACCEPT
COMMIT
"""
REJECT = {"IPv4": "icmp-port-unreachable", "IPv6": "icmp6-port-unreachable"}


@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
def test_targets_are_seen_in_order(family):
    with real_kernel("legacy", family) as kernel:
        kernel.edit(FILTER.format(reject=REJECT[family]))
        seen = inside(
            kernel.netns, lambda: legacy.glance(family, "filter", ["FORWARD", "KUBE-FORWARD", "KUBE-NOT-THERE"])
        )
        assert seen.targets == {
            "FORWARD": ("KUBE-FORWARD", "REJECT", "KUBE-SERVICES", "", "ACCEPT"),
            "KUBE-FORWARD": (),
        }
        assert seen.chains == {"INPUT", "FORWARD", "OUTPUT", "KUBE-FORWARD", "KUBE-SERVICES"}


def test_nat_is_not_opened_in_this_process():
    with pytest.raises(ValueError, match="nat"):
        legacy.glance("IPv4", "nat")


def test_a_table_that_is_not_in_use_is_not_created():
    with netns() as name:
        with pytest.raises(NetfilterError):
            inside(name, lambda: legacy.missing("IPv4"))
        assert inside(name, lambda: tables_in_use("IPv4")) == frozenset()


def test_what_is_missing_is_named():
    with running("legacy") as it:
        for family in ("IPv4", "IPv6"):
            assert inside(it.name, lambda family=family: legacy.missing(family)) == []
        it.stop()
        iptables(it, "IPv4", "-D", "OUTPUT", "-j", "KUBE-FIREWALL")
        iptables(it, "IPv4", "-t", "mangle", "-X", "KUBE-PROXY-CANARY")
        assert inside(it.name, lambda: legacy.missing("IPv4")) == [
            "filter OUTPUT -> KUBE-FIREWALL",
            "mangle KUBE-PROXY-CANARY",
        ]
        assert inside(it.name, lambda: legacy.missing("IPv6")) == []


def maps(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def test_on_an_nft_host_the_library_is_never_loaded_and_no_legacy_table_appears():
    with running("nft") as it:
        iptables(it, "IPv4", "-t", "mangle", "-F")
        iptables(it, "IPv4", "-t", "filter", "-F")
        eventually(lambda: words(it, "drift", table="filter"), "drift was noticed")
        assert it.process is not None
        assert "libip4tc" not in maps(it.process.pid)
        assert inside(it.name, lambda: tables_in_use("IPv4")) == frozenset()


def test_on_a_legacy_host_it_is():
    """The control of the test above."""
    with running("legacy") as it:
        iptables(it, "IPv4", "-t", "mangle", "-F")
        assert it.process is not None
        eventually(lambda: "libip4tc" in maps(it.process.pid), "a glance")


GLANCES = """
import os
from pykubeproxy.netfilter import legacy
def size():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
def look(times):
    for _ in range(times):
        legacy.missing("IPv4")
    return size(), len(os.listdir("/proc/self/fd"))
before, after = look(500), look(5000)
print(after[0] - before[0], after[1] - before[1])
"""


def test_thousands_of_glances_cost_no_memory():
    with real_kernel("legacy") as kernel:
        kernel.edit(FILTER.format(reject=REJECT["IPv4"]))
        kernel.edit("*mangle\n:KUBE-PROXY-CANARY - [0:0]\nCOMMIT\n")
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        argv = ["nsenter", f"--net=/run/netns/{kernel.netns}", sys.executable, "-c", GLANCES]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, env=env)
        grown, descriptors = map(int, done.stdout.split())
        assert grown < 300_000
        assert descriptors == 0
