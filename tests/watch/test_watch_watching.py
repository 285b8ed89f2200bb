"""How a watch begins, goes on, ends, and begins again."""

import pytest
from structlog.testing import capture_logs
from watch_builders import After, Receiver, Script, bookmark, error_line, follow, line, listing, service

from pykubeproxy.errors import ApiError, GoneError, SilentError, StreamError
from pykubeproxy.watch.reflector import Reflector


def versions(script):
    return [params["resourceVersion"] for params in script.watches_asked]


class TestTheRequest:
    def test_asks_for_bookmarks_from_the_lists_version(self):
        script = Script(lists=[listing(version="77")])
        follow(script, random=lambda: 0.0)
        assert script.watches_asked == [
            {
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": "77",
                "timeoutSeconds": "300",
                "labelSelector": "!service.kubernetes.io/service-proxy-name",
                "fieldSelector": "spec.clusterIP!=None",
            }
        ]

    def test_asks_for_up_to_ten_minutes(self):
        script = Script(lists=[listing()])
        follow(script, random=lambda: 0.999)
        assert script.watches_asked[0]["timeoutSeconds"] == "599"


class TestEvents:
    def test_are_handed_over_in_order(self):
        script = Script(
            lists=[listing(service("a"))],
            watches=[
                [
                    line("ADDED", service("b", version="11")),
                    line("MODIFIED", service("a", version="12", cluster_ip="10.96.0.99")),
                    line("DELETED", service("b", version="13")),
                ]
            ],
        )
        _, receiver = follow(script)
        assert receiver.calls[1:] == [("upsert", "b"), ("upsert", "a"), ("delete", "b")]
        assert receiver.objects["default", "a"].spec.cluster_ip == "10.96.0.99"

    def test_twice_the_same_and_deletions_of_the_unknown_do_no_harm(self):
        script = Script(
            lists=[listing(service("a"))],
            watches=[[line("ADDED", service("a")), line("ADDED", service("a")), line("DELETED", service("never-was"))]],
        )
        _, receiver = follow(script)
        assert receiver.names == ["a"]

    def test_blank_lines_are_no_events(self):
        script = Script(lists=[listing()], watches=[[b"", b"  ", b"\r", line("ADDED", service("a", version="11"))]])
        reflector, receiver = follow(script)
        assert receiver.names == ["a"]
        assert reflector.status.events == 1

    @pytest.mark.parametrize(
        "torn",
        [
            b'{"type":"ADDED","obj',
            b'{"type":"SOMETHING","object":{}}',
            b"\xff\xfe",
            b"[]",
            b'{"type":"DELETED","object":{"metadata":{}}}',
            b'{"type":"BOOKMARK","object":7}',
        ],
    )
    def test_that_cannot_be_read_lead_to_a_list(self, torn):
        script = Script(lists=[listing(service("a")), listing(service("b"), version="20")], watches=[[torn]])
        reflector, receiver = follow(script)
        assert receiver.names == ["b"]
        assert versions(script) == ["10", "20"]
        assert reflector.status.relists == 1


class TestGoingOn:
    def test_after_an_orderly_end_from_the_last_events_version(self):
        script = Script(
            lists=[listing()], watches=[[line("ADDED", service(version="15")), After(400)], [After(400)], [After(400)]]
        )
        reflector, _ = follow(script)
        assert versions(script) == ["10", "15", "15", "15"]
        assert len(script.lists_asked) == 1
        assert reflector.status.reconnects == 3
        assert script.clock.sleeps[:3] == []

    def test_after_a_cut_from_the_last_bookmark(self):
        script = Script(lists=[listing()], watches=[[bookmark("400"), After(1), ApiError("connection reset")]])
        follow(script)
        assert versions(script) == ["10", "400"]
        assert len(script.lists_asked) == 1

    def test_after_a_version_that_goes_back(self):
        """A server restored from a backup, or events out of order: what was missed is had by a list."""
        script = Script(lists=[listing(), listing()], watches=[[bookmark("400"), line("ADDED", service(version="20"))]])
        reflector, _ = follow(script)
        assert reflector.status.relists == 1

    def test_watches_that_end_in_good_order_begin_a_second_apart(self):
        script = Script(lists=[listing()], watches=[[bookmark("11"), After(0.25)]] * 3)
        reflector, _ = follow(script)
        assert script.clock.sleeps == [0.75] * 3
        assert reflector.status.last_error == ""

    def test_a_watch_that_ends_at_once_is_a_failure(self):
        script = Script(lists=[listing()], watches=[[]] * 4)
        reflector, _ = follow(script)
        assert script.clock.sleeps == [0.75, 1.5, 3.0, 6.0]
        assert "at once" in reflector.status.last_error


class TestGone:
    @pytest.mark.parametrize(
        "answer",
        [
            GoneError("watch services: 410 Expired", code=410),
            [error_line(code=410, reason="Expired", message="too old resource version: 10 (99)")],
            [error_line(code=410)],
            [error_line(code=410, reason="Gone", message="gone")],
            [error_line(reason="Expired")],
            [error_line(message="too old resource version: 10 (99)")],
        ],
    )
    def test_in_any_form_leads_to_a_list_without_that_version(self, answer):
        script = Script(lists=[listing(), listing(version="99")], watches=[answer])
        reflector, _ = follow(script)
        assert "resourceVersion" not in script.lists_asked[1]
        assert versions(script) == ["10", "99"]
        assert reflector.status.relists == 1

    def test_five_times_running_lists_each_time_and_ever_more_slowly(self):
        gone = GoneError("expired", code=410)
        script = Script(lists=[listing(version=str(n)) for n in range(10, 16)], watches=[gone] * 5)
        _, _receiver = follow(script)
        assert len(script.lists_asked) == 6
        assert versions(script) == ["10", "11", "12", "13", "14", "15"]
        assert script.clock.sleeps == [0.75, 1.5, 3.0, 6.0, 12.0]

    def test_other_errors_in_the_stream_do_not(self):
        script = Script(
            lists=[listing()], watches=[[error_line(code=500, reason="InternalError", message="no leader")]]
        )
        _reflector, _ = follow(script)
        assert versions(script) == ["10", "10"]
        assert len(script.lists_asked) == 1

    def test_a_stream_without_sense_does(self):
        script = Script(lists=[listing(), listing(version="20")], watches=[[StreamError("longer than 32 MiB")]])
        follow(script)
        assert versions(script) == ["10", "20"]


class TestSilence:
    def test_once_goes_on_where_it_was(self):
        script = Script(lists=[listing()], watches=[[bookmark("11"), After(90), SilentError("no byte")]])
        _reflector, _ = follow(script)
        assert versions(script) == ["10", "11"]
        assert script.clock.sleeps[0] <= 1

    def test_from_beginning_to_end_twice_running_leads_to_a_list(self):
        # The server was restored from a backup: our version lies in its future, and it waits for it to come.
        silent = [After(90), SilentError("no byte")]
        script = Script(lists=[listing(version="900"), listing(version="20")], watches=[silent, silent])
        follow(script)
        assert versions(script) == ["900", "900", "20"]

    def test_does_not_slow_down_what_follows(self):
        silent = [bookmark("11"), After(90), SilentError("no byte")]
        script = Script(lists=[listing()], watches=[silent] * 10)
        follow(script)
        assert max(script.clock.sleeps[:9]) <= 1


class TestBackoff:
    def test_grows_to_half_a_minute(self):
        script = Script(lists=[ApiError("no")] * 9)
        follow(script)
        assert script.clock.sleeps == [0.75, 1.5, 3.0, 6.0, 12.0, 22.5, 22.5, 22.5, 22.5]

    def test_is_jittered_between_half_and_whole(self):
        for random, expected in ((0.0, 15.0), (0.999999, 30.0)):
            script = Script(lists=[ApiError("no")] * 8)
            follow(script, random=lambda random=random: random)
            assert script.clock.sleeps[-1] == pytest.approx(expected, rel=1e-3)

    def test_a_short_recovery_does_not_reset_it(self):
        script = Script(
            lists=[ApiError("no")] * 4 + [listing()], watches=[[bookmark("11"), After(59), ApiError("cut")]]
        )
        follow(script)
        assert script.clock.sleeps == [0.75, 1.5, 3.0, 6.0, 12.0]

    def test_a_healthy_minute_resets_it(self):
        healthy = [After(61), bookmark("11"), ApiError("cut")]
        script = Script(lists=[ApiError("no")] * 4 + [listing()], watches=[healthy])
        follow(script)
        assert script.clock.sleeps == [0.75, 1.5, 3.0, 6.0, 0.75]

    def test_honours_retry_after(self):
        script = Script(lists=[ApiError("too many requests", code=429, retry_after=17)])
        follow(script)
        assert script.clock.sleeps == [17]

    def test_but_not_for_ever(self):
        script = Script(lists=[ApiError("too many requests", code=429, retry_after=86400)])
        follow(script)
        assert script.clock.sleeps == [120]

    def test_a_short_retry_after_does_not_shorten_it(self):
        script = Script(lists=[ApiError("busy", code=503, retry_after=1)] * 4)
        follow(script)
        assert script.clock.sleeps == [1, 1.5, 3.0, 6.0]


class TestStatus:
    def test_counts_and_dates(self):
        script = Script(
            lists=[listing(service())],
            watches=[[After(5), line("ADDED", service("b", version="11")), After(30), bookmark("12"), ApiError("cut")]],
        )
        reflector, _ = follow(script)
        status = reflector.status
        assert status.last_list_at == 1000
        assert status.last_event_at == 1035
        assert status.events == 2
        assert status.reconnects == 1
        assert status.has_synced

    def test_age_is_since_the_server_was_last_heard(self):
        script = Script(lists=[listing()], watches=[[bookmark("11"), After(30), ApiError("cut")]])
        reflector, _ = follow(script)
        script.clock.now = 1042.0
        assert reflector.status.watch_age == pytest.approx(42.0)

    def test_age_is_unknown_before_the_first_word(self):
        reflector, _ = follow(Script(lists=[ApiError("no")]))
        assert reflector.status.watch_age is None

    def test_failures_count_until_an_event_comes(self):
        failing = Script(lists=[ApiError("one"), ApiError("two")])
        reflector, _ = follow(failing)
        assert reflector.status.consecutive_failures == 2
        assert reflector.status.last_error == "two"
        healed = Script(lists=[ApiError("one"), listing()], watches=[[bookmark("11")]])
        reflector, _ = follow(healed)
        assert reflector.status.consecutive_failures == 0
        assert reflector.status.last_error == ""


class TestTheThread:
    def test_gives_each_stream_back(self):
        script = Script(
            lists=[listing(), listing()],
            watches=[[bookmark("11")], [ApiError("cut")], [error_line(code=410)], [SilentError("no")]],
        )
        follow(script)
        assert script.open_streams == 0

    def test_that_crashes_says_so(self):
        class Broken(Receiver):
            def upsert(self, obj):
                raise RuntimeError("a bug")

        script = Script(lists=[listing()], watches=[[line("ADDED", service(version="11"))]])
        crashed = []
        reflector = Reflector("services", script, Broken(), on_crash=crashed.append, clock=script.clock)
        with capture_logs() as logs:
            reflector.start()
            reflector._thread.join(10)
        assert [str(error) for error in crashed] == ["a bug"]
        (told,) = [line for line in logs if line["event"] == "watch crashed"]
        assert "exc_info" not in told, "who is told shows the traceback, and once is enough"
        assert script.is_closed

    def test_stops_when_told_to(self):
        script = Script(lists=[ApiError("no")])
        reflector = Reflector("services", script, Receiver(), clock=script.clock)
        reflector.start()
        reflector.stop(10)
        assert not reflector._thread.is_alive()
        assert script.is_aborted
        assert script.is_closed

    def test_can_be_stopped_before_it_was_started(self):
        Reflector("services", Script(), Receiver()).stop()
