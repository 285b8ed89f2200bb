"""What people reported about kube-proxy, tried on this daemon: R029, R031, R034, R037, R038."""

import re
import shutil
import socket

import pytest

from tests.drift.drifting import (
    BACKENDS,
    FAMILIES,
    WEB,
    change,
    eventually,
    everything,
    healed,
    iptables,
    restore,
    restores,
    running,
    synced,
    words,
)
from tests.support.node import cluster, endpoint_slice, inside, pod

pytestmark = pytest.mark.netns


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_r029_syncs_and_restarts_leave_each_jump_once(backend):
    with running(backend) as it:
        change(it, 0)
        right = everything(it)
        for number in range(30):
            change(it, 1 + number % 2)
        for _ in range(4):
            before = len(synced(it))
            it.stop()
            it.start("-v", "4", "--iptables-sync-period", "1h")
            eventually(lambda before=before: len(synced(it)) >= before + 2, f"both families' first sync\n{it.words()}")
            it.wait_ready()
            assert [restores(it, family) for family in FAMILIES] == [0, 0]
        change(it, 0)
        assert everything(it) == right
        for family in FAMILIES:
            _, jumps = right[family]
            for rules in jumps.values():
                assert len(rules) == len(set(rules))


@pytest.mark.parametrize("backend", BACKENDS)
def test_r031_a_chain_deleted_by_hand_while_another_service_changes(backend):
    """The partial sync of kube-proxy said 'Chain does not exist' and never came back."""
    sep = WEB.endpoint("10.244.0.1:8080")
    with running(backend) as it:
        right = everything(it)
        restore(it, "IPv4", f"*nat\n:{WEB.cluster} - [0:0]\n-F {sep}\n-X {sep}\nCOMMIT\n")
        change(it, 5)
        eventually(lambda: sep in it.save() and f"-A {WEB.cluster} " in it.save(), f"healed\n{it.words()}")
        it.api.delete("EndpointSlice", "default", "idle-abcde")
        eventually(lambda: everything(it) == right, f"everything as it was\n{it.words()}")


@pytest.mark.parametrize("backend", BACKENDS)
def test_r031_no_service_is_blamed_for_what_another_program_did(backend, tmp_path):
    """The very service whose chains were deleted changes, before anybody has looked: the first input is refused."""
    from tests.drift.test_controls import blind  # noqa: PLC0415

    sep = WEB.endpoint("10.244.0.1:8080")
    with running(backend, "--iptables-sync-period", "1h", env=blind(tmp_path)) as it:
        restore(it, "IPv4", f"*nat\n:{WEB.cluster} - [0:0]\n-F {sep}\n-X {sep}\nCOMMIT\n")
        it.api.put(endpoint_slice(0, [*(pod(0, i) for i in range(3)), "10.244.7.7"], name="web"))
        eventually(lambda: WEB.endpoint("10.244.7.7:8080") in it.save(), f"the new endpoint's chain\n{it.words()}")
        assert f"-A {sep} " in it.save()
        assert words(it, "service left out") == []
        assert it.metric('pykubeproxy_quarantined_services{ip_family="IPv4"}') == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_r034_a_large_cluster_is_healed_too(backend):
    """1,200 endpoints: kube-proxy then looks at everything once an hour."""
    with running(backend) as it:
        it.api.bulk_put(cluster(240))
        eventually(lambda: it.save().count(":KUBE-SEP-") >= 1200, "all endpoints")
        right = everything(it)
        iptables(it, "IPv4", "-t", "nat", "-F")
        eventually(lambda: healed(it, "nat"), f"healed\n{it.words()}")
        eventually(lambda: everything(it) == right, "everything as it was")


@pytest.mark.parametrize("backend", BACKENDS)
def test_r037_verifying_writes_nothing_and_keeps_the_counters(backend):
    with running(backend, "--iptables-sync-period", "1s") as it:

        def send() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"?", ("10.96.0.1", 80))

        def counted() -> dict[str, str]:
            saved = it.run(f"iptables-{backend}-save", "-c", "-t", "nat")
            return {rule: count for count, rule in re.findall(r"^\[(\d+:\d+)\] (-A KUBE-.*)$", saved, re.MULTILINE)}

        it.run("ip", "route", "add", "10.96.0.0/16", "dev", "eth0")
        inside(it.name, send)
        before, counts = restores(it), counted()
        assert any(count != "0:0" for count in counts.values())
        done = len(synced(it, reason="period"))
        eventually(lambda: len(synced(it, reason="period")) >= done + 6, "three periods of both families")
        assert restores(it) == before
        now = counted()
        assert now.keys() == counts.keys()
        assert all(int(now[rule].split(":")[0]) >= int(count.split(":")[0]) for rule, count in counts.items())


@pytest.mark.parametrize("backend", BACKENDS)
def test_r038_an_iptables_whose_check_always_fails(backend, tmp_path):
    """iptables 1.8.0 to 1.8.2 said so, and kube-proxy inserted each jump again at every sync."""
    for name in (f"iptables-{backend}", f"ip6tables-{backend}"):
        stub = tmp_path / name
        stub.write_text(
            '#!/bin/sh\nfor word in "$@"; do\n'
            f"case $word in -C|--check) echo asked >> {tmp_path}/asked; exit 1;; esac\ndone\n"
            f'exec {shutil.which(name)} "$@"\n'
        )
        stub.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    with running(backend, "--iptables-sync-period", "1h", env=env) as it:
        change(it, 0)
        right = everything(it)
        for number in range(20):
            change(it, 1 + number % 2)
        change(it, 0)
        assert everything(it) == right
        assert not (tmp_path / "asked").exists()
        for _, jumps in right.values():
            assert all(len(rules) == len(set(rules)) for rules in jumps.values())
