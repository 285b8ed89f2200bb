"""Every recording of a real kube-apiserver, asked of the stand-in: the same request gets the same answer.

Objects, versions and times are those of the recording; minutes pass on a clock that the test moves.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby

import pytest

from e2e.apiserver import ADMIN, NOBODY, ManualClock, StandIn, resources
from tests.apiserver import compare, recordings
from tests.apiserver.recordings import AFTER_CHANGES, AFTER_RESTART, FIRST_STATE, Recording
from tests.apiserver.wireclient import WireClient

TOKENS = {"valid": ADMIN, "valid, no rights": NOBODY}
ALL = recordings.load()
ANSWERS = [each for each in ALL if not each.is_watch]
WATCHES = [each for each in ALL if each.is_watch]
TOLERANCE = 1.0


def play(server: StandIn, after: int, until: int) -> None:
    """Let the history between two versions happen, and versions pass up to ``until``."""
    for step in recordings.history():
        if after < step.version <= until:
            if step.obj is not None:
                server.put(step.obj, version=step.version)
            else:
                server.store.delete(resources.find("services"), "default", step.name, version=step.version)
    server.store.bump(to=until)


def state_of(recording: Recording) -> int:
    """The version that the recorded server had reached."""
    if recording.number <= 22:
        return FIRST_STATE
    return AFTER_CHANGES if recording.number <= 27 else 320 if recording.number == 28 else AFTER_RESTART


@contextmanager
def server_as_recorded(recording: Recording) -> Iterator[tuple[StandIn, ManualClock]]:
    clock = ManualClock()
    with StandIn(clock=clock, tokens=TOKENS) as server:
        play(server, 0, state_of(recording))
        if recording.number >= 29:
            server.store.compact()
        if recording.number >= 32:
            server.faults.restart()
        yield server, clock


def ask(server: StandIn, recording: Recording) -> WireClient:
    client = WireClient("127.0.0.1", server.port)
    client.send(recording.method, recording.path, {"Authorization": f"Bearer {recording.token}", **recording.accept})
    return client


@pytest.mark.parametrize("recording", ANSWERS, ids=lambda each: each.name)
def test_an_answer_is_the_recorded_one(recording: Recording) -> None:
    with server_as_recorded(recording) as (server, clock), ask(server, recording) as client:
        if recording.status == 504:
            clock.wait_for_waiting()
            clock.advance(2.9)
            assert client.is_quiet()
            clock.advance(0.2)
        status, headers = client.head()
        assert (status, compare.headers(headers)) == (recording.status, recording.headers)
        body = client.body()
        if recording.headers.get("Content-Encoding") == "gzip":
            listed = json.loads(gzip.decompress(body))["items"]
            assert [item["metadata"]["name"] for item in listed] == [
                item["metadata"]["name"] for item in recordings.get(34).body["items"]
            ]
        else:
            assert compare.body(json.loads(body)) == recording.body


@pytest.mark.parametrize("recording", WATCHES, ids=lambda each: each.name)
def test_a_watch_sends_the_recorded_lines_at_their_times(recording: Recording) -> None:
    with server_as_recorded(recording) as (server, clock), ask(server, recording) as client:
        status, headers = client.head()
        assert (status, compare.headers(headers)) == (recording.status, recording.headers)
        happens = {number: happening(server) for number, happening in HAPPENINGS.items()}.get(recording.number, {})
        for second, group in groupby(recording.body["lines"], key=lambda line: line["after_s"]):
            move_to(clock, client, second - TOLERANCE)
            for moment in [moment for moment in sorted(happens) if moment <= second]:
                happens.pop(moment)()
            advance(clock, second + TOLERANCE / 2)
            for expected in group:
                assert compare.body(client.line()) == expected["line"]
        if recording.body["after_s"]:
            move_to(clock, client, recording.body["after_s"] - 0.1)
            advance(clock, recording.body["after_s"] + 0.1)
        client.wait_end()
        assert not client.is_cut


def move_to(clock: ManualClock, client: WireClient, second: float) -> None:
    """Let time pass up to ``second``: nothing may come meanwhile."""
    if second > clock.monotonic():
        clock.wait_for_waiting()
        assert client.is_quiet()
        advance(clock, second)
        assert client.is_quiet()


def advance(clock: ManualClock, second: float) -> None:
    if second > clock.monotonic():
        clock.advance(second - clock.monotonic())


def changes_of_the_first_second(server: StandIn) -> dict[float, Callable[[], None]]:
    return {1.0: lambda: play(server, FIRST_STATE, 238)}


def versions_of_two_minutes(server: StandIn) -> dict[float, Callable[[], None]]:
    return {59.0: lambda: bump(server, 256), 119.0: lambda: bump(server, 261)}


def bump(server: StandIn, version: int) -> None:
    server.store.bump(to=version)


HAPPENINGS = {22: changes_of_the_first_second, 27: versions_of_two_minutes}
