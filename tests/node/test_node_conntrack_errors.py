"""What a pass does when the kernel refuses, lacks something, or has moved on."""

import errno
import struct
import sys
import tracemalloc
from pathlib import Path

import pytest
from conntrack_entries import TCP, entry, insert
from node_netns import Namespace
from structlog.testing import capture_logs

from pykubeproxy.errors import EnvironmentProblem
from pykubeproxy.node import conntrack
from pykubeproxy.node.conntrack import DesiredUdp, reconcile
from pykubeproxy.node.netlink import NETLINK_NETFILTER, NetlinkSocket, message

CLIENT, VIP, P1 = ("10.244.0.50", 5000), ("10.96.0.50", 53), ("10.244.0.11", 5353)
STALE = DesiredUdp(services={VIP: frozenset()})


class OldKernel(NetlinkSocket):
    """A kernel that does not know CTA_FILTER: ``refuses`` it, or ignores it and sends everything."""

    refuses = False

    def __init__(self):
        super().__init__(NETLINK_NETFILTER)

    def dump(self, kind, body):
        if self.refuses and len(body) > 4:
            raise OSError(errno.EOPNOTSUPP, "no")
        yield from super().dump(kind, body[:4])


class RefusingKernel(OldKernel):
    refuses = True


@pytest.mark.netns
@pytest.mark.parametrize("connect", [OldKernel, RefusingKernel])
def test_a_kernel_that_cannot_choose_sends_everything(connect):
    with Namespace() as namespace:
        namespace.assert_isolated()
        bodies = [entry(CLIENT, VIP, P1, protocol=TCP), entry(CLIENT, VIP, P1), entry(CLIENT, VIP, P1, zone=4)]
        namespace.call(insert, bodies)
        result = namespace.call(reconcile, "IPv4", STALE, connect=connect)
        assert (result.scanned, result.deleted) == (2, 2)
        assert "tcp" in namespace.run("conntrack", "-L", "-p", "tcp")


@pytest.mark.netns
def test_without_rights_it_is_one_clear_error():
    script = (
        "from pykubeproxy.node.conntrack import *\n"
        f"try: reconcile('IPv4', DesiredUdp(services={{{VIP!r}: frozenset()}}))\n"
        "except EnvironmentProblem as error: print(error)"
    )
    with Namespace() as namespace:
        namespace.assert_isolated()
        drop = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"]
        said = namespace.run(*drop, sys.executable, "-c", script)
    assert said == "cannot clean up IPv4 UDP connection tracking: Operation not permitted\n"


@pytest.mark.netns
def test_an_entry_with_another_id_survives():
    """What has taken the place of a stale entry between reading and deleting: the same tuples, another id."""

    class Mistaken(NetlinkSocket):
        def __init__(self):
            super().__init__(NETLINK_NETFILTER)

        def request(self, kind, flags, bodies):
            identity = struct.pack("=HH", 8, 12)  # CTA_ID
            wrong = []
            for body in bodies:
                at = body.rindex(identity) + 4
                wrong.append(body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
            return super().request(kind, flags, wrong)

    with Namespace() as namespace:
        namespace.assert_isolated()
        namespace.call(insert, [entry(CLIENT, VIP, P1)])
        result = namespace.call(reconcile, "IPv4", STALE, connect=Mistaken)
        assert (result.scanned, result.deleted, result.failed) == (1, 0, 0)
        assert namespace.call(reconcile, "IPv4", STALE).deleted == 1


class Answers:
    """A kernel that holds one stale entry and answers its deletion with ``code``."""

    def __init__(self, code):
        self.code = code
        self.body = entry(CLIENT, VIP, P1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def dump(self, kind, body):
        filled = message(0x100, 0, self.body)
        yield bytearray(filled + bytes(512)), len(filled)

    def request(self, kind, flags, bodies):
        return [self.code] * len(bodies)


@pytest.mark.parametrize(
    ("code", "deleted", "failed"), [(0, 1, 0), (errno.ENOENT, 0, 0), (errno.EBUSY, 0, 1), (errno.EINVAL, 0, 1)]
)
def test_answers_to_a_deletion(code, deleted, failed):
    result = reconcile("IPv4", STALE, connect=lambda: Answers(code), clock=iter([1.0, 3.5]).__next__)
    assert (result.scanned, result.deleted, result.failed, result.seconds) == (1, deleted, failed, 2.5)


def test_deletion_that_is_forbidden_is_an_error():
    with pytest.raises(EnvironmentProblem, match="deleting entries is not permitted"):
        reconcile("IPv4", STALE, connect=lambda: Answers(errno.EPERM))


def test_no_socket_is_an_error():
    def connect():
        raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")

    with pytest.raises(EnvironmentProblem, match="IPv6 UDP connection tracking: Protocol not supported"):
        reconcile("IPv6", STALE, connect=connect)


@pytest.mark.netns
def test_a_silent_kernel_is_an_error_and_no_hang():
    with Namespace() as namespace:
        namespace.assert_isolated()

        def ask():
            with NetlinkSocket(NETLINK_NETFILTER, timeout=0.05) as netlink:
                return list(netlink.dump(conntrack._GET, b""))  # too short for nfnetlink: no answer at all

        with pytest.raises(OSError):
            namespace.call(ask)


@pytest.mark.netns
def test_memory_stays_the_same_however_long_the_table_is():
    """The reconciler of kube-proxy 1.32 took gigabytes (k/k#129982)."""
    entries = [
        entry(
            (f"10.{i >> 14}.{i >> 8 & 63}.{i & 255}", 5000), VIP if i % 3 else ("192.0.2.1", 53), P1 if i % 3 else None
        )
        for i in range(60_000)
    ]
    with Namespace() as namespace:
        namespace.assert_isolated()
        namespace.call(insert, entries)
        tracemalloc.start()
        try:
            result = namespace.call(reconcile, "IPv4", STALE)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (result.scanned, result.deleted) == (60_000, 40_000)
    assert peak < 2_000_000


@pytest.mark.netns
def test_loading_the_module_is_harmless():
    with Namespace() as namespace:
        namespace.assert_isolated()
        with capture_logs() as logs:
            namespace.call(conntrack.load_module)
        assert logs == []
        assert Path("/proc/sys/net/netfilter/nf_conntrack_max").exists()
