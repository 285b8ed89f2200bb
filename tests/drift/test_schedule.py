"""When a verification comes: at once when it is asked for, but never so often that it eats the machine."""

from pykubeproxy.sync.runner import VERIFY_SHARE, VERIFY_SPACING, Schedule
from pykubeproxy.sync.telling import Outcome


def synced(at=1000.0, period=30.0):
    schedule = Schedule(min_interval=0.01, sync_period=period)
    schedule.requested = True
    assert schedule.starts(at)
    schedule.succeeded(at, Outcome(""))
    return schedule


def test_the_first_sync_counts_as_a_verification():
    assert synced(at=5.0).due() == 35.0
    assert synced(at=1e6).due() == 1e6 + 30.0


def test_asked_for_in_peace_it_comes_at_once():
    schedule = synced()
    schedule.verify_requested = True
    assert schedule.due() <= 1000.0 + VERIFY_SPACING
    assert schedule.starts(1010.0)


def test_many_writers_do_not_make_many_verifications():
    schedule, verified, now = synced(), 0, 1000.0
    while now < 1060.0:
        schedule.verify_requested = True
        if schedule.due() <= now:
            verified += schedule.starts(now)
            schedule.succeeded(now, Outcome("", verify_seconds=0.001))
        now += 0.01
    assert verified <= 60 / VERIFY_SPACING


def test_dear_verifications_are_spaced_but_not_beyond_the_period():
    schedule = synced()
    schedule.succeeded(1000.0, Outcome("", verify_seconds=2.0))
    schedule.verify_requested = True
    assert schedule.due() == 1000.0 + VERIFY_SHARE * 2.0
    schedule.succeeded(1000.0, Outcome("", verify_seconds=20.0))
    assert schedule.due() == 1000.0 + 30.0


def test_a_change_does_not_wait_for_a_verification_nor_lose_it():
    schedule = synced()
    schedule.verify_requested = schedule.requested = True
    assert schedule.due() < 1000.0 + VERIFY_SPACING
    assert not schedule.starts(1000.1)
    assert schedule.verify_requested
    assert schedule.starts(1000.0 + VERIFY_SPACING)
    assert not schedule.verify_requested


def test_what_was_held_back_is_looked_at_when_its_time_has_come():
    schedule = synced()
    schedule.succeeded(1000.0, Outcome("", verify_in=4.0))
    assert schedule.due() == 1004.0
    assert schedule.starts(1004.0)
    assert schedule.due() == 1034.0
