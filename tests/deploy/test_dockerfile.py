"""What the Dockerfile promises, read from its text: the image itself is tried by test_image (make image-test)."""

import re

import pytest

from tests.support.node import ROOT

TEXT = (ROOT / "Dockerfile").read_text()
STAGES = re.split(r"^FROM ", TEXT, flags=re.MULTILINE)[1:]


def test_the_base_is_one_short_name_that_can_be_replaced():
    assert re.search(r"^ARG BASE=debian:trixie-slim$", TEXT, re.MULTILINE)
    assert [stage.split()[0] for stage in STAGES] == ["${BASE}", "${BASE}"]


def test_no_host_is_named():
    assert re.findall(r"\b[a-z0-9-]+\.(?:io|com|org|net|dev)\b", TEXT.replace("org.opencontainers", "")) == []
    assert "://" not in TEXT


def test_the_compiler_stays_in_the_first_stage():
    assert "gcc" in STAGES[0]
    assert not re.search(r"gcc|-dev\b|build-essential|pip ", STAGES[1])


def test_dependencies_are_the_locked_ones():
    assert "PIP_CONSTRAINT=/src/requirements.lock" in STAGES[0]


def test_it_can_take_kube_proxys_place():
    assert "/opt/pykubeproxy/bin/kube-proxy /usr/local/bin/" in STAGES[1]
    assert 'ENTRYPOINT ["/usr/local/bin/kube-proxy"]' in STAGES[1]
    assert "USER 0:0" in STAGES[1]


def test_nothing_has_to_be_written_at_run_time():
    assert "compileall" in STAGES[0]
    assert "PYTHONDONTWRITEBYTECODE=1" in STAGES[1]


@pytest.mark.parametrize("name", ["pykubeproxy", "pyproject.toml", "requirements.lock", "README.md", "LICENSE"])
def test_the_context_holds_what_is_copied(name):
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert f"!{name}" in ignored
    assert re.search(rf"^COPY .*\b{re.escape(name)}\b", TEXT, re.MULTILINE)
