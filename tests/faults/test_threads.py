"""A crash in any thread ends the process with its traceback; watching again a thousand times leaves nothing behind.

The daemon runs as it is, but for code around it that only these tests have: there is no seam for it in the program.
"""

import re
import signal
from pathlib import Path

import pytest

from tests.support.node import cluster, endpoint_slice, eventually, node, pod, service

pytestmark = pytest.mark.netns

CRASHER = """
import ctypes, pathlib, sys, threading, time
folder = pathlib.Path(sys.argv.pop(1))
class Injected(BaseException):
    pass
def lurk():
    while True:
        time.sleep(0.05)
        (folder / "threads").write_text("\\n".join(t.name for t in threading.enumerate()))
        victim = folder / "victim"
        if victim.exists():
            name = victim.read_text()
            victim.unlink()
            for thread in threading.enumerate():
                if thread.name == name:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Injected))
threading.Thread(target=lurk, name="lurker", daemon=True).start()
from pykubeproxy.cli import main
sys.exit(main())
"""
VICTIMS = ["watch-services", "watch-endpointslices", "sync-IPv4", "conntrack-IPv4", "http", "config-watch", "events"]


def config(it, seconds):
    return (
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nhostnameOverride: node-a\n"
        f"clientConnection: {{kubeconfig: {it.kubeconfig}}}\nclusterCIDR: 10.244.0.0/16\nconntrack: {{maxPerCore: 0}}\n"
        f"iptables: {{minSyncPeriod: 10ms, syncPeriod: {seconds}s}}\n"
    )


def udp(number):
    ports = [{"name": "http", "protocol": "UDP", "port": 53, "targetPort": 8080}]
    return service(number, name="udp", ports=ports)


def stir(it, turn):
    """Give every thread something to do."""
    it.api.put(service(turn % 7, name=f"new-{turn % 7}", sessionAffinity="ClientIP" if turn % 2 else "None"))
    it.api.put(udp(100 + turn))
    it.api.put(
        endpoint_slice(100, [pod(100, turn % 4)], name="udp", ports=[{"name": "http", "port": 8080, "protocol": "UDP"}])
    )
    # An address that two services claim is worth an Event.
    for name in ("one", "two"):
        it.api.put(service(200, name=name, externalIPs=[f"198.51.100.{turn % 250}"]))
    it.get(10249, "/metrics")
    (it.folder / "config.yaml").write_text(config(it, 20 + turn % 9))


@pytest.mark.parametrize("victim", [*VICTIMS, "drift"])
def test_a_crash_in_any_thread_ends_the_process_with_its_traceback(victim):
    with node("nft") as it:
        (it.folder / "config.yaml").write_text(config(it, 30))
        it.program = ("-c", CRASHER, str(it.folder))
        it.api.bulk_put(cluster(3))
        it.start("--config", str(it.folder / "config.yaml"))
        it.wait_ready()
        name = "nft-watch" if victim == "drift" else victim
        eventually(lambda: name in (it.folder / "threads").read_text().split("\n"), f"the thread {name}")
        turns = iter(range(10_000))

        def has_ended():
            turn = next(turns)
            if turn % 20 == 0:  # once more: Python drops an exception that happens to come inside a destructor
                (it.folder / "victim.new").write_text(name)
                (it.folder / "victim.new").rename(it.folder / "victim")
            stir(it, turn + 1)
            return it.process.poll() is not None

        eventually(has_ended, f"the end after a crash in {name}\n{it.words()}", patience=60, interval=0.2)
        assert it.process.returncode == 1
        it.process = None
        words = it.log.read_text()
        assert "Traceback (most recent call last)" in words
        assert "Injected" in words


QUICK = """
import sys
import pykubeproxy.watch.reflector as reflector
reflector.WATCH_INTERVAL = 0.01
from pykubeproxy.cli import main
sys.exit(main())
"""
RECONNECTS = 1000


def test_watching_a_thousand_times_leaves_no_thread_and_no_socket():
    with node("nft") as it:
        it.program = ("-c", QUICK)
        it.api.bulk_put(cluster(3))
        it.start()
        it.wait_ready()

        def held():
            proc = Path(f"/proc/{it.process.pid}")
            rss = int(re.search(r"VmRSS:\s+(\d+)", (proc / "status").read_text())[1])
            return len(list((proc / "task").iterdir())), len(list((proc / "fd").iterdir())), rss

        def watches():
            return it.api.stats.count("watch")

        it.api.faults.close_watches_after(0.02)
        it.api.faults.end_watches()
        eventually(lambda: watches() > 100, "a hundred watches")
        threads, files, rss = held()
        eventually(lambda: watches() > 100 + RECONNECTS, "a thousand watches", patience=120)
        assert held()[0] <= threads
        assert held()[1] <= files + 3  # a connection may be on its way
        assert held()[2] <= rss + 4096
        it.api.faults.close_watches_after(None)
        it.api.put(service(9))
        it.api.put(endpoint_slice(9, [pod(9, 0)]))
        eventually(lambda: "default/svc-9" in it.save(), "the daemon still follows")
        assert it.stop(signal.SIGTERM) == 0
