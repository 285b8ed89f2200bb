"""When a sync comes: at once, spaced, and after a failure (the verifications' turn: tests/drift)."""

from pykubeproxy.sync.runner import LOCK_RETRY, LONGEST_RETRY, Schedule


def test_an_idle_schedule_waits_for_the_first_request():
    schedule = Schedule(1.0, 30.0)
    assert schedule.due() is None
    schedule.requested = True
    assert schedule.due() <= 0.0


def test_a_change_after_a_pause_comes_at_once_and_the_next_is_spaced():
    schedule = Schedule(1.0, 30.0)
    schedule.requested = True
    schedule.starts(100.0)
    schedule.succeeded(100.0, None)
    schedule.requested = True
    assert schedule.due() == 101.0
    schedule.starts(150.0)
    schedule.succeeded(150.0, None)
    schedule.requested = True
    assert schedule.due() == 151.0


def test_failures_are_tried_again_ever_later():
    schedule = Schedule(0.0, 30.0)
    schedule.requested = True
    delays = []
    for number in range(8):
        schedule.starts(float(number))
        delays.append(schedule.failed(float(number), lock_busy=False))
        assert schedule.due() == number + delays[-1]
    assert delays == sorted(delays)
    assert delays[0] < delays[-1] <= LONGEST_RETRY


def test_a_busy_lock_is_tried_again_soon_however_often():
    schedule = Schedule(0.0, 30.0)
    for number in range(8):
        schedule.starts(float(number))
        assert schedule.failed(float(number), lock_busy=True) == LOCK_RETRY


def test_the_minimum_interval_holds_for_retries_too():
    schedule = Schedule(10.0, 30.0)
    schedule.requested = True
    schedule.starts(0.0)
    schedule.failed(0.0, lock_busy=True)
    assert schedule.due() == 10.0


def test_a_success_ends_the_back_off():
    schedule = Schedule(0.0, 30.0)
    schedule.requested = True
    for number in range(5):
        schedule.starts(float(number))
        schedule.failed(float(number), lock_busy=False)
    schedule.starts(50.0)
    schedule.succeeded(50.0, None)
    assert schedule.failures == 0
    assert schedule.due() == 80.0
