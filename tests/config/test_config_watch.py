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

    def __call__(self) -> None:
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
    with ConfigWatcher(str(path), calls, open_notifier=opener, settle=0.01):
        path.write_text("two")
        assert calls.reached(1)
        path.write_text("three")
        assert calls.reached(2)


def test_a_file_renamed_over_it_is_noticed_and_the_next_write_too(tmp_path, opener):
    path, calls = tmp_path / "c", Calls()
    path.write_text("one")
    with ConfigWatcher(str(path), calls, open_notifier=opener, settle=0.01):
        (tmp_path / "new").write_text("two")
        (tmp_path / "new").rename(path)
        assert calls.reached(1)
        path.write_text("three")
        assert calls.reached(2)


def test_swaps_of_a_config_map_are_noticed(tmp_path, opener):
    path, calls = config_map(tmp_path, "one"), Calls()
    with ConfigWatcher(str(path), calls, open_notifier=opener, settle=0.01):
        swap(tmp_path, "..2026_02", "two")
        assert calls.reached(1)
        swap(tmp_path, "..2026_03", "three")
        assert calls.reached(2)


def test_a_file_that_goes_and_comes_back_is_noticed(tmp_path, opener):
    path, calls = tmp_path / "c", Calls()
    path.write_text("one")
    with ConfigWatcher(str(path), calls, open_notifier=opener, settle=0.01):
        path.unlink()
        path.write_text("two")
        assert calls.reached(1)


def test_a_write_behind_a_link_in_another_folder_is_noticed(tmp_path, opener):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "c").write_text("one")
    (tmp_path / "seen").symlink_to("real")
    calls = Calls()
    with ConfigWatcher(str(tmp_path / "seen" / "c"), calls, open_notifier=opener, settle=0.01):
        (tmp_path / "real" / "c").write_text("two")
        assert calls.reached(1)


def test_a_relative_path_is_watched(tmp_path, opener, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls = Calls()
    Path("c").write_text("one")
    with ConfigWatcher("c", calls, open_notifier=opener, settle=0.01):
        Path("c").write_text("two")
        assert calls.reached(1)


def test_a_change_between_reading_and_watching_is_noticed(tmp_path, opener):
    path, calls = tmp_path / "c", Calls()
    path.write_text("one")
    with ConfigWatcher(str(path), calls, digest="of older content", open_notifier=opener, settle=0.01):
        assert calls.reached(1)


def test_a_failing_listener_is_logged_and_the_watch_goes_on(tmp_path, opener):
    path, calls = tmp_path / "c", Calls()
    path.write_text("one")

    def fail() -> None:
        calls()
        raise ValueError("no good")

    with capture_logs() as logs, ConfigWatcher(str(path), fail, open_notifier=opener, settle=0.01):
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


def test_events_in_a_row_are_one_change(tmp_path):
    path, calls = tmp_path / "c", Calls()
    path.write_text("one")

    def write(content: str) -> bool:
        path.write_text(content)
        return True

    script = Script(lambda: write("two"), lambda: write("three"), lambda: write("four"), False)
    with ConfigWatcher(str(path), calls, open_notifier=lambda: script, clock=lambda: 0.0):
        assert script.done.wait(LONG)
        assert calls.count == 1
    assert script.closed


def test_events_without_end_do_not_hide_a_change(tmp_path):
    path, calls = tmp_path / "c", Calls()
    path.write_text("one")
    now = [0.0]

    def tick() -> bool:
        now[0] += 0.1
        path.write_text(f"at {now[0]}")
        return True

    script = Script(*[tick] * 30)
    with ConfigWatcher(str(path), calls, open_notifier=lambda: script, settle=0.1, clock=lambda: now[0]):
        assert script.done.wait(LONG)
        assert calls.count > 1


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSYS])
def test_a_refused_inotify_falls_back_to_polling(tmp_path, number):
    path, calls = tmp_path / "c", Calls()
    path.write_text("one")

    def refuse() -> InotifyNotifier:
        raise OSError(number, os.strerror(number))

    with capture_logs() as logs:
        watcher = ConfigWatcher(
            str(path), calls, open_notifier=refuse, open_fallback=lambda: PollingNotifier(0.02), settle=0.01
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
        str(path), calls, open_notifier=lambda: refusing, open_fallback=lambda: PollingNotifier(0.02), settle=0.01
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
