"""Degrees as they are expected before they are measured: negative binomials whose values above a bound count as the bound."""

import numpy as np

from duckdb_dp.linop import Array

SPREADS = np.geomspace(0.05, 100, 60)
"""Shapes of the negative binomial that are tried; 100 is nearly Poisson."""

HALVINGS = 50
"""Halvings of the interval of a tilt."""


def clipped(mean: float, none: float, most: int) -> Array:
    """Shares of degrees 0 to d of a negative binomial whose values above d count as d.

    Its mean and its share of 0 are as near the given ones as it allows.

    Args:
        mean: links per row, 0 to d.
        none: share of rows without a link.
        most: d.

    Privacy: post-processing.
    """
    found = negative_binomials(mean, most)
    return np.asarray(found[np.argmin(np.abs(found[:, 0] - none))])


def negative_binomials(mean: float, most: int) -> Array:
    """Shares of degrees 0 to d of negative binomials of one mean, whose values above d count as d; a row for each of ``SPREADS``.

    Args:
        mean: links per row, 0 to d.
        most: d.
    """
    from scipy.special import gammaln  # for import time

    k, found = np.arange(most), []
    wanted = min(max(mean, 0.0), most * (1 - 1e-6))
    for r in SPREADS:
        low, high = -20.0, 20.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            p = r / (r + np.exp(middle))
            below = np.exp(gammaln(k + r) - gammaln(r) - gammaln(k + 1) + r * np.log(p) + k * np.log1p(-p))
            shares = np.append(below, max(0.0, 1 - below.sum()))
            low, high = (middle, high) if shares @ np.arange(most + 1) < wanted else (low, middle)
        found.append(shares / shares.sum())
    return np.array(found)
