"""The chi-square test, for balances. Pure; no scipy for one function."""

from __future__ import annotations

import math
from collections.abc import Sequence


def chi_square(observed: Sequence[int], expected: Sequence[float] | None = None) -> tuple[float, float]:
    """Return the statistic and p, the chance of so large a deviation if ``expected`` (default: even) holds."""
    wanted = list(expected) if expected is not None else [sum(observed) / len(observed)] * len(observed)
    statistic = sum((seen - mean) ** 2 / mean for seen, mean in zip(observed, wanted, strict=True))
    return statistic, upper_gamma((len(observed) - 1) / 2, statistic / 2)


def upper_gamma(shape: float, x: float) -> float:
    """Return the regularised upper incomplete gamma function Q(shape, x) (Abramowitz and Stegun 6.5.29, 6.5.31)."""
    if shape <= 0:
        return 0.0 if x > 0 else 1.0
    if x <= 0:
        return 1.0
    scale = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:  # the series of the lower function converges quickly here
        term = total = 1 / shape
        step = shape
        while abs(term) > abs(total) * 1e-15:
            step += 1
            term *= x / step
            total += term
        return max(0.0, 1 - scale * total)
    # the continued fraction, from its tail
    fraction = 0.0
    for k in range(200, 0, -1):
        fraction = k * (k - shape) / (x + 2 * k + 1 - shape - fraction)
    return scale / (x + 1 - shape - fraction)
