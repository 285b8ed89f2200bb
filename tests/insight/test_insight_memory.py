"""What affinity remembers, read from /proc: of all endpoint chains, or of some without looking for the others."""

from pathlib import Path

import pytest

from pykubeproxy.insight.live import recent_memory

LINE = "src=10.244.2.50 ttl: 64 last_seen: 4297236137 oldest_pkt: 1 4297236137\n"


@pytest.fixture
def proc(tmp_path):
    folder = tmp_path / "thread-self/net/xt_recent"
    folder.mkdir(parents=True)
    for name in ("KUBE-SEP-A", "KUBE-SEP-B", "sshd"):
        (folder / name).write_text(LINE)
    return tmp_path


def test_all_endpoint_chains(proc):
    memory, has_ages = recent_memory(proc=proc)
    assert memory == {"KUBE-SEP-A": {"10.244.2.50": 0.0}, "KUBE-SEP-B": {"10.244.2.50": 0.0}}
    assert not has_ages


def test_thousands_of_chains_are_not_looked_for_one_by_one(proc, monkeypatch):
    """The folder holds all lists of the node; looking through it for each chain took minutes."""

    def refuse(_):
        raise AssertionError("the folder is not listed")

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert list(recent_memory(["KUBE-SEP-B", "KUBE-SEP-GONE"], proc=proc)[0]) == ["KUBE-SEP-B"]


def test_none_without_the_match(tmp_path):
    assert recent_memory(proc=tmp_path) == ({}, True)
