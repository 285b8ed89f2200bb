"""Files as people name them: what never ends or never begins is refused in time."""

import os
import subprocess
import sys
import threading

import pytest

from pykubeproxy import files


def test_a_regular_file_is_read(tmp_path):
    (tmp_path / "a").write_bytes(b"content")
    assert files.read(tmp_path / "a", regular_only=True) == b"content"


def test_a_pipe_is_read_to_its_end_however_slow_its_writer_begins(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"x" * 300_000,))
    timer = threading.Timer(0.3, writer.start)
    timer.start()
    assert files.read(path) == b"x" * 300_000
    timer.join()
    writer.join()


def test_standard_input_is_read_by_its_name():
    program = "from pykubeproxy import files; print(files.read('/dev/stdin'))"
    done = subprocess.run([sys.executable, "-c", program], input=b"text", capture_output=True, check=True)
    assert done.stdout == b"b'text'\n"


def test_a_pipe_that_nobody_writes_to_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PIPE_PATIENCE", 0.0)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is a pipe into which nobody writes"):
        files.read(tmp_path / "pipe")


def test_what_does_not_end_is_refused():
    with pytest.raises(OSError, match="is longer than 1 MiB"):
        files.read("/dev/zero", longest=1 << 20)


def test_a_device_that_is_empty_is_empty():
    assert files.read("/dev/null") == b""


@pytest.mark.parametrize(("path", "kind"), [("/dev/zero", "device"), ("pipe", "pipe")])
def test_only_regular_files_are_read_where_that_is_asked_for(tmp_path, path, kind):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=f"is no regular file but a {kind}"):
        files.read(tmp_path / path, regular_only=True)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError):
        files.read(tmp_path)
