"""The last degrees, of which noise hides how many rows have each: all together they have the links that the others leave."""

import math

import numpy as np

from duckdb_dp.linop import Array, Integers
from duckdb_dp.synthesis.links.measured_degrees import CLEAR
from duckdb_dp.synthesis.links.per_unit import NoisyTable

UNLIKE = 0.3
"""How far the number of rows of the last degrees may be, over itself, from what their links say."""

JOINTLY = 2.0
"""Standard deviations of its noise above which the number of rows of all last degrees together is seen."""

STEEPEST, HALVINGS, ROUNDS = 20.0, 50, 4


def calmed(shares: Array, prior: Array, held: Integers, classed: NoisyTable, rows: float, mean: float) -> Array:
    """Shares of degrees 1 to d in which those after the last class that is seen by itself fall as it is expected.

    Formula: t of all rows have one of the last degrees, in the proportions q of the prior. With L links that the degrees before leave of
    all, t is about L / m, where m = sum k q_k: its variance is that of L by the noise in these degrees, over m^2, and (``UNLIKE`` L / m)^2.
    It is averaged with what was measured of the last classes together, each by its variance, and q^s is taken with s such that t of
    all rows have L. Noise would leave a few rows of each last degree otherwise, and all the links that are too many would be theirs.
    What is seen of the last classes together stays as it is.

    Args:
        shares: of degrees 1 to d, as the noise lets them be known.
        prior: what is expected of the same.
        held: the class of each degree.
        classed: rows of each class as measured.
        rows: how many there are, as measured.
        mean: links of a row.

    Privacy: post-processing.
    """
    stddev = math.sqrt(classed.variance)
    seen = np.flatnonzero(classed.table > CLEAR * stddev)
    last = held > (seen[-1] if seen.size else -1)
    if not seen.size or not last.any():
        return shares
    k, size = np.arange(1, len(shares) + 1), int(classed.table.size - seen[-1] - 1)
    measured, variance = float(classed.table[seen[-1] + 1 :].sum()) / rows, size * classed.variance / rows**2
    if measured > JOINTLY * math.sqrt(variance):
        return shares
    before = classed.variance / rows**2 * float((k[~last] ** 2).sum())
    linked, shape = float(shares.sum()), np.maximum(prior[last], 1e-300)
    shape /= shape.sum()
    far = float(shape @ k[last])
    found = np.where(last, 0.0, shares)
    for _ in range(ROUNDS):  # rows that the last degrees take are not those of others, which have fewer links then
        left = mean - float(found @ k)
        wanted, unsure = left / far, (UNLIKE * max(left, 0.0) / far) ** 2 + before / far**2
        number = (variance * wanted + unsure * measured) / (variance + unsure)
        number = min(max(number, 0.0), linked)
        found = found * (linked - number) / max(float(found.sum()), 1e-300)
    found[last] = number * _steep(shape, k[last], left / max(number, 1e-300)) if number else 0.0
    return found


def _steep(shape: Array, k: Integers, mean: float) -> Array:
    """The shares to a power of 0 or more, such that they have that mean, or one as near as may be: falling ones stay so."""
    low, high = 0.0, STEEPEST
    logs = np.log(shape)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        now = np.exp(middle * (logs - logs.max()))
        now /= now.sum()
        low, high = (middle, high) if now @ k > mean else (low, middle)
    return np.asarray(now)
