"""What the pages are told of services: found by name, address, port or pod; counted; paged; honest when unread."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from pykubeproxy.insight.explain import explain
from pykubeproxy.model.service import ServiceKey
from tests.page.status_parts import node_status
from tests.support.builders import endpoint, endpoint_slice, port, service

WEB = [
    service("web", ip="10.96.0.10", ports=[port(80, "http", node_port=30080)], lb=["203.0.113.9"]),
    endpoint_slice("web", ["10.244.1.1", endpoint("10.244.1.2", ready=False)], ports=[{"name": "http", "port": 8080}]),
]
DNS = [service("dns", "kube-system", ip="10.96.0.53", ports=[port(53, "dns", "UDP")])]


def names(status, query="", only="", page=1, size=50):
    return [f"{row.namespace}/{row.name}" for row in status.overview(query, only, page, size).listing.rows]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["default/web", "kube-system/dns"]),
        ("WEB", ["default/web"]),
        ("kube-system/", ["kube-system/dns"]),
        ("10.96.0.53", ["kube-system/dns"]),
        ("10.96.0.10:80", ["default/web"]),
        ("203.0.113", ["default/web"]),
        ("30080", ["default/web"]),
        ("10.244.1.2", ["default/web"]),
        ("10.244.1.1:8080", ["default/web"]),
        ("<script>", []),
    ],
)
def test_search(query, found):
    assert names(node_status(*WEB, *DNS), query) == found


def test_without_endpoints_and_left_out():
    status = node_status(*WEB, *DNS, quarantined={ServiceKey("default", "web"): "refused by the kernel"})
    assert names(status, only="empty") == ["kube-system/dns"]
    assert names(status, only="refused") == ["default/web"]
    listing = status.overview("", "", 1, 50).listing
    assert listing.counts == {"": 2, "empty": 1, "refused": 1}
    assert [row.trouble for row in listing.rows] == ["refused by the kernel", ""]


def test_a_row():
    row = node_status(*WEB).overview("", "", 1, 50).listing.rows[0]
    assert row.ports == ["80/TCP"]
    assert row.addresses == ["10.96.0.10", "203.0.113.9", "node port 30080"]
    assert (row.used, row.endpoints) == (1, 2)


def test_pages():
    objects = [service(f"s-{number:03}", ip=f"10.96.1.{number}") for number in range(1, 121)]
    status = node_status(*objects)
    listing = status.overview("", "", 3, 50).listing
    assert (listing.page, listing.pages, len(listing.rows)) == (3, 3, 20)
    assert status.overview("", "", 99, 50).listing.page == 3
    assert names(status, page=2, size=50)[0] == "default/s-051"


def test_the_kernel_could_not_be_read():
    """Then nothing is claimed of it, in either form."""
    answer = node_status(*WEB).service("default", "web")
    assert answer.data["programmed"] is False
    family = answer.data["families"]["IPv4"]
    assert family["kernel"] == ""
    assert family["kernelUnread"] == "nothing is read here"
    assert "nothing is read here" in answer.content


def test_the_data_is_json_of_explain_with_what_should_stand():
    data = json.loads(json.dumps(node_status(*WEB).service("default", "web").data))
    family = data["families"]["IPv4"]
    assert data["service"] == "default/web"
    assert family["ports"][0]["spreads"][0]["endpoints"][0]["target"] == "10.244.1.1:8080"
    assert family["ports"][0]["unused"] == [{"target": "10.244.1.2:8080", "node": "node-a", "why": "not ready"}]
    rules = family["desiredRules"]["default/web:http"]
    assert any(line.endswith("--to-destination 10.244.1.1:8080") for lines in rules.values() for line in lines)


def test_no_rules_no_answer():
    assert node_status(*WEB).service("default", "nothing") is None


def test_hostile_objects_stay_text():
    """A node's name is not checked by any schema here; an error message is whatever a kernel says."""
    evil = '"><script>alert(1)</script>'
    objects = [
        *WEB[:1],
        endpoint_slice("web", [endpoint("10.244.1.1", node=evil)], ports=[{"name": "http", "port": 80}]),
    ]
    status = node_status(*objects, quarantined={ServiceKey("default", "web"): evil})
    content = status.service("default", "web").content
    assert "<script" not in content
    assert "&lt;script&gt;" in content


def test_the_lock_of_the_state_is_free_while_a_page_is_made(monkeypatch):
    """An explanation of thousands of endpoints takes a second; the engine and the watches must not wait for it."""
    seen = []

    def explained(picture, key, **more):
        lock = status._parts["IPv4"].state.lock
        with ThreadPoolExecutor(1) as other:
            seen.append(other.submit(lock.acquire, blocking=False).result())
        return explain(picture, key, **more)

    status = node_status(*WEB)
    monkeypatch.setattr("pykubeproxy.insight.status.explain", explained)
    assert status.service("default", "web").data["families"]["IPv4"]["ports"][0]["endpointCount"] == 2
    assert seen == [True]


def test_of_thousands_of_rules_a_page_shows_some():
    endpoints = [f"10.{244 + i // 60000}.{i // 250 % 240}.{i % 250 + 1}" for i in range(1500)]
    status = node_status(service("big"), endpoint_slice("big", endpoints))
    page = str(status.service("default", "big").content)
    assert len(page) < 400_000
    assert "more; /debug/services/ lists all of them" in page
