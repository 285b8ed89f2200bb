"""What a person is told of odd objects by the whole daemon: Events on the services, and the metric (S11, S12, R022)."""

import pytest

from pykubeproxy.node.nfacct import recent_limit
from tests.support.node import NODE, endpoint_slice, eventually, node, service

pytestmark = pytest.mark.netns

OPEN = service(
    1,
    type="LoadBalancer",
    loadBalancerSourceRanges=["2001:db8::/32"],
) | {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}}
FIRST = service(2, externalIPs=["198.51.100.7"])
SECOND = service(3, externalIPs=["198.51.100.7", "2001:db8::1"])


def told(node):
    return sorted(
        (event["involvedObject"]["name"], event["reason"])
        for event in node.api.objects("Event")
        if event["involvedObject"]["kind"] == "Service"
    )


def test_losers_and_open_addresses_get_events_once():
    with node("nft") as there:
        slices = [endpoint_slice(number, [f"10.244.0.{number}"]) for number in (1, 2, 3)]
        there.api.bulk_put([NODE, OPEN, FIRST, SECOND, *slices])
        there.start()
        there.wait_ready()
        wanted = [("svc-1", "SourceRangesOpen"), ("svc-3", "AddressConflict"), ("svc-3", "InvalidField")]
        eventually(lambda: told(there) == wanted, f"events, found {told(there)}")
        assert there.metric('pykubeproxy_source_ranges_open{ip_family="IPv4"}') == 1
        assert there.metric("pykubeproxy_xt_recent_list_size") == recent_limit(), (
            "R049: what the kernel remembers is told"
        )
        event = next(e for e in there.api.objects("Event") if e["reason"] == "AddressConflict")
        assert event["type"] == "Warning"
        assert "198.51.100.7:80/TCP is claimed by Service default/svc-2 as well" in event["message"]
        there.api.bulk_put([endpoint_slice(3, ["10.244.0.33"])])
        eventually(lambda: "10.244.0.33" in there.save(), "the new endpoint")
        assert told(there) == wanted
        assert all(e.get("count", 1) == 1 for e in there.api.objects("Event") if e["reason"] != "InvalidField")
