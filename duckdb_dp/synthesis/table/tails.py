"""The last classes of a difference, as far as noise alone explains them: a stay of a year that nobody had spoils every average."""

import math

import numpy as np

from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.junction import Codes

MEAN, SPREAD = 0.4, 0.6
"""Mean and standard deviation, in those of the noise, of what noise leaves in a cell without rows, as counts are never below 0."""

ERRORS = 3.0
"""Standard deviations by which a tail, or a class of its own, has to be more than noise."""


def told(single: Array, stddev: float) -> int:
    """How many of the first classes are kept: all after them are no more, each and together, than noise leaves in empty ones.

    Args:
        single: the estimate of each class, shape (classes,).
        stddev: of the noise in each.

    Privacy: post-processing.
    """
    tails, numbers = np.cumsum(single[::-1]), np.arange(1, len(single) + 1)
    noise = stddev * (MEAN * numbers + ERRORS * SPREAD * np.sqrt(numbers))
    above = np.flatnonzero((tails > noise) | (single[::-1] > ERRORS * stddev))
    return len(single) - int(above[0]) if len(above) else 1


def without_tail(codes: Codes, single: Array, variance: float, rng: np.random.Generator) -> Codes:
    """Drawn classes, of which those of the tail that noise explains are drawn anew among the others.

    Args:
        codes: the class of each row; what is no class has a number beyond them.
        single: the estimate of each class.
        variance: of the noise in each.
        rng: random numbers.

    Privacy: post-processing.
    """
    kept = told(single, math.sqrt(variance))
    chances = np.maximum(single[:kept], 0)
    tail = np.flatnonzero((codes >= kept) & (codes < len(single)))
    if not len(tail) or not chances.sum():
        return codes
    found = codes.copy()
    found[tail] = rng.choice(kept, len(tail), p=chances / chances.sum())
    return found
