"""A watch that cannot be had costs readings, not drift; one that crashes ends the daemon."""

import errno

import pytest

from pykubeproxy.errors import EnvironmentProblem
from pykubeproxy.netfilter import nftwatch
from pykubeproxy.netfilter.legacywatch import LegacyWatch
from pykubeproxy.netfilter.suspects import EVERYTHING
from pykubeproxy.netfilter.watchers import make_watch
from tests.drift.drifting import eventually
from tests.drift.listening import OURS, listening

pytestmark = pytest.mark.netns


def test_where_the_lock_cannot_be_watched_everything_is_suspected(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XTABLES_LOCKFILE", str(tmp_path / "no-such-folder" / "xtables.lock"))
    watch = make_watch("legacy", ["IPv4"], lambda _: None, lambda _: None)
    assert watch.look("IPv4") == EVERYTHING
    assert watch.look("IPv4") == EVERYTHING
    assert "drift unwatched" in capsys.readouterr().out


def test_the_path_is_named(tmp_path):
    with pytest.raises(EnvironmentProblem, match="no-such-folder"):
        LegacyWatch(lambda _: None, lambda _: None, path=str(tmp_path / "no-such-folder" / "xtables.lock"))


def test_where_the_kernel_tells_nothing_everything_is_suspected(monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(nftwatch.socket, "socket", refuse)
    assert make_watch("nft", ["IPv4"], lambda _: None, lambda _: None).look("IPv4") == EVERYTHING


@pytest.mark.parametrize("kind", ["nft", "legacy"])
def test_a_crash_is_handed_on(kind, monkeypatch):
    def fail(_):
        raise RuntimeError("boom")

    with listening(kind, document=OURS) as it:
        monkeypatch.setattr(type(it.watch), "_drain", fail)
        it.other("*nat\n-F KUBE-SVC-AAAAAAAAAAAAAAAA\nCOMMIT\n")
        eventually(lambda: it.crashed, "the crash")
        monkeypatch.undo()
        assert str(it.crashed.pop()) == "boom"
