"""The commands that the README shows: they run as they stand there, for anybody, and nothing is to be noted of them."""

import re
import shlex

import pytest
from insight_demo import ROOT, run_as_given

TEXT = (ROOT / "README.md").read_text()
ALIAS = re.search(r"^\$ alias pkp='(?P<meant>.*)'$", TEXT, re.MULTILINE)
SHOWN = re.findall(r"^\$ pkp (.*)$", TEXT, re.MULTILINE)


def test_there_are_some():
    assert ALIAS["meant"].startswith(".venv/bin/pykubeproxy ")
    assert {line.split()[0] for line in SHOWN} == {"--dry-run", "explain", "trace"}


@pytest.mark.parametrize("line", SHOWN)
def test_it_answers_without_a_note(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("pykubeproxy.insight.live.os.geteuid", lambda: 1000)
    done = run_as_given(*shlex.split(ALIAS["meant"])[1:], *shlex.split(line))
    assert (done.returncode, done.stderr) == (0, "")
    assert "10.101.245.66" in done.stdout
    assert "note:" not in done.stdout
