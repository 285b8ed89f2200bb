"""``python -m tests.fuzz TARGET [-runs=N]``: fuzz raw bytes, coverage-guided, with atheris (not needed by the tests).

``pip install atheris`` first. Targets: see ``targets``. libFuzzer's flags are taken: -runs=, -max_total_time=, a
corpus folder.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["pykubeproxy"]):
    from tests.fuzz.targets import SEEDS, TARGETS


def main() -> None:
    """Fuzz until told to stop."""
    name = sys.argv.pop(1)
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(SEEDS[name]):
            (Path(folder) / str(number)).write_bytes(seed)
        atheris.Setup([*sys.argv, folder], TARGETS[name])
        atheris.Fuzz()


main()
