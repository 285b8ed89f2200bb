"""The upstream tests "Traffic Distribution" and "Topology Hints": a controller writes hints, the proxy follows them."""

import pytest

from tests.conformance.cluster import HERE, THERE, backend, leaves, reaches

pytestmark = [pytest.mark.netns, pytest.mark.slow]
ZONES = {"p1": "z1", "p2": "z1", "p3": "z1", "far": "z2"}


def zoned(pod, *zones, node=""):
    """An endpoint with hints as PreferSameZone (or topology-mode Auto), or with ``node`` PreferSameNode, makes them."""
    hints = {"forZones": [{"name": zone} for zone in zones or (ZONES[pod],)]}
    if node:
        hints["forNodes"] = [{"name": node}]
    return backend(pod, hints=hints)


@pytest.mark.parametrize("distribution", ["PreferClose", "PreferSameZone"])
def test_traffic_stays_in_the_zone_that_has_an_endpoint(site, distribution):
    service = site.service(f"zone-{distribution.lower()}", trafficDistribution=distribution)
    service.endpoints(zoned("p1"), zoned("far"))
    for place in (site.client, site.node):
        reaches(place, service.ips[4], 80, "p1")
    service.endpoints(zoned("p1"), zoned("p2"), zoned("far"))
    reaches(site.client, service.ips[4], 80, "p1", "p2")
    service.endpoints(zoned("far"))
    reaches(site.client, service.ips[4], 80, "far")
    service.endpoints(zoned("far"), zoned("p1", "z3"))
    reaches(site.client, service.ips[4], 80, "far", "p1")
    service.delete()


def test_traffic_stays_on_the_node_falls_back_to_the_zone_and_to_all(site):
    service = site.service("same-node", trafficDistribution="PreferSameNode")
    here, there = zoned("p1", node=HERE), zoned("far", node=THERE)
    service.endpoints(here, there)
    for place in (site.client, site.node):
        reaches(place, service.ips[4], 80, "p1")
    service.endpoints(leaves("p1", hints=here["hints"]), there)
    service.endpoints(there)
    reaches(site.client, service.ips[4], 80, "far")
    service.endpoints(zoned("p2", node=HERE), there)
    reaches(site.client, service.ips[4], 80, "p2")
    elsewhere = zoned("p3", node="node-a2")
    service.endpoints(elsewhere, there)
    reaches(site.client, service.ips[4], 80, "p3")
    service.endpoints(zoned("p3", "z3", node="node-c"), there)
    reaches(site.client, service.ips[4], 80, "p3", "far")
    service.delete()


def test_hints_that_not_all_endpoints_have_are_not_followed(site):
    service = site.service("topology")
    service.endpoints(zoned("p1"), zoned("far"))
    reaches(site.client, service.ips[4], 80, "p1")
    service.endpoints(zoned("p1"), "far")
    reaches(site.client, service.ips[4], 80, "p1", "far")
    service.delete()
