"""The demo's parts that need no laboratory: manifests, the comparer, and how it looks."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from e2e.demo.experiments import EXPERIMENTS, FOREIGN_RULES
from e2e.demo.foreign import differences
from e2e.demo.show import Show
from e2e.demo.stage import MANIFESTS, kube_chains
from e2e.netlab.counters import parse
from pykubeproxy.watch.manifests import load

FOLDERS = sorted(path for path in MANIFESTS.iterdir() if path.is_dir())
SOURCES = "".join(path.read_text() for path in (MANIFESTS.parent / "experiments").glob("*.py"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_manifests_are_read_without_a_complaint(folder):
    assert load([str(folder)]).problems == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_folder_is_applied_by_an_experiment(folder):
    assert f'"{folder.name}"' in SOURCES


def test_the_experiments_have_their_numbers():
    assert list(EXPERIMENTS) == list(range(1, 13))
    assert "others" in EXPERIMENTS[FOREIGN_RULES].title


def test_chains_are_told_by_their_kind_once():
    names = ["PREROUTING", "KUBE-SERVICES", "KUBE-SVC-ABC", "KUBE-SEP-1", "KUBE-SEP-2"]
    assert kube_chains(names) == ["PREROUTING", "KUBE-SERVICES", "KUBE-SVC", "KUBE-SEP"]


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (["a", "b"], []),
        (["a"], ["nft: gone: b"]),
        (["a", "b", "c"], ["nft: new: c"]),
        (["b", "a"], ["nft: the order is another"]),
        (["a", "b", "b"], ["nft: something stands twice"]),
    ],
)
def test_differences_between_rules_of_others(after, told):
    assert differences({"nft": ["a", "b"]}, {"nft": after}) == told


SAVE = """\
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-HL5LMXD5JFHQZ6LN - [0:0]
:KUBE-SEP-VNK6I6TFQ6F6B3VL - [0:0]
[{0}:0] -A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
[{0}:0] -A KUBE-SERVICES -m comment --comment "{name} cluster IP" -j KUBE-SVC-HL5LMXD5JFHQZ6LN
[{0}:0] -A KUBE-SVC-HL5LMXD5JFHQZ6LN -m comment --comment "{name}" -j KUBE-SEP-VNK6I6TFQ6F6B3VL
[{0}:0] -A KUBE-SEP-VNK6I6TFQ6F6B3VL -j DNAT --to-destination [fd00:1111:2222:3333:4444:5555:6666:7777]:65535
COMMIT
"""


def drawn(name):
    show = Show()
    show.console = Console(file=io.StringIO(), width=80, highlight=False)
    show.act("nft", "iptables v1.8.9 (nf_tables)")
    show.heading(1, "A title")
    show.command("python -m pykubeproxy " + "--a-long-flag with-its-value " * 12)
    show.way(parse(SAVE.format(123456, name=name)).since(parse(SAVE.format(0, name=name))), "PREROUTING")
    show.bars({"nginx-1": 1, "nginx-2": 0, "a-pod-of-a-very-long-name": 100000})
    show.table(["one", "other"], [("cell " * 10, "cell " * 20)])
    show.tick("a sentence of some length " * 6, holds=False)
    show.summary({1: "A title " * 12, 2: "Other"}, {"nft": {1: [], 2: ["why " * 40]}, "legacy": {1: []}})
    return show.console.file.getvalue()


@pytest.mark.parametrize("name", ["default/web", "a-namespace-of-a-long-name/with-a-service-of-a-long-name:and-port"])
def test_it_fits_80_columns_and_is_plain_off_a_terminal(name):
    text = drawn(name)
    assert "\x1b" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "└─ DNAT → [fd00:1111:2222:3333:4444:5555:6666:7777]:65535" in text
    assert "It does not hold." in text


def test_the_readme_of_the_manifests_names_the_pods():
    told = (Path(MANIFESTS) / "README.md").read_text()
    for address in ("10.244.2.13", "10.244.2.14", "10.244.9.9", "10.244.2.2", "10.244.2.50"):
        assert address in told
