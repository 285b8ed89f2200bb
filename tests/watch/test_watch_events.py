"""Events: posted once, counted after that, dropped rather than waited for."""

import threading
from datetime import UTC, datetime

from watch_builders import Clock

from pykubeproxy.errors import ApiError
from pykubeproxy.watch.events import EventRecorder, ObjectRef, node_ref

SERVICE = ObjectRef("Service", "shop", "web", uid="u-1")
NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


class Poster:
    """Remembers what is posted; answers with errors while there are any."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.posted = []
        self.patched = []

    def post_event(self, event):
        self._answer()
        self.posted.append(event)

    def patch_event(self, namespace, name, patch):
        self._answer()
        self.patched.append((namespace, name, patch))

    def _answer(self):
        if self.errors:
            error = self.errors.pop(0)
            if error is not None:
                raise error


def recorder(poster):
    clock = Clock()
    made = EventRecorder(poster, host="node-a", clock=clock, now=lambda: NOW, sleep=clock.sleep)
    return made, clock


def drained(made):
    """Post what is queued, in this thread's place."""
    made.start()
    made.stop(10)
    return made


class TestAnEvent:
    def test_says_what_kube_proxys_say(self):
        poster = Poster()
        made, _ = recorder(poster)
        made.warning(SERVICE, "BadAddress", "spec.externalIPs[0]: is no address")
        drained(made)
        (event,) = poster.posted
        name = event["metadata"].pop("name")
        assert name.startswith("web.")
        assert int(name.removeprefix("web."), 16) == int(NOW.timestamp() * 1e9)
        assert event == {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": "shop"},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Service",
                "namespace": "shop",
                "name": "web",
                "uid": "u-1",
            },
            "type": "Warning",
            "reason": "BadAddress",
            "message": "spec.externalIPs[0]: is no address",
            "source": {"component": "kube-proxy", "host": "node-a"},
            "reportingComponent": "kube-proxy",
            "reportingInstance": "node-a",
            "firstTimestamp": "2026-11-30T12:00:00Z",
            "lastTimestamp": "2026-11-30T12:00:00Z",
            "count": 1,
        }

    def test_about_a_node_is_in_the_default_namespace(self):
        poster = Poster()
        made, _ = recorder(poster)
        made.normal(node_ref("node-a"), "Starting", "")
        drained(made)
        (event,) = poster.posted
        assert event["metadata"]["namespace"] == "default"
        assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "node-a"}

    def test_is_no_longer_than_the_api_takes(self):
        poster = Poster()
        made, _ = recorder(poster)
        made.warning(SERVICE, "Long", "x" * 5000)
        drained(made)
        assert len(poster.posted[0]["message"]) == 1024

    def test_has_a_name_of_its_own(self):
        poster = Poster()
        made, _ = recorder(poster)
        for n in range(5):
            made.warning(SERVICE, "Reason", f"number {n}")
        drained(made)
        assert len({event["metadata"]["name"] for event in poster.posted}) == 5


class TestRepetitions:
    def test_are_counted_in_the_first(self):
        poster = Poster()
        made, _ = recorder(poster)
        for _ in range(3):
            made.warning(SERVICE, "Same", "again")
        drained(made)
        name = poster.posted[0]["metadata"]["name"]
        assert len(poster.posted) == 1
        assert [(namespace, which, patch["count"]) for namespace, which, patch in poster.patched] == [
            ("shop", name, 2),
            ("shop", name, 3),
        ]

    def test_after_a_while_are_new(self):
        poster = Poster()
        made, clock = recorder(poster)
        made.post(event_of(made, "again"))
        clock.now += 3600
        made.post(event_of(made, "again"))
        assert len(poster.posted) == 2

    def test_of_one_that_the_server_forgot_are_new(self):
        poster = Poster(None, ApiError("no such event", code=404))
        made, _ = recorder(poster)
        for _ in range(2):
            made.warning(SERVICE, "Same", "again")
        drained(made)
        assert len(poster.posted) == 2


def event_of(made, message):
    made.warning(SERVICE, "Same", message)
    return made._queue.popleft()


class TestTooMany:
    def test_about_one_object_are_dropped(self):
        poster = Poster()
        made, clock = recorder(poster)
        for n in range(30):
            made.warning(SERVICE, "Flood", f"number {n}")
        assert made.dropped == 5
        clock.now += 600
        for n in range(5):
            made.warning(SERVICE, "Flood", f"later {n}")
        assert made.dropped == 8

    def test_about_many_objects_are_dropped(self):
        made, _ = recorder(Poster())
        for n in range(200):
            made.warning(ObjectRef("Service", "shop", f"s{n}"), "Flood", "x")
        assert made.dropped == 150

    def test_for_a_server_that_does_not_answer_are_dropped_and_nobody_waits(self):
        answers = threading.Event()

        class Slow(Poster):
            def post_event(self, event):
                answers.wait(30)
                super().post_event(event)

        made, clock = recorder(Slow())
        made.start()
        for n in range(400):
            clock.now += 10
            made.warning(ObjectRef("Service", "shop", f"s{n}"), "Flood", "x")
        assert made.dropped >= 400 - 201
        answers.set()
        made.stop(10)

    def test_remembered_are_forgotten(self):
        made, clock = recorder(Poster())
        for n in range(2000):
            clock.now += 10
            made.warning(ObjectRef("Service", "shop", f"s{n}"), "Reason", "x")
            made.post(made._queue.popleft())
        assert len(made._known) <= 1024
        assert len(made._budgets) <= 1024


class TestFailures:
    def test_that_may_pass_are_tried_again(self):
        poster = Poster(ApiError("busy", code=429, retry_after=7), ApiError("cut"))
        made, clock = recorder(poster)
        made.post(event_of(made, "x"))
        assert len(poster.posted) == 1
        assert clock.sleeps == [7, 2]
        assert made.posted == 1

    def test_that_persist_drop_the_event(self):
        made, _ = recorder(Poster(*[ApiError("cut")] * 3))
        made.post(event_of(made, "x"))
        assert (made.posted, made.dropped) == (0, 1)

    def test_that_are_final_drop_it_at_once(self):
        made, clock = recorder(Poster(ApiError("forbidden", code=403)))
        made.post(event_of(made, "x"))
        assert (made.posted, made.dropped) == (0, 1)
        assert clock.sleeps == []

    def test_of_our_own_end_nothing(self):
        poster = Poster(RuntimeError("a bug"))
        made, _ = recorder(poster)
        made.warning(SERVICE, "First", "x")
        made.warning(SERVICE, "Second", "x")
        drained(made)
        assert [event["reason"] for event in poster.posted] == ["Second"]
        assert made.dropped == 1
