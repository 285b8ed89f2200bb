"""Who gets a page, and what is asked of the Source."""

import json

import pytest

from pykubeproxy.serving.loopback import is_loopback
from pykubeproxy.serving.message import Request, Routes
from pykubeproxy.serving.page import Listing, Overview, ServiceAnswer, ServiceRow, add_pages
from pykubeproxy.serving.pagehtml import tag

LOCAL = {"host": "127.0.0.1:10249"}


class Source:
    def __init__(self, rows=(), pages=1):
        self.asked = []
        self._rows, self._pages = rows, pages

    def overview(self, query, only, page, size):
        self.asked.append((query, only, page, size))
        listing = Listing(
            self._rows, len(self._rows), len(self._rows), {"": 1, "empty": 0, "refused": 0}, page, self._pages
        )
        return Overview("node-a", "1", "iptables-nft 1.8.9", [], [], [], [], [], listing)

    def service(self, namespace, name):
        self.asked.append((namespace, name))
        if name == "none":
            return None
        return ServiceAnswer("t", tag("h1", f"{namespace}/{name}"), {"service": f"{namespace}/{name}"})


def get(path, source=None, headers=LOCAL, query=""):
    routes = Routes()
    add_pages(routes, source or Source())
    return routes.find(path).handler(Request("GET", path, query, headers))


@pytest.mark.parametrize("address", ["127.0.0.1:10249", "127.8.8.8:1", "[::1]:10249", "localhost:10249"])
def test_loopback(address):
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address", ["0.0.0.0:10249", "[::]:10249", ":10249", "10.0.0.1:1", "nonsense", "", "localhost.evil:1"]
)
def test_not_loopback(address):
    assert not is_loopback(address)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:10249", "localhost:8080", "localhost", "[::1]:10249", "[::1]", "127.0.0.1"]
)
def test_asked_under_a_loopback_name(host):
    assert get("/", headers={"host": host}).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example:10249", "10.0.0.1:10249", "", "localhost.evil.example", "127.0.0.1.evil:1"]
)
@pytest.mark.parametrize("path", ["/", "/services/a/b", "/debug/services/a/b"])
def test_another_name_is_turned_away(host, path):
    """A page of some other site whose name leads to 127.0.0.1 must not read this one."""
    source = Source()
    answer = get(path, source, {"host": host})
    assert answer.status == 421
    assert not source.asked


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("", ("", "", 1, 50)),
        ("q=web&page=3&only=empty", ("web", "empty", 3, 50)),
        ("page=0", ("", "", 1, 50)),
        ("page=-1&only=x", ("", "", 1, 50)),
        ("page=%C2%B2", ("", "", 1, 50)),
        (f"page={'9' * 30}", ("", "", 1, 50)),
        (f"q={'x' * 300}", ("x" * 200, "", 1, 50)),
    ],
)
def test_questions(query, asked):
    source = Source()
    assert get("/", source, query=query).status == 200
    assert source.asked == [asked]


def test_other_paths_are_not_found():
    assert get("/nothing").status == 404


def test_a_service():
    answer = get("/services/default/web")
    assert (answer.status, answer.content_type) == (200, "text/html; charset=utf-8")
    assert b"default/web" in answer.body
    assert json.loads(get("/debug/services/default/web").body) == {"service": "default/web"}


@pytest.mark.parametrize("name", ["default/none", "default", "", "default/a/b"])
def test_no_such_service(name):
    page = get(f"/services/{name}")
    assert page.status == 404
    data = get(f"/debug/services/{name}")
    assert data.status == 404
    assert "no rules for" in json.loads(data.body)["error"]


def test_links_are_quoted():
    row = ServiceRow('"><b>', "a/b", ["80/TCP"], ["10.0.0.1"], 1, 1)
    text = get("/", Source([row])).body.decode()
    assert "/services/%22%3E%3Cb%3E/a%2Fb" in text
    assert "<b>&lt;" not in text


def test_pages_keep_the_question():
    row = ServiceRow("default", "a", ["80/TCP"], ["10.0.0.1"], 1, 1)
    text = get("/", Source([row], pages=9), query="q=x&only=empty&page=2").body.decode()
    assert "/?q=x&amp;only=empty&amp;page=3" in text
    assert '"/?q=x&amp;only=empty"' in text
