"""The quick rows of the fault bench: the daemon on the real kernel, with traffic. ``make faults`` does them all."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.netns
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_every_quick_row_is_right():
    done = subprocess.run(
        [sys.executable, "-m", "e2e.faults", "--quick", "--json", "--patience", "6"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["backend"] for row in rows} == {"nft", "legacy"}
    assert [row for row in rows if row["wrong"]] == []
    assert done.returncode == 0
