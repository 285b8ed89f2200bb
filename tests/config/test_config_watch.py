"""Noticing that the file has changed: on the real kernel, by polling, and with a notifier that follows a script."""

import errno
import os
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pykubeproxy.config.filewatch import InotifyNotifier, PollingNotifier, trail
from pykubeproxy.config.reload import ConfigWatcher

LONG = 30.0


class Calls:
    """Counts calls, and lets a test await the next one."""

    def __init__(self) -> None:
        self.count = 0
        self._condition = threading.Condition()

    def __call__(self, digest: str = "") -> None:
        with self._condition:
            self.count += 1
            self._condition.notify_all()

    def reached(self, count: int) -> bool:
        with self._condition:
            return self._condition.wait_for(lambda: self.count >= count, LONG)


class Script:
    """A notifier whose waits return what the test says; after the last one it calls ``done`` and waits to be woken."""

    interval = 60.0

    def __init__(self, *steps: object) -> None:
        self.steps = list(steps)
        self.watched: list[str] = []
        self.done = threading.Event()
        self._woken = threading.Event()
        self.closed = False

    def watch(self, path: str) -> None:
        self.watched.append(path)

    def wait(self, timeout: float) -> bool:
        if not self.steps:
            self.done.set()
            self._woken.wait()
            return False
        step = self.steps.pop(0)
        return step() if callable(step) else bool(step)

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        self.closed = True


@pytest.fixture(params=["inotify", "polling"])
def opener(request):
    return {"inotify": lambda: InotifyNotifier(interval=LONG), "polling": lambda: PollingNotifier(interval=0.02)}[
        request.param
    ]


def config_map(folder: Path, content: str) -> Path:
    """A ConfigMap volume as kubelet lays it out."""
    swap(folder, "..2026_01", content)
    path = folder / "config.conf"
    path.symlink_to("..data/config.conf")
    return path


def swap(folder: Path, name: str, content: str) -> None:
    (folder / name).mkdir()
    (folder / name / "config.conf").write_text(content)
    (folder / "..data_tmp").symlink_to(name)
    (folder / "..data_tmp").rename(folder / "..data")


def test_a_write_is_noticed(tmp_path, opener):
    path, calls = tmp_path / "c", Calls()
    path.write_text("one")
    with ConfigWatcher(str(path), calls, open_notifier=opener, settle=0.01, settled=0.05):
        path.write_text("two")
        assert calls.reached(1)
        path.write_text("three")
        assert calls.reached(2)


def test_a_file_renamed_over_it_is_noticed_and_the_next_write_too(tmp_path, opener):
    path, calls = tmp_path / "c", Calls()
    path.write_text("one")
    with ConfigWatcher(str(path), calls, open_notifier=opener, settle=0.01, settled=0.05):
        (tmp_path / "new").write_text("two")
        (tmp_path / "new").rename(path)
        assert calls.reached(1)
        path.write_text("three")
        assert calls.reached(2)


def test_swaps_of_a_config_map_are_noticed(tmp_path, opener):
    path, calls = config_map(tmp_path, "one"), Calls()
    with ConfigWatcher(str(path), calls, open_notifier=opener, settle=0.01, settled=0.05):
        swap(tmp_path, "..2026_02", "two")
        assert calls.reached(1)
        swap(tmp_path, "..2026_03", "three")
        assert calls.reached(2)


def test_a_file_that_goes_and_comes_back_is_noticed(tmp_path, opener):
    path, calls = tmp_path / "c", Calls()
    path.write_text("one")
    with ConfigWatcher(str(path), calls, open_notifier=opener, settle=0.01, settled=0.05):
        path.unlink()
        path.write_text("two")
        assert calls.reached(1)


def test_a_write_behind_a_link_in_another_folder_is_noticed(tmp_path, opener):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "c").write_text("one")
    (tmp_path / "seen").symlink_to("real")
    calls = Calls()
    with ConfigWatcher(str(tmp_path / "seen" / "c"), calls, open_notifier=opener, settle=0.01, settled=0.05):
        (tmp_path / "real" / "c").write_text("two")
        assert calls.reached(1)


def test_a_relative_path_is_watched(tmp_path, opener, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls = Calls()
    Path("c").write_text("one")
    with ConfigWatcher("c", calls, open_notifier=opener, settle=0.01, settled=0.05):
        Path("c").write_text("two")
        assert calls.reached(1)


def test_a_change_between_reading_and_watching_is_noticed(tmp_path, opener):
    path, calls = tmp_path / "c", Calls()
    path.write_text("one")
    with ConfigWatcher(str(path), calls, digest="of older content", open_notifier=opener, settle=0.01, settled=0.05):
        assert calls.reached(1)


def test_a_failing_listener_is_logged_and_the_watch_goes_on(tmp_path, opener):
    path, calls = tmp_path / "c", Calls()
    path.write_text("one")

    def fail(digest: str) -> None:
        calls()
        raise ValueError("no good")

    with capture_logs() as logs, ConfigWatcher(str(path), fail, open_notifier=opener, settle=0.01, settled=0.05):
        path.write_text("two")
        assert calls.reached(1)
        path.write_text("three")
        assert calls.reached(2)
    assert [line["event"] for line in logs] == ["config change not handled"] * 2


def test_the_same_content_is_no_change(tmp_path):
    path, calls = tmp_path / "c", Calls()
    path.write_text("one")
    watcher = ConfigWatcher(str(path), calls, open_notifier=Script)
    path.write_text("one")
    os.utime(path)
    assert not watcher.check()
    path.unlink()
    assert not watcher.check()
    assert calls.count == 0


class Followed:
    """A file and its watcher, looked at by the test at times that it says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 0.0
        self.taken: list[str] = []
        path.write_text("one")
        self.watcher = ConfigWatcher(str(path), self._take, open_notifier=Script, clock=lambda: self.now)

    def _take(self, digest: str) -> None:
        self.taken.append(self.path.read_text())

    def look(self, after: float) -> list[str]:
        self.now += after
        self.watcher.check()
        return self.taken


@pytest.fixture
def followed(tmp_path):
    it = Followed(tmp_path / "c")
    yield it
    it.watcher.stop()


def test_what_is_written_in_place_is_taken_once_it_has_stayed_the_same_for_a_second(followed):
    followed.path.write_text("half")
    assert followed.look(0.2) == []
    assert followed.look(0.9) == []
    followed.path.write_text("the whole")
    assert followed.look(0.2) == []
    assert followed.look(0.9) == []
    assert followed.look(0.2) == ["the whole"]


def test_what_a_program_has_open_for_writing_is_not_taken_for_30_seconds(followed):
    with followed.path.open("w") as file:
        file.write("half")
        file.flush()
        assert [followed.look(after) for after in (0.2, 2.0, 20.0)] == [[]] * 3
        assert followed.look(10.0) == ["half"]


def test_a_file_renamed_over_it_is_taken_at_the_second_look(followed):
    other = followed.path.with_name("new")
    other.write_text("two")
    other.rename(followed.path)
    assert followed.look(0.2) == []
    assert followed.look(0.2) == ["two"]


def test_an_empty_file_is_never_taken_and_told_once(followed):
    followed.path.write_text(" \n")
    with capture_logs() as logs:
        assert [followed.look(2.0) for _ in range(4)] == [[]] * 4
    assert [line["event"] for line in logs] == ["config file empty"]
    assert followed.watcher.fault == f"{followed.path}: is empty, as a file that is being written"
    followed.path.write_text("one")
    assert followed.look(2.0) == followed.look(2.0) == []
    assert followed.watcher.fault == ""


def test_a_missing_file_is_a_fault_until_it_is_back(followed):
    followed.path.unlink()
    followed.look(2.0)
    assert followed.watcher.fault == f"{followed.path}: No such file or directory"
    followed.path.write_text("one")
    followed.look(2.0)
    assert followed.look(2.0) == []
    assert followed.watcher.fault == ""


def test_a_file_that_is_back_is_taken_once_it_has_stayed_the_same_for_a_second(followed):
    followed.path.unlink()
    followed.look(2.0)
    followed.path.write_text("half")
    assert followed.look(0.2) == []
    assert followed.look(0.2) == []
    assert followed.look(1.0) == ["half"]


def test_a_pipe_that_was_read_at_the_start_holds_nothing_up_and_is_no_fault(tmp_path):
    os.mkfifo(tmp_path / "c")
    watcher = ConfigWatcher(str(tmp_path / "c"), Calls(), digest="of what came", open_notifier=Script, settled=0.0)
    assert [watcher.check() for _ in range(3)] == [False] * 3
    assert watcher.fault == ""
    watcher.stop()


def test_what_changes_while_it_is_taken_is_looked_at_again_even_if_it_changes_back(tmp_path):
    path, seen, now = tmp_path / "c", [], [0.0]
    path.write_text("one")

    def take(digest: str) -> None:
        if not seen:
            path.write_text("")
        seen.append(digest)

    watcher = ConfigWatcher(str(path), take, open_notifier=Script, clock=lambda: now[0])
    for step in range(6):
        if step in (0, 3):
            path.write_text("two")
        now[0] += 2.0
        watcher.check()
    watcher.stop()
    assert len(seen) == 2
    assert len(set(seen)) == 1


def test_events_without_end_are_looked_at_now_and_then(tmp_path):
    path, now = tmp_path / "c", [0.0]
    path.write_text("one")

    def tick() -> bool:
        now[0] += 0.1
        return True

    script = Script(*[tick] * 30)
    with ConfigWatcher(str(path), Calls(), open_notifier=lambda: script, settle=0.1, clock=lambda: now[0]):
        assert script.done.wait(LONG)
    assert 1 < len(script.watched) < 10


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSYS])
def test_a_refused_inotify_falls_back_to_polling(tmp_path, number):
    path, calls = tmp_path / "c", Calls()
    path.write_text("one")

    def refuse() -> InotifyNotifier:
        raise OSError(number, os.strerror(number))

    with capture_logs() as logs:
        watcher = ConfigWatcher(
            str(path),
            calls,
            open_notifier=refuse,
            open_fallback=lambda: PollingNotifier(0.02),
            settle=0.01,
            settled=0.05,
        )
    assert [(line["event"], line["log_level"]) for line in logs] == [("config file polled, no inotify", "warning")]
    with watcher:
        path.write_text("two")
        assert calls.reached(1)


def test_a_refused_watch_falls_back_to_polling(tmp_path):
    path, calls = tmp_path / "c", Calls()
    path.write_text("one")
    refusing = Script()

    def refuse(path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    refusing.watch = refuse
    with ConfigWatcher(
        str(path),
        calls,
        open_notifier=lambda: refusing,
        open_fallback=lambda: PollingNotifier(0.02),
        settle=0.01,
        settled=0.05,
    ):
        path.write_text("two")
        assert calls.reached(1)
    assert refusing.closed


def test_stopping_needs_no_event(tmp_path, opener):
    watcher = ConfigWatcher(str(tmp_path / "never"), Calls(), open_notifier=opener)
    watcher.start()
    watcher.stop()


def test_a_watcher_that_never_started_stops(tmp_path):
    ConfigWatcher(str(tmp_path / "never"), Calls()).stop()


def test_no_descriptor_is_left_open(tmp_path):
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    for _ in range(20):
        notifier = InotifyNotifier()
        notifier.watch(str(tmp_path / "c"))
        notifier.close()
    assert descriptors() == before


def test_other_files_in_the_folder_do_not_wake(tmp_path):
    (tmp_path / "c").write_text("one")
    notifier = InotifyNotifier()
    try:
        notifier.watch(str(tmp_path / "c"))
        (tmp_path / "other").write_text("x")
        assert not notifier.wait(0.0)
        (tmp_path / "c").write_text("two")
        assert notifier.wait(LONG)
    finally:
        notifier.close()


def test_the_trail_holds_every_link_and_the_file(tmp_path):
    path = config_map(tmp_path, "one")
    root = str(tmp_path)
    assert trail(str(path)) == (
        [(root, "config.conf"), (root, "..data"), (f"{root}/..2026_01", "config.conf")],
        f"{root}/..2026_01/config.conf",
    )


def test_a_loop_of_links_ends(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    steps, _ = trail(str(tmp_path / "a"))
    assert len(steps) > 2


def test_a_path_through_dots_and_a_missing_folder(tmp_path):
    assert trail(f"{tmp_path}/x/../y/c") == ([(f"{tmp_path}/y", "c")], f"{tmp_path}/y/c")
