"""Where an answer goes: a reader that leaves early is no fault, one that cannot be reached is; any width will do."""

import os
import subprocess
from pathlib import Path

import pytest
from insight_demo import ALL, COMMAND, FLAGS, ROOT, gather
from rich.text import Text

from pykubeproxy.commands.common import print_parts


@pytest.fixture
def demo(tmp_path):
    return gather(tmp_path / "manifests", *ALL)


def written_to(out, *arguments):
    command = [*COMMAND, *arguments, *FLAGS]
    done = subprocess.run(command, check=False, stdout=out, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    return done.returncode, done.stderr


def answers(demo, tmp_path):
    """Two commands and their exit statuses."""
    (tmp_path / "nothing.yaml").write_text("")
    yield ("explain", "shop", "--no-live", "--manifests", str(demo)), 0
    yield ("diff", str(tmp_path / "nothing.yaml"), str(demo)), 1


def test_a_reader_that_has_enough_changes_no_answer(demo, tmp_path):
    for arguments, status in answers(demo, tmp_path):
        reading, writing = os.pipe()
        os.close(reading)
        done, told = written_to(writing, *arguments)
        os.close(writing)
        assert done == status
        assert "Traceback" not in told


def test_an_answer_that_cannot_be_written_is_none(demo, tmp_path):
    for arguments, _ in answers(demo, tmp_path):
        with Path("/dev/full").open("w") as full:
            done = written_to(full, *arguments)
        assert done == (2, "pykubeproxy: the answer cannot be written: No space left on device\n")


@pytest.mark.parametrize(
    ("columns", "width"), [("40", 40), ("5", 20), ("0", 80), ("wide", 80), ("-3", 80), ("9" * 50, 80)]
)
def test_any_width_will_do(monkeypatch, capsys, columns, width):
    monkeypatch.setenv("COLUMNS", columns)
    print_parts([Text("word " * 100)])
    assert width - 5 < max(map(len, capsys.readouterr().out.splitlines())) <= width
