"""Off unless asked for, and never where other machines could read it."""

import json

import pytest

from tests.support.node import cluster, node

pytestmark = pytest.mark.netns


def test_off_unless_asked_for():
    with node("nft") as it:
        it.api.bulk_put(cluster(1))
        it.start()
        it.wait_ready()
        for path in ("/", "/services/default/svc-0", "/debug/services/default/svc-0"):
            assert it.get(10249, path)[0] == 404


def test_refused_on_an_address_of_the_node():
    with node("nft") as it:
        it.api.bulk_put(cluster(1))
        it.start("--status-page", "--metrics-bind-address", "0.0.0.0:10249")
        it.wait_ready()
        assert it.get(10249, "/metrics")[0] == 200
        for path in ("/", "/services/default/svc-0", "/debug/services/default/svc-0"):
            assert it.get(10249, path)[0] == 404
        lines = [json.loads(line) for line in it.log.read_text().splitlines() if "status page refused" in line]
        assert [(line["field"], line["address"]) for line in lines] == [("metricsBindAddress", "0.0.0.0:10249")]


@pytest.mark.slow
def test_at_5000_services_a_page_is_as_small_as_at_100():
    with node("legacy") as it:
        it.api.bulk_put(cluster(5000))
        it.start("--status-page")
        it.wait_ready()
        status, first = it.get(10249, "/")
        assert status == 200
        assert len(first) < 60_000
        assert "page 1 of 100" in first
        status, found = it.get(10249, "/?q=svc-4321")
        assert "default/svc-4321" in found
        status, service = it.get(10249, "/services/default/svc-4321")
        assert status == 200
        assert "programmed on this node" in service
        assert json.loads(it.get(10249, "/debug/services/default/svc-4321")[1])["programmed"] is True
