"""The daemon tells those on its machine whether it follows the cluster, and explain asks it."""

import json
import sys

import pytest

from tests.support.node import cluster, endpoint_slice, node

pytestmark = pytest.mark.netns


def test_explain_asks_the_daemon_and_lists_what_is_odd_in_slices():
    with node("nft") as it:
        bad = endpoint_slice(0, ["10.244.0.9", "fd00::9"], name="svc-0")
        bad["metadata"]["name"] = "by-hand"
        it.api.bulk_put([*cluster(1), bad])
        it.start()
        it.wait_ready()
        status, body = it.get(10249, "/debug/state")
        assert status == 200
        told = json.loads(body)
        assert (told["node"], told["notReady"], told["leftOut"]) == ("node-a", [], {"IPv4": {}, "IPv6": {}})

        def explained():
            words = ("-m", "pykubeproxy", "explain", "svc-0", *it.arguments())
            return it.run(sys.executable, *words)

        shown = explained()
        assert "the daemon follows the cluster" in shown
        assert "the kernel holds the rules that it should" in shown
        assert "EndpointSlice default/by-hand: endpoints[1].addresses[0]: 'fd00::9' is not" in shown
        it.stop()
        assert "no pykubeproxy runs here (127.0.0.1:10249: Connection refused)" in explained()
