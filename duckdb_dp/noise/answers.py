"""Exact answers with noise, on the noise's grid: ``private.py`` alone calls this on exact counts."""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from duckdb_dp.linop import Array, Integers, Measurable
from duckdb_dp.noise.grid import grid_step
from duckdb_dp.noise.kinds import Noise
from duckdb_dp.noise.uniform import EntropySource

CELLS = 2**18
"""Cells of the exact counts whose answers are drawn together: two megabytes."""


def noisy(query: Measurable, variance: float, exact: Integers, bits: EntropySource, noise: Noise) -> Array:
    """The grid points nearest to B x + noise, a function of the ideal noisy answers alone.

    Privacy: spends what noise of this variance costs.
    """
    (answers,) = noisy_all([(query, exact)], variance, bits, noise)
    return answers


def noisy_all(
    asked: Iterable[tuple[Measurable, Integers]], variance: float, bits: EntropySource, noise: Noise
) -> list[Array]:
    """As ``noisy`` of each (query, exact counts); what is drawn together takes a tenth of the time where each is one number.

    Privacy: spends what noise of this variance costs, for each.
    """
    found: list[Array] = []
    waiting: list[tuple[Measurable, Integers]] = []
    cells = 0
    for query, exact in asked:
        waiting.append((query, exact))
        cells += len(exact)
        if cells >= CELLS:
            found += _together(waiting, variance, bits, noise)
            waiting, cells = [], 0
    return found + _together(waiting, variance, bits, noise) if waiting else found


def _together(
    asked: Sequence[tuple[Measurable, Integers]], variance: float, bits: EntropySource, noise: Noise
) -> list[Array]:
    stddev = math.sqrt(variance)
    step = grid_step(stddev)
    applied = [query.apply(exact) for query, exact in asked]
    centres = np.concatenate([answers for answers, _ in applied])
    errors = np.concatenate(
        [np.broadcast_to(np.asarray(error, np.float64), answers.shape) for answers, error in applied]
    )
    ends = np.cumsum([len(answers) for answers, _ in applied])

    def centre(index: int) -> Fraction:
        which = int(np.searchsorted(ends, index, side="right"))
        query, exact = asked[which]
        return query.exact(exact, index - int(ends[which]) + len(applied[which][0])) / Fraction(step)

    # Dividing by a power of 2 is exact.
    points = noise.draw(centres / step, errors / step, stddev / step, centre, bits=bits)
    return np.split(points.astype(np.float64) * step, ends[:-1])
