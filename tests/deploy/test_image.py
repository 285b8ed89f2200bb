"""The image, built and run with podman: ``make image-test``. Some minutes, so it is not part of ``make test``."""

import json
import os
import subprocess
import sys

import pytest

from e2e.image import build, podman
from tests.support.node import ROOT

pytestmark = [
    pytest.mark.image,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(podman.why_absent()), reason=podman.why_absent() or "-"),
]
TAG = "localhost/pykubeproxy-test"
LARGEST = 190_000_000
"""Bytes. It was 161 MB when this was written, 79 of them Debian's base."""


@pytest.fixture(scope="module")
def image():
    build.build(TAG)
    return TAG


def shell(image, script, *options, status=0):
    argv = [*podman.RUN, "--network", "none", *options, "--entrypoint", "sh", image, "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout


def test_its_size(image, capsys):
    text = f"{image}: {build.size(image) / 1e6:.0f} MB, of which the base has {build.size(build.BASE) / 1e6:.0f} MB"
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")
    assert build.size(image) < LARGEST, text


def test_no_compiler_no_pip_no_headers(image):
    assert shell(image, "command -v gcc cc ld pip pip3 || true") == ""
    assert shell(image, "ls /usr/include 2>/dev/null | grep -i python || true") == ""
    assert shell(image, "ls -d /opt/pykubeproxy/lib/python3*/site-packages/pip* 2>/dev/null || true") == ""


def test_its_entry_points(image):
    for name in ("kube-proxy", "pykubeproxy"):
        assert shell(image, f"/usr/local/bin/{name} --version").startswith("pykubeproxy ")
    told = subprocess.run(["podman", "image", "inspect", image], capture_output=True, text=True, check=True).stdout
    config = json.loads(told)[0]["Config"]
    assert config["Entrypoint"] == ["/usr/local/bin/kube-proxy"]
    assert config["User"] == "0:0"


def test_both_kinds_of_iptables(image):
    for stem in ("iptables", "ip6tables"):
        for kind in ("legacy", "nft"):
            assert kind.replace("nft", "nf_tables") in shell(image, f"{stem}-{kind} --version")


def test_all_that_is_pruned_is_never_loaded(image):
    everything = "import iptc, pykubeproxy.daemon, pykubeproxy.dryrun, pykubeproxy.watch.client, pykubeproxy.watch.once"
    shell(image, f"/opt/pykubeproxy/bin/python -W error::ImportWarning -c '{everything}'")
    assert "nothing" in shell(image, "ls -d /opt/pykubeproxy/lib/python3*/site-packages/kubernetes/aio || echo nothing")


def test_byte_code_is_there_and_no_source_is_newer(image):
    script = (
        "import compileall, sys; "
        "sys.exit(not compileall.compile_dir('/opt/pykubeproxy/lib', quiet=2, force=False, workers=1))"
    )
    shell(image, f'/opt/pykubeproxy/bin/python -c "{script}"', "--read-only")


@pytest.mark.netns
@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_the_demo_holds_with_the_daemon_in_the_container(image, backend):
    command = f"{sys.executable} -m e2e.image.run {image}"
    argv = [sys.executable, "-m", "e2e.demo", "--backend", backend, "--command", command]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "All of it holds." in done.stdout
    left = subprocess.run(["podman", "ps", "-aq"], capture_output=True, text=True, check=True).stdout
    assert left == ""
