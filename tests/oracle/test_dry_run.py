"""The printed rules of every case, restored into an empty namespace, are what kube-proxy left."""

import subprocess
import sys

import pytest

from tests.oracle import compare
from tests.oracle.cases_of import BACKENDS, FAMILIES, all_cases, namespace, run, saved

pytestmark = pytest.mark.netns


def dry_run(name, step, family):
    argv = [sys.executable, "-m", "pykubeproxy", "--dry-run", "--manifests", str(step.objects), "--config", str(step.config)]
    argv += ["--service-dispatch", "flat"] if "-dispatch" in step.prefix else []
    done = subprocess.run(
        ["ip", "netns", "exec", name, *argv, "--ip-family", family], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_dry_run_equals_the_recording(case):
    step = case.steps[-1]
    if case.depends_on_history:
        step = case.steps[-2]
    differences = {}
    with namespace(case.env, preload=False) as name:
        documents = {family: dry_run(name, step, family) for family in FAMILIES}
    for backend in BACKENDS:
        with namespace(case.env, backend=backend) as name:
            for family in FAMILIES:
                stem = "iptables" if family == "ipv4" else "ip6tables"
                run(["ip", "netns", "exec", name, f"{stem}-{backend}-restore", "--noflush"], documents[family])
                found = compare.compare(step.save(backend, family), saved(name, backend, family))
                if found:
                    differences[backend, family] = found
    assert differences == {}
