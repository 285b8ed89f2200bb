"""The pages for operators: links lead somewhere, files exist, words of the log are those that the program says."""

import re

import pytest

from pykubeproxy.serving.metrics import Metrics
from tests.support.node import ROOT

PAGES = ["install", "migrate", "troubleshooting", "metrics", "security", "limits"]
SOURCES = "\n".join(path.read_text() for path in (ROOT / "pykubeproxy").rglob("*.py"))


def page(name):
    return (ROOT / f"docs/{name}.md").read_text()


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)]+)\)", page(name)):
        path, _, anchor = target.partition("#")
        text = (ROOT / "docs" / path).read_text() if path else page(name)
        if anchor:
            heads = {
                re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-")
                for h in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            }
            assert anchor in heads, target


@pytest.mark.parametrize("name", PAGES)
def test_files_and_modules_that_are_named_exist(name):
    for path in re.findall(r"\b((?:deploy|e2e|tests|docs)/[\w./-]+)", page(name)):
        where = path.rstrip("./")
        assert (ROOT / where).exists(), where
    for module in re.findall(r"python -m (e2e[\w.]*)", page(name)):
        folder = ROOT / module.replace(".", "/")
        assert (folder / "__main__.py").exists() or folder.with_suffix(".py").exists(), module


def test_the_tests_that_the_table_of_conformance_names_can_be_given_to_pytest():
    text = page("conformance")
    named = re.findall(r"`(tests/[\w./]+?\.py)(?:::(test_\w+))?`", text)
    assert len(named) > 40
    assert len(named) == len(re.findall(r"`[^`]*(?:\.py|test_)[^`]*`", text)), "all are named from the root"
    for path, test in named:
        assert not test or re.search(rf"^def {test}\(", (ROOT / path).read_text(), re.MULTILINE), (path, test)
        assert (ROOT / path).exists(), path


def test_events_of_the_log_are_what_the_program_says():
    quoted = [part for line in page("troubleshooting").splitlines() for part in line.split("`")[1::2]]
    words = {part for part in quoted if re.fullmatch(r"[a-z]+(?: [a-z]+)+", part)}
    assert len(words) > 10
    assert [word for word in words - {"kubectl exec", "no iptables found"} if f'"{word}"' not in SOURCES] == []


def test_messages_are_what_the_program_says():
    for text in (
        "needs root (uid 0 with CAP_NET_ADMIN and CAP_NET_RAW)",
        "iptables may not write: ",
        "no iptables found",
    ):
        assert text.strip() in page("troubleshooting")
        assert text in SOURCES
    for reason in ("ConfigurationInvalid", "RulesRefused", "InvalidField", "AddressConflict"):
        assert reason in page("troubleshooting")
        assert f'"{reason}"' in SOURCES


def test_every_metric_is_described():
    text = page("metrics")
    for family in Metrics(with_process=False).registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        assert f"`{name}`" in text, name


@pytest.mark.parametrize("name", PAGES)
def test_flags_that_are_named_exist(name):
    ours = {flag.partition("=")[0] for flag in re.findall(r"`(--[a-z-]+)", page(name))}
    foreign = {"--skip-phases", "--noflush", "--isolation", "--build-arg"}
    reference = (ROOT / "docs/configuration.md").read_text() + SOURCES
    assert [flag for flag in ours - foreign if flag not in reference and f'"{flag[2:]}"' not in reference] == []
