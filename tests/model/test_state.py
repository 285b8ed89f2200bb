"""Objects in, dirty services out: what marks what, and what a relabelled, repeated or unknown object does."""

import pytest

from pykubeproxy.model.service import ServiceKey
from pykubeproxy.model.state import ClusterState
from tests.support.builders import endpoint_slice, port, service, state

A, B = ServiceKey("default", "a"), ServiceKey("default", "b")


def clean(*objects, **more):
    found = state(*objects, **more)
    found.take_dirty()
    return found


def targets(held, key):
    return sorted(e.target for ends in held.endpoints(key).values() for e in ends)


def test_nothing_has_synced_before_both_lists_came():
    held = ClusterState("IPv4")
    assert not held.has_synced
    held.replace_services([])
    assert not held.has_synced
    held.replace_slices([])
    assert held.has_synced


def test_a_change_marks_its_service_only():
    held = clean(service("a"), service("b", ip="10.96.0.11"))
    assert held.set_slice(endpoint_slice("b", ["10.244.0.1"]))
    assert held.take_dirty() == [B]
    assert held.take_dirty() == []


@pytest.mark.parametrize("obj", [service("a", created="2024-01-01T00:00:00Z"), service("a", ip="None"), service("a")])
def test_an_update_that_changes_nothing_marks_nothing(obj):
    held = clean(obj)
    obj.metadata.resource_version = "77"
    obj.metadata.annotations = {"some": "thing"}
    assert not held.set_service(obj)
    assert held.take_dirty() == []


def test_a_slice_that_is_relabelled_moves(  # R073, S3
):
    held = clean(service("a"), service("b", ip="10.96.0.11"), endpoint_slice("a", ["10.244.0.1"], name="s"))
    held.set_slice(endpoint_slice("b", ["10.244.0.1"], name="s"))
    assert sorted(held.take_dirty()) == [A, B]
    assert (targets(held, A), targets(held, B)) == ([], ["10.244.0.1:8080"])


def test_a_slice_that_loses_its_label_or_changes_its_family_is_gone():
    for odd in (endpoint_slice("a", ["10.244.0.1"], name="s", labels={}), endpoint_slice("a", name="s", family="IPv6")):
        held = clean(service("a"), endpoint_slice("a", ["10.244.0.1"], name="s"))
        held.set_slice(odd)
        assert held.take_dirty() == [A]
        assert targets(held, A) == []


def test_slices_of_one_name_in_two_namespaces_are_two():
    held = clean(
        endpoint_slice("a", ["10.244.0.1"], name="s"), endpoint_slice("a", ["10.244.0.2"], name="s", namespace="n")
    )
    held.delete_slice("n", "s")
    assert targets(held, A) == ["10.244.0.1:8080"]


def test_a_list_drops_what_is_not_in_it():
    held = clean(service("a"), service("b", ip="10.96.0.11"), endpoint_slice("a", ["10.244.0.1"]))
    held.replace_services([service("b", ip="10.96.0.11")])
    held.replace_slices([])
    assert held.take_dirty() == [A]
    assert held.keys() == [B]


def test_unknown_deletions_and_repeated_ones_are_nothing():
    held = clean(service("a"))
    assert not held.delete_service("default", "zz")
    assert not held.delete_slice("default", "zz")
    assert held.delete_service("default", "a")
    assert not held.delete_service("default", "a")
    assert held.take_dirty() == [A]


def test_a_service_that_becomes_headless_is_gone():
    held = clean(service("a"))
    assert held.set_service(service("a", ip="None"))
    assert (held.take_dirty(), held.ports(A)) == ([A], ())


def test_a_problem_is_told_once_for_as_long_as_it_lasts():
    told = []
    held = clean(on_problem=told.append)
    bad, good = service("a", externalIPs=["nonsense"]), service("a")
    for obj in (bad, bad, good, bad):
        held.set_service(obj)
    assert len(told) == 2
    assert len(held.problems()) == 1
    held.delete_service("default", "a")
    assert held.problems() == []


def test_pending_changes_are_counted_until_taken():
    held = clean()
    held.set_service(service("a"))
    held.set_slice(endpoint_slice("a"))
    held.set_slice(endpoint_slice("a", ["10.244.0.1"]))
    assert held.pending() == (1, 2)
    held.take_dirty()
    assert held.pending() == (0, 0)


TRIGGER = "endpoints.kubernetes.io/last-change-trigger-time"


def test_trigger_times_are_kept_since_the_start_only():
    held = clean(started_at=1_700_000_000.0)
    for name, time in (("old", "2020-01-01T00:00:00Z"), ("new", "2030-01-01T00:00:00Z"), ("odd", "yesterday")):
        held.set_slice(endpoint_slice("a", name=name, annotations={TRIGGER: time}))
    assert held.take_triggers([A]) == [1893456000.0]
    assert held.take_triggers([A]) == []


def test_a_deleted_slice_measures_nothing():
    held = clean()
    held.set_slice(endpoint_slice("a", name="s", annotations={TRIGGER: "2030-01-01T00:00:00Z"}))
    held.delete_slice("default", "s")
    assert held.take_triggers([A]) == []


def test_changes_are_notified_outside_the_lock():
    heard = []
    held = ClusterState("IPv4", on_change=lambda what: heard.append((what, held.lock.acquire(blocking=False))))
    held.set_service(service("a"))
    held.set_service(service("a"))
    held.set_slice(endpoint_slice("a"))
    assert [what for what, _ in heard] == ["service", "endpoints"]


def test_two_ports_of_a_service_have_their_own_endpoints():
    held = clean(
        service("a", ports=[port(80, "http"), port(81, "admin")]),
        endpoint_slice("a", ["10.244.0.1"], ports=[{"name": "http", "port": 8080, "protocol": "TCP"}]),
    )
    assert [name.port for name in held.endpoints(A)] == ["http"]


def test_problems_of_a_service_are_its_own_and_those_of_its_slices_whatever_their_names():
    bad = [{"addresses": ["nonsense"]}]
    held = clean(
        service("a", ports=[port(80), port(0, "bad")]),
        service("b", ip="10.96.0.11"),
        endpoint_slice("a", bad, name="xyz"),
        endpoint_slice("a", [], name="a-5", labels={}),
        endpoint_slice("b", bad, name="a-6"),
    )
    fields = [(problem.name, problem.field) for problem in held.problems_of(A)]
    assert [name for name, _ in fields] == ["a", "xyz", "a-5"]
    assert [problem.name for problem in held.problems_of(B)] == ["a-6"]


def test_a_state_of_one_service_alone_stays_as_it_is():
    held = clean(service("a"), service("b", ip="10.96.0.11"), endpoint_slice("a", ["10.244.0.1"]))
    alone = held.only(A)
    held.delete_slice("default", "a-1")
    held.delete_service("default", "a")
    assert (alone.keys(), targets(alone, A)) == ([A], ["10.244.0.1:8080"])
    assert held.only(A).keys() == []
