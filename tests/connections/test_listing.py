"""Counters are read as iptables prints them: the same rules and numbers as iptables-save -c, of either backend."""

import fcntl
import re
import threading

import pytest

from pykubeproxy.errors import LockBusyError, NetfilterError, UnreadableTable
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.counters import listing, rules, translations
from tests.support.kernel import real_kernel
from tests.support.trixie import Unreachable, iptables_root

pytestmark = pytest.mark.netns

RULES = """\
*nat
:KUBE-FW-AAAA - [0:0]
:KUBE-SEP-AAAA - [0:0]
:KUBE-SEP-BBBB - [0:0]
:KUBE-SVC-AAAA - [0:0]
[3:180] -A OUTPUT -j KUBE-SVC-AAAA
[0:0] -A KUBE-FW-AAAA -m comment --comment "other traffic to a/b -c 1 2 will be dropped by KUBE-PROXY-FIREWALL"
[7:420] -A KUBE-SVC-AAAA -m comment --comment "default/web -> 10.0.0.1:80" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-AAAA
[8:480] -A KUBE-SVC-AAAA -m comment --comment "default/web -> 10.0.0.2:80" -j KUBE-SEP-BBBB
[0:0] -A KUBE-SEP-AAAA -s 10.0.0.1/32 -j RETURN
[7:420] -A KUBE-SEP-AAAA -p tcp -m comment --comment "default/web" -m recent --set --name KUBE-SEP-AAAA --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.0.0.1:80
[123456789012:7] -A KUBE-SEP-BBBB -p udp -m udp -j DNAT --to-destination 10.0.0.2:80
COMMIT
"""  # noqa: E501 - rules as they are printed
_SAVED = re.compile(r"^\[(\d+):(\d+)\] -A (\S+) ?(.*)$", re.MULTILINE)


def restore(kernel, document):
    wait = ["-w", "5"] if kernel.kind == "legacy" else []
    done = kernel.run([f"iptables-{kernel.kind}-restore", *wait, "--noflush", "--counters"], document.encode())
    assert done.status == 0, done.complaint


@pytest.fixture(params=["nft", "legacy", "nft of Debian 13", "legacy of Debian 13"])
def kernel(request):
    kind, _, other = request.param.partition(" ")
    root = None
    if other:
        try:
            root = iptables_root()
        except Unreachable as why:
            pytest.skip(str(why))
    with real_kernel(kind, root=root) as it:
        restore(it, RULES)
        yield it


def test_the_same_as_iptables_save(kernel):
    saved = kernel.run([f"iptables-{kernel.kind}-save", "-c", "-t", "nat"]).stdout.decode()
    wanted = [(chain, rule, int(packets), int(octets)) for packets, octets, chain, rule in _SAVED.findall(saved)]
    assert len(wanted) == 7
    found = [tuple(rule) for rule in rules(listing(Backend(kernel.kind, "IPv4"), kernel, "nat"))]
    assert sorted(found) == sorted(wanted)


def test_what_was_led_to_endpoints(kernel):
    found = translations(listing(Backend(kernel.kind, "IPv4"), kernel, "nat"))
    assert found == {"KUBE-SEP-AAAA": ("10.0.0.1:80", 7), "KUBE-SEP-BBBB": ("10.0.0.2:80", 123456789012)}


def test_one_chain(kernel):
    found = list(rules(listing(Backend(kernel.kind, "IPv4"), kernel, "nat", "KUBE-SVC-AAAA")))
    assert [rule.packets for rule in found] == [7, 8]
    with pytest.raises(NetfilterError):
        listing(Backend(kernel.kind, "IPv4"), kernel, "nat", "KUBE-SVC-NONE")


def test_never_less_while_others_restore(kernel):
    """On legacy each writer exchanges the whole table, and puts the counters back afterwards."""
    chains = [f"KUBE-SEP-{number:04}" for number in range(1000)]
    document = "*nat\n" + "".join(f":{chain} - [0:0]\n" for chain in chains)
    for number, chain in enumerate(chains):
        document += f"[{number}:0] -A {chain} -p tcp -m tcp -j DNAT --to-destination 10.1.0.1:{number + 1}\n"
    restore(kernel, f"{document}COMMIT\n")
    wanted = {chain: (f"10.1.0.1:{number + 1}", number) for number, chain in enumerate(chains)}
    ended, written = threading.Event(), []

    def write():
        while not ended.wait(0.02):
            chain = f"OTHER-{len(written) % 5}"
            network = f"10.9.{len(written) % 250}.0/24"
            restore(kernel, f"*nat\n:{chain} - [0:0]\n-A {chain} -s {network} -j RETURN\nCOMMIT\n")
            written.append(chain)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        readings = 0
        while writer.is_alive() and (readings < 10 or len(written) < 30):
            readings += 1
            found = translations(listing(Backend(kernel.kind, "IPv4"), kernel, "nat"))
            assert {chain: found.get(chain) for chain in chains} == wanted
    finally:
        ended.set()
        writer.join()
    assert len(written) >= 30


def test_legacy_waits_for_the_lock():
    """Who holds it may be exchanging the table; what iptables-save would print meanwhile are zeros."""
    with real_kernel("legacy") as kernel, kernel.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(LockBusyError):
            listing(Backend("legacy", "IPv4"), kernel, "nat")
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert listing(Backend("legacy", "IPv4"), kernel, "nat")


def test_a_rule_that_iptables_cannot_print_makes_the_table_unreadable_and_no_other_chain():
    with real_kernel("nft") as kernel:
        restore(kernel, RULES)
        kernel.run(["nft", "insert rule ip nat OUTPUT meta cpu 0 accept"])
        with pytest.raises(UnreadableTable):
            listing(Backend("nft", "IPv4"), kernel, "nat")
        assert listing(Backend("nft", "IPv4"), kernel, "nat", "KUBE-SEP-BBBB").count(b"-A ") == 1
