"""What is added up from readings: what came since the last one, a fall being a reset."""

from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.model.service import ServicePortName
from pykubeproxy.sync.connections import Tally

WEB = ServicePortName("default", "web", "http", "TCP")
DNS = ServicePortName("kube-system", "dns", "", "UDP")
A, B, C = "KUBE-SEP-A", "KUBE-SEP-B", "KUBE-SEP-C"
OWNERS = {A: WEB, B: WEB, C: DNS}
TARGETS = {A: "10.0.0.1:80", B: "10.0.0.2:80", C: "10.0.0.3:53"}


def reading(**packets):
    return {f"KUBE-SEP-{name}": (TARGETS[f"KUBE-SEP-{name}"], count) for name, count in packets.items()}


def test_a_service_has_the_sum_of_its_endpoints():
    tally = Tally()
    tally.take(reading(A=3, B=4, C=5), OWNERS, [WEB, DNS])
    assert tally.services.by_key == {WEB: 7, DNS: 5}
    assert tally.endpoints.by_key == {(WEB, TARGETS[A]): 3, (WEB, TARGETS[B]): 4, (DNS, TARGETS[C]): 5}


def test_what_counts_nothing_is_shown_as_zero():
    tally = Tally()
    tally.take(reading(A=0), OWNERS, [WEB, DNS])
    assert tally.services.by_key == {WEB: 0, DNS: 0}
    assert tally.endpoints.by_key == {(WEB, TARGETS[A]): 0}


def test_a_fall_is_a_reset():
    tally = Tally()
    for count in (10, 12, 3, 3, 5):
        tally.take(reading(A=count), OWNERS, [WEB])
    assert tally.services.by_key == {WEB: 17}


def test_what_stood_before_is_no_news():
    tally = Tally()
    tally.inherit([A])
    tally.take(reading(A=1000, B=2), OWNERS, [WEB])
    assert tally.services.by_key == {WEB: 2}
    tally.take(reading(A=1001, B=2), OWNERS, [WEB])
    assert tally.endpoints.by_key == {(WEB, TARGETS[A]): 1, (WEB, TARGETS[B]): 2}


def test_an_endpoint_that_goes_takes_its_series_along_and_leaves_its_sum_in_the_service():
    tally = Tally()
    tally.take(reading(A=3, B=4), OWNERS, [WEB])
    tally.take(reading(A=3), {A: WEB}, [WEB])
    assert tally.endpoints.by_key == {(WEB, TARGETS[A]): 3}
    assert tally.services.by_key == {WEB: 7}
    tally.take(reading(A=3, B=1), OWNERS, [WEB])
    assert tally.endpoints.by_key == {(WEB, TARGETS[A]): 3, (WEB, TARGETS[B]): 1}
    assert tally.services.by_key == {WEB: 8}


def test_a_service_that_goes_takes_its_series_along():
    tally = Tally()
    tally.take(reading(A=3, C=1), OWNERS, [WEB, DNS])
    tally.take(reading(A=3), {A: WEB}, [WEB])
    assert tally.services.by_key == {WEB: 3}


def test_chains_of_nobody_do_not_count():
    tally = Tally()
    tally.take(reading(A=3, C=1), {A: WEB}, [WEB])
    assert tally.services.by_key == {WEB: 3}


def test_beyond_the_cap_the_rest_is_one_sum():
    tally = Tally(limit=2)
    tally.take(reading(A=0, B=0, C=0), OWNERS, [WEB, DNS])
    assert tally.endpoints.by_key == {}, "there is no place for every one, so those get them that count something"
    assert tally.endpoints.other == 0
    tally.take(reading(A=0, B=2, C=1), OWNERS, [WEB, DNS])
    tally.take(reading(A=5, B=2, C=1), OWNERS, [WEB, DNS])
    assert tally.endpoints.by_key == {(WEB, TARGETS[B]): 2, (DNS, TARGETS[C]): 1}
    assert tally.endpoints.other == 5
    assert tally.services.by_key == {WEB: 7, DNS: 1}
    assert tally.services.other is None


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.integers(0, 50), st.sampled_from(["count", "reset", "read"]))))
def test_whatever_happens_nothing_is_counted_twice(events):
    """Connections, rewrites of chains and readings in any order: never more than there were, all without rewrites."""
    tally, truth, now, resets = Tally(), dict.fromkeys(TARGETS, 0), dict.fromkeys(TARGETS, 0), False
    for name, count, what in [*events, ("A", 0, "read")]:
        chain = f"KUBE-SEP-{name}"
        if what == "count":
            truth[chain] += count
            now[chain] += count
        elif what == "reset":
            now[chain], resets = 0, True
        else:
            before = dict(tally.services.by_key)
            tally.take({one: (TARGETS[one], now[one]) for one in now}, OWNERS, [WEB, DNS])
            assert all(tally.services.by_key[key] >= before[key] for key in before), "a counter never falls"
    found = {chain: tally.endpoints.by_key[OWNERS[chain], TARGETS[chain]] for chain in truth}
    assert all(found[chain] <= truth[chain] for chain in truth)
    assert resets or found == truth
