"""SIGTERM leaves the rules and ends at once; after any end the next start writes nothing (R092)."""

import re
import signal
import time

import pytest

from tests.lifecycle.bare import BACKENDS
from tests.support.node import cluster, node

pytestmark = pytest.mark.netns
_COUNTERS = re.compile(r"\[\d+:\d+\]|^#.*", re.MULTILINE)


def rules(it):
    places = [(family, table) for family in ("IPv4", "IPv6") for table in ("nat", "filter", "mangle")]
    return [_COUNTERS.sub("", it.save(family, table)) for family, table in places]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_the_rules_stay_and_the_next_start_writes_nothing(backend, number):
    with node(backend) as it:
        it.api.bulk_put(cluster(5))
        it.start()
        it.wait_ready()
        before = rules(it)
        status = it.stop(number)
        assert status == (-number if number == signal.SIGKILL else 0)
        assert ('"event": "stopping"' in it.words()) is (status == 0)
        assert rules(it) == before
        it.start()
        it.wait_ready()
        assert rules(it) == before
        for family in ("IPv4", "IPv6"):
            done = f'pykubeproxy_restores_total{{ip_family="{family}",result="success"}}'
            assert it.metric(done) == 0


def test_sigterm_ends_it_while_the_api_server_is_silent():
    with node("nft") as it:
        it.api.faults.hang(times=None)
        it.start()
        while it.get(10256, "/livez")[0] != 200:
            time.sleep(0.02)
        started = time.monotonic()
        assert it.stop(signal.SIGTERM) == 0
        assert time.monotonic() - started < 20, "not a measurement: no read timeout of 30 s or more was waited for"


def test_sigterm_ends_it_while_a_restore_hangs():
    with node("nft") as it:
        it.api.bulk_put(cluster(5))
        folder = it.folder / "bin"
        folder.mkdir()
        for stem in ("iptables", "ip6tables"):
            shim = folder / f"{stem}-nft-restore"
            shim.write_text(f"#!/bin/sh\ntouch {it.folder}/reached\nexec sleep 600\n")
            shim.chmod(0o755)
        it.start(env={"PATH": f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin"})
        while not (it.folder / "reached").exists():
            time.sleep(0.02)
        assert it.stop(signal.SIGTERM) == 0


IGNORING = """
import signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from pykubeproxy.cli import main
main()
"""


def test_sighup_is_ignored_where_it_was_at_the_start():
    with node("nft") as it:
        it.program = ("-c", IGNORING)
        it.api.bulk_put(cluster(1))
        it.start()
        it.wait_ready()
        it.process.send_signal(signal.SIGHUP)
        assert it.stop(signal.SIGTERM) == 0
        assert it.words().count('"event": "stopping"') == 1
