"""The OOM score."""

from pykubeproxy.node.process import set_oom_score_adj


def test_written_once(tmp_path):
    (tmp_path / "oom_score_adj").write_text("0\n")
    assert set_oom_score_adj(-999, tmp_path)
    assert (tmp_path / "oom_score_adj").read_text() == "-999\n"


def test_equal_value_needs_no_right(tmp_path):
    path = tmp_path / "oom_score_adj"
    path.write_text("-999\n")
    before = path.stat().st_mtime_ns
    assert set_oom_score_adj(-999, tmp_path)
    assert path.stat().st_mtime_ns == before


def test_refusal_is_no_error(tmp_path):
    assert not set_oom_score_adj(-999, tmp_path / "absent")


def test_none_leaves_it(tmp_path):
    assert set_oom_score_adj(None, tmp_path / "absent")
