"""The pure part of a watch: lines in, events out, whatever the lines are."""

import json

from hypothesis import example, given
from hypothesis import strategies as st
from watch_builders import bookmark, endpoint_slice, line, service
from watch_recordings import recording

from pykubeproxy.errors import ApiError, GoneError
from pykubeproxy.watch.decode import BadObject, ObjectDecoder
from pykubeproxy.watch.driver import Bookmark, Delete, Upsert, WatchDriver
from pykubeproxy.watch.objects import EndpointSlice, Service

SERVICES = ObjectDecoder(Service)
SLICES = ObjectDecoder(EndpointSlice)
EVENTS = (Upsert, Delete, Bookmark, BadObject, ApiError, type(None))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["type", "object", "metadata", "name", "namespace", "resourceVersion", "spec", "ports", "port", "code"]
            )
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


class TestItNeverRaises:
    @given(st.binary(max_size=200))
    @example(b"")
    @example(b"\x00")
    @example(b'{"type":"ADDED","object":{"metadata":{"name":"\xc3"}}}')
    @example(b"[" * 5000)
    @example(b'{"type":"ADDED","object":' + b"[" * 5000)
    def test_on_bytes(self, data):
        assert isinstance(WatchDriver(SERVICES, "1").feed(data), EVENTS)

    @given(json_values)
    def test_on_json(self, value):
        assert isinstance(WatchDriver(SERVICES, "1").feed(json.dumps(value).encode()), EVENTS)

    @given(st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "added", ""]), json_values)
    def test_on_events_of_anything(self, kind, value):
        for decoder in (SERVICES, SLICES):
            assert isinstance(WatchDriver(decoder, "1").feed(line(kind, value)), EVENTS)

    @given(st.data())
    def test_on_good_lines_cut_or_changed_anywhere(self, data):
        good = line("MODIFIED", data.draw(st.sampled_from([service(), endpoint_slice()])))
        at = data.draw(st.integers(0, len(good)))
        cut = good[:at] + data.draw(st.binary(max_size=3)) + good[at + data.draw(st.integers(0, 3)) :]
        for decoder in (SERVICES, SLICES):
            assert isinstance(WatchDriver(decoder, "1").feed(cut), EVENTS)


class TestVersion:
    def test_follows_events_and_bookmarks(self):
        driver = WatchDriver(SERVICES, "1")
        seen = []
        for data in (
            line("ADDED", service(version="2")),
            line("DELETED", service(version="3")),
            bookmark("9"),
            bookmark(""),
            b"",
        ):
            driver.feed(data)
            seen.append(driver.version)
        assert seen == ["2", "3", "9", "9", "9"]

    def test_is_not_that_of_an_error(self):
        driver = WatchDriver(SERVICES, "1")
        driver.feed(line("ERROR", {"kind": "Status", "metadata": {"resourceVersion": "5"}, "code": 500}))
        assert driver.version == "1"


class TestWhatARealServerSays:
    def test_events(self):
        driver = WatchDriver(SERVICES, "232")
        events = [driver.feed(data) for data in recording("22-watch-events").lines]
        assert [type(event).__name__ for event in events] == ["Upsert", "Upsert", "Delete", "Delete"]
        assert driver.version == recording("22-watch-events").last_version

    def test_bookmarks(self):
        driver = WatchDriver(SERVICES, "232")
        events = [driver.feed(data) for data in recording("27-watch-bookmarks").lines]
        assert Bookmark() in events
        assert not any(isinstance(event, ApiError | BadObject) for event in events)

    def test_initial_events(self):
        driver = WatchDriver(SERVICES, "")
        events = [driver.feed(data) for data in recording("25-watch-initial-events").lines]
        assert isinstance(events[0], Upsert)
        assert events[-1] == Bookmark()

    def test_an_expired_version(self):
        for name in ("32-watch-expired-version", "33-watch-expired-bookmarks"):
            (data,) = recording(name).lines
            error = WatchDriver(SERVICES, "2").feed(data)
            assert isinstance(error, GoneError)
            assert error.code == 410
            assert str(error) == "410 Expired: too old resource version: 2 (1017)"
