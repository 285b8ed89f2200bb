"""The page of a real daemon in a real browser: searched, clicked through, on a phone and a desk, light and dark."""

import json

import pytest

from tests.page.browser import DESKTOP, PHONE, browser, what_is_missing
from tests.support.node import cluster, endpoint_slice, eventually, node, service

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing() or "there is a browser"),
]

BACKENDS = ["nft", "legacy"]
EVIL = '"><script>document.title = "owned"</script><img src=x>'
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
TEXTS = "[...document.querySelectorAll('td,dd,a,p')]"
DRAWN = ("/services/default/shop", "/services/default/orphan")
SEEN = "[...document.querySelectorAll('svg.wide,svg.narrow')].filter(e => e.getBoundingClientRect().width > 0)"


def objects():
    shop = service(900, name="shop", externalTrafficPolicy="Local", sessionAffinity="ClientIP", type="NodePort")
    shop["spec"]["ports"][0]["nodePort"] = 30080
    slice_ = endpoint_slice(900, ["10.244.2.13", "10.244.2.14", "10.244.9.9"], name="shop")
    slice_["endpoints"][1]["conditions"] = {"ready": False}
    slice_["endpoints"][2]["nodeName"] = EVIL
    return [*cluster(120), shop, slice_, service(901, name="orphan")]


@pytest.fixture(params=BACKENDS)
def it(request):
    with node(request.param) as it:
        it.api.bulk_put(objects())
        it.start("--status-page")
        it.wait_ready()
        yield it


@pytest.fixture
def tab(it):
    with browser(it) as tab:
        yield tab
        assert [line for line in tab.complaints() if "404" not in line] == [], "the browser has nothing to complain of"


def test_find_a_service_and_look_at_it(it, tab):
    tab.look()
    tab.open("/")
    assert "node-a" in tab.text("h1")
    assert "in sync" in tab.text("header")
    assert "122 service ports" in tab.text(".cards")
    assert "page 1 of 3" in tab.text(".pages")
    tab.click("a[rel=next]")
    assert tab.path() == "/?page=2"
    assert "page 2 of 3" in tab.text(".pages")

    tab.type("input[type=search]", "10.244.9.9\n")
    eventually(lambda: tab.path() == "/?q=10.244.9.9", "the search by a pod's address")
    assert tab.text(".list tbody td") == "default/shop"
    tab.click(".list tbody a")
    assert tab.path() == "/services/default/shop"
    assert "programmed on this node" in tab.text("header")
    shown = tab.text()
    for word in ("10.96.3.151:80", "any node address:30080", "KUBE-SVL-", "50.0 %", "not ready", "3 h after its last"):
        assert word in shown, word
    assert "Its last change was applied" in shown
    tab.click("nav a")
    assert tab.path() == "/"


def test_text_of_the_cluster_stays_text(it, tab):
    tab.look()
    tab.open("/services/default/shop")
    assert EVIL in tab.text()
    assert tab.run("document.title") == "default/shop on node-a"
    assert tab.run("document.querySelectorAll('script,img').length") == 0


def test_fits_a_phone_and_a_desk(it, tab):
    for path in ("/", "/services/default/shop", "/services/default/orphan", "/services/default/none"):
        for size, form in ((PHONE, "narrow"), (DESKTOP, "wide")):
            colours = set()
            for dark in (False, True):
                tab.look(size=size, dark=dark)
                tab.open(path)
                assert tab.run("document.documentElement.scrollWidth") <= size[0], "nothing to scroll sideways"
                colours.add(tab.run(BACKGROUND))
                forms = tab.run(f"{SEEN}.map(e => e.getAttribute('class')).join()")
                assert set(filter(None, forms.split(","))) == ({form} if path in DRAWN else set())
                assert tab.run(f"Math.min(...{TEXTS}.map(e => parseFloat(getComputedStyle(e).fontSize)))") >= 12
            assert len(colours) == 2, "light is not dark"


def test_nothing_comes_from_elsewhere(it, tab):
    tab.look()
    for path in ("/", "/services/default/shop"):
        tab.open(path)
        assert tab.run("performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length") == 0


def test_changes_and_drift_are_told(it, tab):
    it.api.put(endpoint_slice(7, ["10.250.0.1"]))

    def applied():
        data = json.loads(it.get(10249, "/debug/services/default/svc-7")[1])
        family = data["families"]["IPv4"]
        is_there = "10.250.0.1:8080" in str(family["ports"][0]["spreads"])
        return is_there and data["programmed"] and family["lastChangeApplied"]["reason"] == "endpoints"

    eventually(applied, "the change is applied")
    it.run(f"iptables-{it.backend}", "-w", "-t", "nat", "-F", "KUBE-MARK-MASQ")

    def healed():
        tab.open("/")
        return "nat" in tab.text(".stack")

    eventually(healed, "the drift is told of", interval=0.5)
    assert "drift" in tab.text(".cards")
    assert tab.run("document.querySelectorAll('svg rect.healed').length") >= 1
    assert tab.run("document.querySelectorAll('svg rect.part').length") >= 1
