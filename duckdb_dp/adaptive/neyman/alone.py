"""How far single attributes are from the truth by the noise of their measurements, found by trial."""

import math
from collections.abc import Mapping

import numpy as np

from duckdb_dp.adaptive.neyman.allocation import LEAST, effective
from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.nonneg import simplex

TRIALS, BETTER = 16, 4.0
"""Made-up draws of an attribute's noise: so many know the mean of its L1 norm to a few percent. And how many times the precision the
error is tried at too."""

FEWEST = 0.5
"""The least n_eff of an attribute."""

LEAST_GAIN = 1.1
"""The squared error at the one precision, over that at the other, at least: where noise is all, four times the precision changes little."""


def spreads(singles: Mapping[Clique, Array], precisions: Mapping[Clique, float]) -> dict[Clique, tuple[float, float]]:
    """(n_eff, precision K) of each attribute, such that its L1 error is sqrt(2/pi) n_eff / sqrt(D + K) if D is added.

    Noise is even over the cells of an attribute, and its estimate is projected on counts that are not negative. So the error of an uneven
    attribute is more than that of errors in proportion to the roots of its counts, and where noise is all there is, a higher precision
    makes it less by little: K is more than what was measured. The estimate with noise made up once more, projected
    again, is about as far from the estimate as that is from the truth; tried at two precisions, this has n_eff and K.

    Args:
        singles: the estimates, of one sum.
        precisions: of their measured residuals.

    Privacy: post-processing; the noise is made up, from a seed that everybody knows.
    """
    return {name: _spread(table, precisions.get(name, 0.0)) for name, table in singles.items()}


def _spread(table: Array, precision: float) -> tuple[float, float]:
    even = effective(table, FEWEST)
    if precision <= 0:
        return even, 0.0
    now, then = _error(table, precision), _error(table, precision * BETTER)
    gain = min(max((now / max(then, LEAST)) ** 2, LEAST_GAIN), BETTER)
    known = precision * (BETTER - 1) / (gain - 1)
    return max(even, now * math.sqrt(known * math.pi / 2)), known


def _error(table: Array, precision: float) -> float:
    noise = np.random.default_rng(1).normal(0, 1 / math.sqrt(precision), (TRIALS, len(table)))
    noise -= noise.mean(axis=1, keepdims=True)
    total = float(table.sum())
    return float(np.mean([np.abs(simplex(table + each, total) - table).sum() for each in noise]))
