"""The table says what was measured: medians and spread, the worse of several, and whether a target was met."""

from e2e.bench import report


def row(samples, label):
    return next(cells for cells in report.target_rows(samples) if label in cells[0])


def test_a_median_with_its_spread_the_ratio_and_the_verdict():
    samples = {
        (report.MAIN, "nft", "ours", "start"): [3.0, 3.5, 9.0],
        (report.MAIN, "nft", "kube-proxy", "start"): [57.0, 56.0, 58.0],
    }
    cells = row(samples, "process start to synced, nft")
    assert cells[1:] == ["57 s (56 to 58)", "3.5 s (3 to 9)", "16.3", "≤ 4 s", "met"]


def test_a_missed_target_says_so():
    samples = {(report.MAIN, "nft", "ours", "start"): [4.5]}
    assert row(samples, "process start to synced, nft")[-1] == "not met"


def test_a_target_against_the_real_one_counts_the_same_run():
    key = (report.MAIN, "legacy")
    samples = {(*key, "ours", "start"): [1.9], (*key, "kube-proxy", "start"): [2.0]}
    assert row(samples, "synced, legacy")[-2:] == ["≤ kube-proxy", "met"]
    del samples[*key, "kube-proxy", "start"]
    assert row(samples, "synced, legacy")[-1] == ""


def test_of_several_connections_the_worst_counts():
    samples = {(report.LARGE, "nft", "ours", measure): [20.0 + n] for n, measure in enumerate(report.CONNECTS)}
    assert row(samples, "new connection, worst of four, nft")[2] == "23 µs"


def test_what_was_not_measured_is_no_row():
    assert report.target_rows({}) == []


def test_results_stand_between_their_marks():
    text = report.markdown({(report.MAIN, "nft", "ours", "start"): [3.0]}, about=["A run."])
    assert text.startswith(report.START)
    assert text.endswith(report.END)
    assert "**5,000 x 5, nft**" in text
