"""p of the chi-square test against published values (NIST/SEMATECH e-Handbook, table 1.3.6.7.4)."""

import pytest

from e2e.netlab.stats import chi_square, upper_gamma


@pytest.mark.parametrize(
    ("freedom", "statistic", "p"),
    [
        (1, 3.841, 0.05),
        (1, 10.828, 0.001),
        (2, 5.991, 0.05),
        (2, 13.816, 0.001),
        (9, 16.919, 0.05),
        (99, 148.230, 0.001),
    ],
)
def test_p_of_known_statistics(freedom, statistic, p):
    assert upper_gamma(freedom / 2, statistic / 2) == pytest.approx(p, rel=2e-3)


def test_an_even_spread_is_likely():
    assert chi_square([1000, 1000, 1000]) == (0.0, 1.0)


def test_a_starved_pod_is_not():
    assert chi_square([1500, 1450, 50])[1] < 1e-100


def test_expected_shares_can_be_given():
    assert chi_square([500, 250, 250], [500.0, 250.0, 250.0])[1] == 1.0
