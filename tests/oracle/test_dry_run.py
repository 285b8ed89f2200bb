"""The printed rules of every case, restored into an empty namespace, are what kube-proxy left."""

import subprocess
import sys

import pytest

from tests.oracle import compare
from tests.oracle.cases_of import BACKENDS, FAMILIES, all_cases, namespace, run, saved

pytestmark = pytest.mark.netns


def dry_run(name, step):
    """Return both families' documents as one process prints them."""
    argv = [
        sys.executable,
        "-m",
        "pykubeproxy",
        "--dry-run",
        "--manifests",
        str(step.objects),
        "--config",
        str(step.config),
    ]
    done = subprocess.run(["ip", "netns", "exec", name, *argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, _, second = done.stdout.partition("# IPv6\n")
    assert first.startswith("# IPv4\n")
    return {"ipv4": first, "ipv6": second}


def without_stale_chains(text, case):
    """Leave out the service chains that stood there before: printing rules removes nothing, the daemon does."""
    preloaded = "".join(case.env.get(key) or "" for key in ("preloadIPv4", "preloadIPv6")).splitlines()
    stale = {line[1:].split()[0] for line in preloaded if line.startswith((":KUBE-SVC-", ":KUBE-SEP-", ":KUBE-FW-"))}
    return "\n".join(line for line in text.splitlines() if line.split(" ")[0].lstrip(":") not in stale
                     and not (line.startswith("-A ") and line.split()[1] in stale)) + "\n"  # fmt: skip


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_dry_run_equals_the_recording(case):
    step = case.steps[-2] if case.depends_on_history else case.steps[-1]
    differences = {}
    with namespace(case.env, preload=False) as name:
        documents = dry_run(name, step)
    for backend in BACKENDS:
        with namespace(case.env, backend=backend) as name:
            for family in FAMILIES:
                stem = "iptables" if family == "ipv4" else "ip6tables"
                run(["ip", "netns", "exec", name, f"{stem}-{backend}-restore", "--noflush"], documents[family])
                standing = without_stale_chains(saved(name, backend, family), case)
                found = compare.compare(step.save(backend, family), standing)
                if found:
                    differences[backend, family] = found
    assert differences == {}
