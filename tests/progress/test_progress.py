"""A bar on a terminal, silence anywhere else; what is logged meanwhile stays readable."""

import os
import pty
import re
import subprocess
import sys

from pykubeproxy import progress

WORK = """
import sys, time
import structlog
from pykubeproxy import log, progress
log.set_up(style=sys.argv[1])
done = []
for item in progress.over([1, 2, 3, 4], "moving stones", weigh=lambda _: int(sys.argv[2])):
    done.append(item)
    structlog.get_logger().info("moved", stone=item)
    time.sleep(0.12)
assert done == [1, 2, 3, 4], done
print("rich.progress" in sys.modules)
"""
_CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def on_a_terminal(*arguments, term="xterm"):
    """Run the work with a terminal as all three streams; return what it showed, with control codes."""
    outer, inner = pty.openpty()
    env = {**os.environ, "TERM": term, "COLUMNS": "80"}
    with subprocess.Popen(
        [sys.executable, "-c", WORK, *arguments], stdin=inner, stdout=inner, stderr=inner, env=env
    ) as it:
        os.close(inner)
        shown = b""
        while True:
            try:
                part = os.read(outer, 65536)
            except OSError:  # how a terminal's end is told
                break
            if not part:
                break
            shown += part
        os.close(outer)
    assert it.returncode == 0, shown.decode()
    return shown.decode()


def test_long_work_draws_a_bar_and_takes_it_away():
    shown = on_a_terminal("text", "1000")
    assert "moving stones" in shown
    assert "25%" in shown
    last = _CODES.sub("", shown.rpartition("\x1b[2K")[2])
    assert "moving stones" not in last, "the bar is gone at the end"


def test_log_lines_are_whole():
    for style in ("text", "json"):
        lines = [_CODES.sub("", line) for line in on_a_terminal(style, "1000").replace("\r", "\n").splitlines()]
        moved = [line for line in lines if "moved" in line]
        assert len(moved) == 4
        assert all("moving stones" not in line for line in moved)


def test_short_work_draws_nothing():
    shown = on_a_terminal("text", "10")
    assert "moving stones" not in shown
    assert "False" in shown, "what draws is not even loaded"


def test_a_terminal_that_cannot_draw_gets_nothing():
    assert "moving stones" not in on_a_terminal("text", "1000", term="dumb")


def test_silence_without_a_terminal():
    argv = [sys.executable, "-c", WORK, "json", "1000"]
    env = {**os.environ, "TERM": "xterm", "FORCE_COLOR": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "False\n"
    assert done.stderr.count("moved") == len(done.stderr.splitlines()) == 4


def test_two_works_at_once_and_one_that_breaks_off():
    first = progress.over([1, 2], "one", is_terminal=True)
    second = progress.over([1], "two", is_terminal=True)
    next(first)
    next(second)
    first.close()
    assert list(second) == []
    assert progress._BARS._progress is None
    assert list(progress.over([], "nothing", is_terminal=True)) == []
