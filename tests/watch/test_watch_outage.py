"""Failures that follow each other are told at once, when they change, and at a decreasing pace; their end once."""

from structlog.testing import capture_logs
from watch_builders import Script, bookmark, follow, listing

from pykubeproxy.errors import ApiError
from pykubeproxy.watch.outage import MOST_REASONS, Outage


def told(failures):
    """Return the times at which an outage of (time, reason) failures is spoken of."""
    outage = Outage()
    return [now for now, reason in failures if outage.fail(reason, now)]


class TestAnOutage:
    def test_is_told_at_a_decreasing_pace(self):
        assert told((second, "refused") for second in range(0, 3 * 3600, 20)) == [
            0, 60, 300, 600, 1800, 3600, 5400, 7200, 9000,
        ]  # fmt: skip

    def test_is_told_once_for_all_reminders_that_were_missed(self):
        assert told([(0, "refused"), (4000, "refused"), (4001, "refused"), (5400, "refused")]) == [0, 4000, 5400]

    def test_is_told_with_each_new_reason(self):
        assert told([(0, "refused"), (1, "reset"), (2, "refused"), (3, "reset")]) == [0, 1]

    def test_of_ever_new_reasons_is_not_told_for_ever(self):
        assert len(told((second, f"reason {second}") for second in range(59))) == MOST_REASONS

    def test_ends_with_how_long_it_lasted(self):
        outage = Outage()
        assert outage.end(5.0) is None
        outage.fail("refused", 10.0)
        outage.fail("refused", 20.0)
        over = outage.end(70.0)
        assert over is not None
        assert (over.failures, over.lasted) == (2, 60.0)
        assert outage.end(80.0) is None
        assert outage.fail("refused", 90.0)


def test_an_hour_without_an_api_server_is_a_few_lines_and_one_at_its_end():
    script = Script(lists=[ApiError("refused")] * 170 + [listing()], watches=[[bookmark("11")]])
    with capture_logs() as logs:
        follow(script)
    lines = [entry for entry in logs if entry["event"].startswith("watch") and entry["log_level"] != "debug"]
    lines = lines[: [entry["event"] for entry in lines].index("watch recovered") + 1]
    assert [entry["event"] for entry in lines] == ["watch failed", *["watch still failing"] * 5, "watch recovered"]
    assert len({entry["since"] for entry in lines[:-1]}) == 1
    assert [entry["failures"] for entry in lines[:-1]] == sorted(entry["failures"] for entry in lines[:-1])
    assert lines[-1]["failures"] == 170
    assert lines[-1]["lasted"] > 3600
