"""How far single attributes are from the truth by the noise of their measurements, found by trial."""

import math
from collections.abc import Mapping

import numpy as np

from duckdb_dp.adaptive.neyman.allocation import effective
from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.nonneg import simplex

TRIALS = 16
"""Made-up draws of an attribute's noise: so many know the mean of its L1 norm to a few percent."""

FEWEST = 0.5
"""The least n_eff of an attribute."""


def spreads(singles: Mapping[Clique, Array], precisions: Mapping[Clique, float]) -> dict[Clique, float]:
    """n_eff of each attribute, such that its L1 error is sqrt(2/pi) n_eff / sqrt(precision) as it is estimated.

    Noise is even over the cells of an attribute, and its estimate is projected on counts that are not negative. So the error of an uneven
    attribute is more than that of errors in proportion to the roots of its counts. The estimate with noise made up once more, projected
    again, is about as far from the estimate as that is from the truth.

    Args:
        singles: the estimates, of one sum.
        precisions: of their measured residuals.

    Privacy: post-processing; the noise is made up, from a seed that everybody knows.
    """
    return {name: _spread(table, precisions.get(name, 0.0)) for name, table in singles.items()}


def _spread(table: Array, precision: float) -> float:
    even = effective(table, FEWEST)
    if precision <= 0:
        return even
    noise = np.random.default_rng(1).normal(0, 1 / math.sqrt(precision), (TRIALS, len(table)))
    noise -= noise.mean(axis=1, keepdims=True)
    total = float(table.sum())
    errors = [float(np.abs(simplex(table + each, total) - table).sum()) for each in noise]
    return max(even, float(np.mean(errors)) * math.sqrt(precision * math.pi / 2))
