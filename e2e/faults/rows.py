"""The faults: how each is done, how it is noticed, how it ends, and what is right.

A row is a generator that yields once it has done its harm and once more when the harm is over; what it does is its own,
what is measured is the bench's.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from e2e.faults.scene import PODS, Scene, endpoint_slice, service

Notice = Callable[[Scene], bool]
Acting = Callable[[Scene], Generator[None]]


@dataclass(frozen=True, slots=True)
class Row:
    """One fault. Limits are seconds."""

    name: str
    act: Acting
    notice: Notice | None = None
    """What tells that the daemon has noticed; None: there is nothing to be noticed, or the row's own check says it."""
    notice_within: float = 5.0
    heal_within: float = 5.0
    """From the end of the harm until a change made meanwhile works."""
    lasts: float = 0.0
    """The harm goes on this long after it was noticed."""
    is_quick: bool = False
    backends: tuple[str, ...] = ("nft", "legacy")
    arguments: tuple[str, ...] = ()
    """Further flags of the daemon."""
    prepare: Callable[[Scene], object] = field(default=lambda _: None)
    """Makes the node what the row needs, without traffic, before the daemon starts for it."""
    check: Callable[[Scene], str] = field(default=lambda _: "")
    """Looks at what else must hold at the end; returns what does not."""


def watch_fails(scene: Scene) -> bool:
    """A failure of some watch is in the metrics."""
    return scene.metric("pykubeproxy_watch_failures") > 0


def restore_fails(scene: Scene) -> bool:
    """A failed restore is in the metrics."""
    return scene.metric('pykubeproxy_restores_total{ip_family="IPv4",result="failure"}') > 0


def lock_waits(scene: Scene) -> bool:
    """A busy lock is in the metrics."""
    return scene.metric("pykubeproxy_lock_waits_total") > 0


def left_out(scene: Scene) -> bool:
    """A service that is left out is in the metrics."""
    return scene.metric('pykubeproxy_quarantined_services{ip_family="IPv4"}') > 0


def not_ready(scene: Scene) -> bool:
    """/readyz says that it is not ready."""
    return scene.status("/readyz") == 503


def logged(word: str) -> Notice:
    """Make a notice of a word in the log."""
    return lambda scene: scene.said(word)


# -- the API server


def refused(code: int, *, in_stream: bool = False, retry_after: int | None = None) -> Acting:
    """Answer every request with a code until it is over."""

    def act(scene: Scene) -> Generator[None]:
        scene.api.faults.answer(code, times=None, in_stream=in_stream, retry_after=retry_after)
        scene.api.faults.drop_connections()
        yield
        scene.api.faults.clear()
        yield

    return act


def happens(act: Callable[[Scene], object]) -> Acting:
    """Something that happens once and is over."""

    def run(scene: Scene) -> Generator[None]:
        act(scene)
        yield
        yield

    return run


def half_open(scene: Scene) -> Generator[None]:
    """The connections that are open die without a word."""
    scene.break_connections()
    yield
    yield


def silent(scene: Scene) -> Generator[None]:
    """Watches stay open and bring nothing, not even bookmarks."""
    scene.api.faults.stall_watches()
    yield
    scene.api.faults.resume_watches()
    yield


def down(scene: Scene) -> Generator[None]:
    """Nobody listens."""
    scene.api.faults.refuse_connections()
    yield
    scene.api.faults.accept_connections()
    yield


def gone(scene: Scene) -> Generator[None]:
    """The past is forgotten while nobody was connected: 410 at the next watch."""
    scene.api.faults.refuse_connections()
    scene.change()
    scene.api.faults.compact()
    scene.api.faults.accept_connections()
    yield
    yield


def new_token(scene: Scene) -> Generator[None]:
    """The token is replaced; the old one is worth nothing."""
    scene.api.faults.set_tokens(["second"])
    scene.api.faults.drop_connections()
    scene.token.write_text("second")
    yield
    yield


def new_ca(scene: Scene) -> Generator[None]:
    """The server's CA is replaced, and the kubeconfig that names it."""
    scene.api.faults.rotate_ca()
    scene.write_kubeconfig()
    yield
    yield


def older(scene: Scene) -> Generator[None]:
    """The server comes back from a backup: its versions count from a lower number."""
    scene.api.faults.restart(version=7)
    yield
    yield


def field_selectors(scene: Scene) -> Generator[None]:
    """The server knows no field selector; the daemon starts on it."""
    scene.stop(signal.SIGTERM)
    scene.api.faults.reject_field_selectors()
    scene.start()
    yield
    yield


def odd_events(scene: Scene) -> None:
    """Send what a server may send though it means nothing."""
    for resource in ("services", "endpointslices"):
        scene.api.faults.send_duplicate_added(resource)
        scene.api.faults.send_unknown_deleted(resource)


def out_of_order(scene: Scene) -> None:
    """Let the next events come last first."""
    scene.api.faults.reorder_events("endpointslices", 2)
    scene.api.faults.reorder_events("services", 2)


def large_event(scene: Scene) -> None:
    """Let one object grow beyond what any server would take."""
    scene.api.faults.grow_object("services", 5 << 20, "default", "other-1")


def mute(scene: Scene) -> Generator[None]:
    """A server that takes connections and never answers, from the start: not ready, and nothing is touched."""
    scene.stop(signal.SIGTERM)
    scene.api.faults.mute_connections()
    scene.start()
    yield
    scene.api.faults.accept_connections()
    scene.api.faults.drop_connections()
    yield


# -- the seam


def fails(status: int, times: int | None = 1, words: str = "") -> Acting:
    """Let iptables-restore end with a status."""

    def act(scene: Scene) -> Generator[None]:
        scene.seam.order("fail", status=status, times=times, words=words)
        yield
        scene.seam.clear()
        yield

    return act


def spoilt(do: str) -> Acting:
    """Spoil one restore in another way."""

    def act(scene: Scene) -> Generator[None]:
        scene.seam.order(do)
        yield
        scene.seam.clear()
        yield

    return act


def reading_fails(do: str, **how: float) -> Acting:
    """Spoil what a new start reads of the standing rules, twice in each family."""

    def act(scene: Scene) -> Generator[None]:
        scene.stop(signal.SIGTERM)
        scene.seam.order(do, program="save", times=4, **how)
        scene.start()
        yield
        yield

    return act


def killed_at_bytes(scene: Scene) -> Generator[None]:
    """Kill the restore at random places of its input, five times running."""
    chance = random.Random(scene.backend)
    for _ in range(5):
        scene.seam.order("kill", bytes=chance.random())
    yield
    yield


def killed_at_times(scene: Scene) -> Generator[None]:
    """Kill the restore at random moments, five times running."""
    chance = random.Random(scene.backend)
    for _ in range(5):
        scene.seam.order("kill", seconds=chance.uniform(0, 0.01))
    yield
    yield


def lock_held(scene: Scene) -> Generator[None]:
    """Another program holds the lock for 20 s."""
    holder = scene.lab.node.spawn(["flock", "/run/xtables.lock", "sleep", "20"])
    yield
    holder.wait(30)
    yield


def lock_held_at_the_start(scene: Scene) -> Generator[None]:
    """Another program holds the lock while the daemon starts."""
    scene.stop(signal.SIGTERM)
    holder = scene.lab.node.spawn(["flock", "/run/xtables.lock", "sleep", "12"])
    scene.start()
    yield
    holder.wait(30)
    yield


BAD = "10.96.66.66"


def one_refused(names: str) -> Acting:
    """One service of which the kernel refuses the rules; then its objects change."""

    def act(scene: Scene) -> Generator[None]:
        scene.left_out.add("bad")
        scene.seam.order("refuse", text=BAD, names=names, times=None)
        scene.api.put(service("bad", BAD))
        scene.api.put(endpoint_slice("bad", [PODS["p1"]]))
        yield
        yield

    return act


def is_taken_in_again(scene: Scene) -> str:
    """Let the refused service change and see whether it is programmed."""
    if not scene.said("service left out") or not scene.said("default/bad"):
        return "the log does not name the service"
    events = [e for e in scene.api.objects("Event") if e["involvedObject"]["name"] == "bad"]
    if not events:
        return "no Event about the service"
    scene.left_out.discard("bad")
    scene.api.put(service("bad", "10.96.66.67"))
    return "" if scene.wait_for_answer("10.96.66.67", 10.0) else "changed, and still left out"


def without(match: str) -> Callable[[Scene], None]:
    """Make a kernel that lacks a match, with none of our rules in it."""

    def prepare(scene: Scene) -> None:
        scene.flush()
        scene.has_comments = match != "comment"
        scene.seam.order("refuse", text=f"-m {match} ", names="commit", times=None)

    return prepare


def sticky(scene: Scene) -> Generator[None]:
    """A service with affinity, where the kernel has no xt_recent."""
    scene.left_out.add("sticky")
    scene.api.put(service("sticky", "10.96.66.68", sessionAffinity="ClientIP"))
    scene.api.put(endpoint_slice("sticky", [PODS["p1"]]))
    yield
    yield


def restart(scene: Scene) -> Generator[None]:
    """An orderly restart."""
    scene.stop(signal.SIGTERM)
    scene.start()
    yield
    yield


def works_without_comments(scene: Scene) -> str:
    """The rules say what they must, without a comment."""
    saved = scene.lab.save().tables["nat"]
    text = str(saved)
    return "" if "comment" not in text else "a comment in the rules"


# -- the daemon itself


def killed(scene: Scene) -> Generator[None]:
    """SIGKILL at any moment, and a new start."""
    for _ in range(3):
        scene.change()
        scene.stop(signal.SIGKILL)
        scene.start()
    yield
    yield


def killed_with_its_restore(scene: Scene) -> Generator[None]:
    """SIGKILL to the daemon and to the restore that runs, in the middle of the input."""
    for share in (0.2, 0.5, 0.8):
        scene.seam.order("kill", bytes=share, seconds=0.05)
        before = scene.seam.carried_out()
        scene.change()
        scene.wait_until(lambda before=before: scene.seam.carried_out() > before, 5)  # type: ignore[misc]
        scene.stop(signal.SIGKILL)
        scene.start()
    yield
    yield


ONCE = "pykubeproxy: asked for by a fault\n"

ROWS: tuple[Row, ...] = (
    Row("API: half-open connections", half_open, watch_fails, notice_within=30, heal_within=33),
    Row("API: a silent server", silent, watch_fails, notice_within=91, heal_within=3),
    Row("API: down for a while", down, watch_fails, lasts=1, heal_within=8, is_quick=True),
    Row("API: takes connections, never answers", mute, not_ready, notice_within=5, lasts=2, heal_within=20),
    Row("API: cut in the middle of JSON", happens(lambda s: s.api.faults.cut_watches()), watch_fails, is_quick=True),
    Row(
        "API: cut within a character",
        happens(lambda s: s.api.faults.cut_watches(in_character=True, reset=True)),
        watch_fails,
    ),
    Row("API: 401", refused(401), watch_fails, lasts=2, heal_within=8),
    Row("API: 403", refused(403), watch_fails, lasts=2, heal_within=8),
    Row("API: 410 as an answer", gone, logged("410"), is_quick=True),
    Row(
        "API: 410 in the stream",
        happens(lambda s: s.api.faults.send_error("*", 410, "Expired", "too old resource version")),
        watch_fails,
    ),
    Row("API: 429, Retry-After 3", refused(429, retry_after=3), watch_fails, lasts=1, heal_within=8),
    Row("API: 500", refused(500), watch_fails, lasts=2, heal_within=8),
    Row("API: 500 in the stream", refused(500, in_stream=True), watch_fails, lasts=2, heal_within=8),
    Row("API: blank lines", happens(lambda s: s.api.faults.send_blank_lines())),
    Row(
        "API: a bookmark without a version",
        happens(lambda s: [s.api.faults.send_bookmark(r) for r in ("services", "endpointslices")]),
    ),
    Row("API: events out of order", happens(out_of_order), is_quick=True),
    Row("API: an event twice, one of a stranger", happens(odd_events)),
    Row("API: ERROR without a reason", happens(lambda s: s.api.faults.send_error("*")), watch_fails),
    Row("API: an event of 5 MB", happens(large_event)),
    Row("API: another token", new_token, None, is_quick=True),
    Row("API: another CA", new_ca, watch_fails, heal_within=8),
    Row("API: restart with a lower version", older, watch_fails, heal_within=100),
    Row("API: field selector refused with 400", field_selectors, logged("field selector refused"), notice_within=15),
    Row("restore: exit 1 once", fails(1, words=ONCE), restore_fails, is_quick=True),
    Row("restore: exit 2 once", fails(2), restore_fails),
    Row("restore: exit 4 once, without a word", fails(4), restore_fails),
    Row("restore: exit 1 five times", fails(1, 5, ONCE), restore_fails, lasts=1),
    Row("restore: exit 4 all the time", fails(4, None), restore_fails, lasts=5, heal_within=12),
    Row("restore: hangs", spoilt("hang"), logged("was killed"), notice_within=65, heal_within=5),
    Row("restore: killed at 5 random bytes", killed_at_bytes, restore_fails, is_quick=True),
    Row("restore: killed at 5 random moments", killed_at_times, restore_fails),
    Row("restore: one table done, then failed", spoilt("part"), restore_fails, is_quick=True),
    Row(
        "save: exit 1 twice at the start",
        reading_fails("fail", status=1), logged("sync failed"), notice_within=8, heal_within=8,
    ),
    Row(
        "save: half of it and exit 0, twice at the start",
        reading_fails("truncate"), logged("sync failed"), notice_within=8, heal_within=8,
    ),
    Row(
        "lock: held for 20 s",
        lock_held,
        lock_waits,
        notice_within=8,
        heal_within=5,
        backends=("legacy",),
    ),
    Row("lock: held for 20 s", lock_held, None, heal_within=5, backends=("nft",)),
    Row(
        "lock: held for 12 s at the start",
        lock_held_at_the_start,
        logged("lock busy"),
        notice_within=10,
        heal_within=6,
        backends=("legacy",),
    ),
    Row(
        "kernel: refuses one service, names the line",
        one_refused("line"), left_out, notice_within=10, heal_within=10, check=is_taken_in_again, is_quick=True,
    ),
    Row(
        "kernel: refuses one service, names COMMIT",
        one_refused("commit"), left_out, notice_within=10, heal_within=10, check=is_taken_in_again,
    ),
    Row("kernel: no match recent", sticky, left_out, prepare=without("recent"), is_quick=True),
    Row(
        "kernel: no match comment, restart",
        restart,
        logged("rules carry no comments"),
        prepare=without("comment"),
        heal_within=15,
        check=works_without_comments,
        arguments=("--v", "0"),
    ),
    Row("daemon: killed three times", killed, heal_within=15, is_quick=True),
    Row("daemon: killed with its restore, three times", killed_with_its_restore, heal_within=15),
)  # fmt: skip
