"""The recordings asked of a real kube-apiserver once more: what the stand-in is held to must hold for the real one.

One cluster lives through the recorded history in order. Versions, uids and times are its own, so they do not count.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Iterator
from itertools import groupby
from urllib.parse import quote

import pytest

from tests.apiserver import compare, realcluster, recordings
from tests.apiserver.realcluster import TOKENS, RealCluster
from tests.apiserver.recordings import AFTER_CHANGES, AFTER_RESTART, FIRST_STATE, Recording
from tests.apiserver.wireclient import WireClient

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(realcluster.why_absent()), reason=realcluster.why_absent() or "there is one"),
]

TOLERANCE = 3.0
PATHS = {"Service": "services", "Node": "nodes", "EndpointSlice": "endpointslices"}


class Replay:
    """A real cluster, how far in the recorded history it is, and its own versions for the recorded ones."""

    def __init__(self, cluster: RealCluster) -> None:
        self.cluster = cluster
        self.at = 0
        self.versions: dict[int, int] = {}
        self.made: set[str] = set()
        self.first_token = ""
        self.last_token = ""

    def play(self, until: int) -> None:
        for step in recordings.history():
            if self.at < step.version <= until and step.name != "kubernetes":
                self._change(step)
        self.at = until
        listed = self.cluster.call("GET", "/api/v1/services?limit=1")[1]
        self.versions[until] = int(listed["metadata"]["resourceVersion"])

    def _change(self, step: recordings.Step) -> None:
        base = "/api/v1/namespaces/default/services"
        if step.obj is None:
            code, answer = self.cluster.call("DELETE", f"{base}/{step.name}")
        else:
            obj = {key: value for key, value in step.obj.items() if key != "status" or step.obj["kind"] == "Node"}
            kept = {"name", "namespace", "labels", "annotations"}
            obj["metadata"] = {key: value for key, value in obj["metadata"].items() if key in kept}
            if obj["kind"] == "EndpointSlice":
                base = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
            elif obj["kind"] == "Node":
                base = "/api/v1/nodes"
            is_new = step.name not in self.made
            self.made.add(step.name)
            code, answer = self.cluster.call(
                "POST" if is_new else "PUT", base if is_new else f"{base}/{step.name}", obj
            )
        assert code in {200, 201}, json.dumps(answer)

    def path(self, recording: Recording) -> str:
        """The recorded path with this cluster's versions and tokens."""
        path = re.sub(
            r"resourceVersion=(\d+)",
            lambda found: f"resourceVersion={self.versions.get(int(found[1]), int(found[1]))}",
            recording.path,
        )
        token = self.first_token if recording.number == 29 else self.last_token
        return re.sub(r"continue=ey\w+", lambda _: f"continue={quote(token)}", path)


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with RealCluster() as cluster:
        yield Replay(cluster)


def prepare(replay: Replay, recording: Recording) -> None:
    number = recording.number
    target = FIRST_STATE if number <= 22 else AFTER_CHANGES if number <= 27 else 320 if number <= 30 else AFTER_RESTART
    if replay.at < target:
        replay.play(target)
    if number in {29, 32}:  # after a compaction the server's cache still answers for a while, unless it is new
        replay.cluster.compact()
        replay.cluster.restart()


@pytest.mark.parametrize("recording", recordings.load(), ids=lambda each: each.name)
def test_a_real_server_answers_as_recorded(replay: Replay, recording: Recording) -> None:
    prepare(replay, recording)
    with WireClient("127.0.0.1", replay.cluster.port, replay.cluster.context, timeout=70) as client:
        headers = {"Authorization": f"Bearer {TOKENS[recording.token]}", **recording.accept}
        started = time.monotonic()
        client.send(recording.method, replay.path(recording), headers)
        changes = threading.Timer(1.0, lambda: replay.play(238)) if recording.number == 22 else None
        if changes is not None:
            changes.start()
        status, given = client.head()
        assert (status, compare.headers(given)) == (recording.status, recording.headers)
        if recording.is_watch:
            check_lines(client, recording, started)
        else:
            check_answer(replay, client, recording)
        if changes is not None:
            changes.join()


def check_answer(replay: Replay, client: WireClient, recording: Recording) -> None:
    raw = client.body()
    if recording.headers.get("Content-Encoding"):
        assert raw.startswith(b"\x1f\x8b")
        return
    body = json.loads(raw)
    token = body["metadata"].get("continue", "")
    if recording.number == 6:
        replay.first_token = token
    replay.last_token = token
    assert compare.loosely(body) == compare.loosely(recording.body)
    if recording.number == 7:
        assert json.loads(base64.urlsafe_b64decode(token + "==="))["rv"] == int(body["metadata"]["resourceVersion"])


def check_lines(client: WireClient, recording: Recording, started: float) -> None:
    for second, group in groupby(recording.body["lines"], key=lambda line: line["after_s"]):
        for expected in group:
            assert compare.loosely(client.line()) == compare.loosely(expected["line"])
            assert abs(time.monotonic() - started - second) < TOLERANCE
    more = [json.loads(line) for line in client.body().splitlines()]
    assert not client.is_cut
    # One that comes a little early before the end is sent once more: such is the real server's timer.
    assert [line["type"] for line in more] in ([], ["BOOKMARK"] if "Bookmarks" in recording.path else [])
    assert abs(time.monotonic() - started - recording.body["after_s"]) < TOLERANCE
