from __future__ import annotations

import json
import threading
from datetime import UTC, datetime

import pytest
from serving_recordings import answer

from pykubeproxy.serving.health import GO_ZERO_TIME, TO_BE_DELETED_TAINT, ProxierHealth, is_node_eligible, rfc3339_nano

NS = 1_000_000_000


class Clock:
    """Both clocks; they can be moved apart."""

    def __init__(self) -> None:
        self.mono = 1000.0
        self.wall = 1796043178 * NS

    def tick(self, seconds: float) -> None:
        self.mono += seconds
        self.wall += int(seconds * NS)


def health(clock: Clock, *, families=("IPv4", "IPv6"), **kwargs) -> ProxierHealth:
    return ProxierHealth(families, 30.0, monotonic=lambda: clock.mono, wall_ns=lambda: clock.wall, **kwargs)


def synced(clock: Clock, **kwargs) -> ProxierHealth:
    proxier = health(clock, **kwargs)
    proxier.updated("IPv4")
    proxier.updated("IPv6")
    return proxier


def ns(text: str) -> int:
    whole, fraction = text.rstrip("Z").split(".")
    seconds = datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp()
    return int(seconds) * NS + int(fraction.ljust(9, "0"))


@pytest.mark.parametrize("name", ["10256-healthz", "10256-healthz-POST", "10256-healthz-tainted", "10256-livez"])
def test_bodies_equal_the_recordings_byte_for_byte(name):
    recorded = answer(name)
    document = json.loads(recorded.body)
    clock = Clock()
    proxier = health(clock)
    for family, status in document["status"].items():
        clock.wall = ns(status["lastUpdated"])
        proxier.updated(family)
    clock.wall = ns(document["currentTime"])
    proxier.set_node(is_known=True, taint_keys=[TO_BE_DELETED_TAINT] if "tainted" in name else [])
    code, body = proxier.livez() if "livez" in name else proxier.healthz()
    assert code == recorded.status
    expected = recorded.body
    if code == 200:  # the real one reads its clock twice, some microseconds apart
        expected = expected.replace(document["lastUpdated"].encode(), document["currentTime"].encode())
    assert body == expected


def test_healthy_during_start_up_even_with_a_change_that_waits_for_long():
    clock = Clock()
    proxier = health(clock)
    proxier.queued_update("IPv4")
    clock.tick(600)
    assert proxier.livez()[0] == 200
    code, body = proxier.healthz()
    assert code == 200
    assert json.loads(body) == {
        "lastUpdated": rfc3339_nano(clock.wall),
        "currentTime": rfc3339_nano(clock.wall),
        "nodeEligible": True,
        "healthy": True,
    }


def test_nothing_pending_is_healthy_for_ever():
    clock = Clock()
    proxier = synced(clock)
    clock.tick(30 * 86400)
    assert proxier.healthz()[0] == 200
    assert proxier.livez()[0] == 200


def test_unhealthy_once_the_oldest_change_is_two_sync_periods_old_and_healthy_after_the_next_success():
    clock = Clock()
    proxier = synced(clock)
    clock.tick(5)
    proxier.queued_update("IPv4")
    clock.tick(59.9)
    proxier.queued_update("IPv4")  # a later change does not make the oldest younger
    assert proxier.healthz()[0] == 200
    clock.tick(0.1)
    code, body = proxier.healthz()
    document = json.loads(body)
    assert code == 503
    assert document["healthy"] is False
    assert document["nodeEligible"] is True
    assert document["lastUpdated"] == rfc3339_nano(1796043178 * NS)
    assert document["status"]["IPv4"]["healthy"] is False
    assert document["status"]["IPv6"]["healthy"] is True
    assert proxier.livez()[0] == 503
    assert not proxier.is_healthy()
    assert proxier.oldest_change_age("IPv4") == 60
    assert proxier.oldest_change_age("IPv6") == 0
    proxier.updated("IPv4")
    assert proxier.healthz()[0] == 200
    assert proxier.oldest_change_age("IPv4") == 0


def test_one_family_cannot_hide_the_other():
    clock = Clock()
    proxier = synced(clock)
    proxier.queued_update("IPv6")
    clock.tick(60)
    proxier.updated("IPv4")
    assert proxier.healthz()[0] == 503


def test_a_change_that_arrives_while_a_sync_runs_is_not_confirmed_by_it():
    clock = Clock()
    proxier = synced(clock)
    proxier.queued_update("IPv4")
    proxier.sync_started("IPv4")
    clock.tick(1)
    proxier.queued_update("IPv4")
    proxier.updated("IPv4")
    clock.tick(2)
    assert proxier.oldest_change_age("IPv4") == 2


def test_failed_syncs_do_not_make_a_change_younger():
    clock = Clock()
    proxier = synced(clock)
    proxier.queued_update("IPv4")
    for _ in range(6):
        proxier.sync_started("IPv4")
        clock.tick(10)
        proxier.queued_update("IPv4")
    assert proxier.oldest_change_age("IPv4") == 60
    assert proxier.healthz()[0] == 503
    proxier.sync_started("IPv4")
    proxier.updated("IPv4")
    assert proxier.oldest_change_age("IPv4") == 0


@pytest.mark.parametrize("step", [-3600, 86400])
def test_a_step_of_the_wall_clock_decides_nothing(step):
    clock = Clock()
    proxier = synced(clock)
    proxier.queued_update("IPv4")
    clock.wall += step * NS
    clock.tick(30)
    assert proxier.healthz()[0] == 200
    clock.tick(30)
    assert proxier.healthz()[0] == 503


def test_node_eligibility_speaks_in_healthz_only():
    clock = Clock()
    proxier = synced(clock)
    for facts in (
        {"is_known": False},
        {"is_known": True, "is_being_deleted": True},
        {"is_known": True, "taint_keys": ["a", TO_BE_DELETED_TAINT]},
    ):
        proxier.set_node(**facts)
        code, body = proxier.healthz()
        assert code == 503
        assert json.loads(body)["healthy"] is True
        assert proxier.livez()[0] == 200
        assert proxier.readyz()[0] == 200
        assert proxier.is_healthy()
    proxier.set_node(is_known=True, taint_keys=["node.kubernetes.io/unschedulable"])
    assert proxier.healthz()[0] == 200


def test_eligibility_rule():
    assert is_node_eligible(is_known=True)
    assert not is_node_eligible(is_known=False)
    assert not is_node_eligible(is_known=True, is_being_deleted=True)
    assert not is_node_eligible(is_known=True, taint_keys=[TO_BE_DELETED_TAINT])


def test_ready_only_when_every_family_has_synced():
    clock = Clock()
    proxier = health(clock)
    proxier.updated("IPv4")
    code, body = proxier.readyz()
    assert code == 503
    assert json.loads(body) == {
        "currentTime": rfc3339_nano(clock.wall),
        "ready": False,
        "reasons": ["IPv6: the first full sync has not succeeded"],
        "watchAgeSeconds": {},
    }
    proxier.updated("IPv6")
    assert proxier.readyz()[0] == 200


def test_not_ready_while_something_was_never_read_but_with_notes_alone():
    clock = Clock()
    unread, notes = ["a.yaml: no YAML"], ["b.yaml: no YAML"]
    proxier = synced(clock, unread=lambda: unread, notes=lambda: notes)
    code, body = proxier.readyz()
    assert code == 503
    assert (json.loads(body)["reasons"], json.loads(body)["notes"]) == (unread, notes)
    assert proxier.healthz()[0] == proxier.livez()[0] == 200
    unread.clear()
    code, body = proxier.readyz()
    assert code == 200
    assert json.loads(body)["notes"] == ["b.yaml: no YAML"]
    notes.clear()
    assert "notes" not in json.loads(proxier.readyz()[1])


def test_not_ready_while_unhealthy_or_while_a_watch_is_silent():
    clock = Clock()
    ages = {"services": 1.0, "endpointslices": 1.0}
    proxier = synced(clock, watch_ages=lambda: ages)
    assert proxier.readyz()[0] == 200
    proxier.queued_update("IPv4")
    clock.tick(61)
    ages["services"] = 200.0
    code, body = proxier.readyz()
    assert code == 503
    assert json.loads(body)["reasons"] == [
        "IPv4: a change has been waiting for 61 s (limit 60 s)",
        "services: the watch has been silent for 200 s (limit 180 s)",
    ]
    assert json.loads(body)["watchAgeSeconds"] == {"endpointslices": 1.0, "services": 200.0}
    proxier.updated("IPv4")
    assert proxier.livez()[0] == 200  # a restart does not bring the API server back
    assert proxier.healthz()[0] == 200


def test_strict_healthz_asks_for_readiness_too():
    clock = Clock()
    proxier = health(clock, is_strict=True)
    code, body = proxier.healthz()
    assert code == 503
    assert json.loads(body)["lastUpdated"] == GO_ZERO_TIME
    assert proxier.livez()[0] == 200
    proxier.updated("IPv4")
    proxier.updated("IPv6")
    assert proxier.healthz()[0] == 200


@pytest.mark.parametrize(
    ("wall_ns", "text"),
    [
        (None, "0001-01-01T00:00:00Z"),
        (0, "1970-01-01T00:00:00Z"),
        (1796043178 * NS + 419276820, "2026-11-30T12:52:58.41927682Z"),
        (1796043178 * NS + 1, "2026-11-30T12:52:58.000000001Z"),
    ],
)
def test_times_are_printed_as_go_prints_them(wall_ns, text):
    assert rfc3339_nano(wall_ns) == text


def test_many_threads_report_and_ask():
    proxier = ProxierHealth(("IPv4", "IPv6"), 30.0)
    failures: list[BaseException] = []

    def work(family: str) -> None:
        try:
            for _ in range(300):
                proxier.queued_update(family)
                proxier.sync_started(family)
                proxier.healthz()
                proxier.updated(family)
                proxier.readyz()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test must see it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(family,)) for family in ("IPv4", "IPv6") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert proxier.readyz()[0] == 200
