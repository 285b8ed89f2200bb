"""Our own writes are no drift: however many, no verification is asked for because of them."""

import pytest

from tests.drift.drifting import BACKENDS, change, detected, eventually, restores, running, synced
from tests.support.node import cluster

pytestmark = pytest.mark.netns


@pytest.mark.parametrize("backend", BACKENDS)
def test_changes_of_services_ask_for_no_verification(backend):
    with running(backend) as it:
        before = restores(it)
        for number in range(25):
            change(it, number)
        assert restores(it) >= before + 25
        it.api.bulk_put(cluster(200))  # writes long enough for a watch to see them under way
        eventually(lambda: "KUBE-SVC-IP-" in it.save() or it.save().count(":KUBE-SVC-") > 200, "200 services more")
        change(it, 100)
        assert synced(it, reason="drift") == []
        for table in ("mangle", "filter", "nat"):
            assert detected(it, table) == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_others_write_elsewhere_rewrites_nothing(backend):
    """Pods come and go: their CNI plugin writes its own chains, and rules into nat POSTROUTING."""
    with running(backend) as it:
        before = restores(it)
        program = f"iptables-{backend} -w 30" if backend == "legacy" else f"iptables-{backend}"
        for number in range(10):
            it.run(
                "sh",
                "-c",
                f"{program} -t nat -N CNI-{number} && {program} -t nat -A CNI-{number} -j ACCEPT && "
                f"{program} -t nat -A POSTROUTING -s 10.244.0.{number} -j CNI-{number}",
            )
        eventually(lambda: synced(it, reason="drift", restores=0), "a look at what others wrote")
        change(it, 1)
        assert restores(it) == before + 1
        assert detected(it, "nat") == 0
