"""The bounds of a sum that nothing bounds, from noisy numbers of units beyond each candidate."""

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.linop import Array
from duckdb_dp.noise.kinds import GAUSSIAN, LAPLACE
from duckdb_dp.reconstruct.quantiles import Prefixes

OF_BOUNDS = 3 / 7
"""Weight of choosing bounds beside 1 of a sum: 3/10 of the cost of both."""

ABOVE = {GAUSSIAN.name: 5.0, LAPLACE.name: 8.0}
"""Standard deviations of noise above which a number of units beyond a bound is one: chance alone gets there once in 1,000
requests, and would ruin the answer."""

BESIDE, STEPS = 2.0, 8
"""The same for the next bounds beyond one that is certain, and how many of them: then chance adds two octaves at most."""

WORTH = 0.5
"""Rows beyond a bound, in standard deviations of all groups' sums for a bound of 1, for which a larger bound is worth its noise."""


HALF = 0.5
"""Part of the units with values on a side of 0, of which more lie beyond the bound than an interval may pass over."""


def chosen(
    edges: Array, found: Prefixes, *, stddev: float, groups: int, rows: int, noise: str
) -> tuple[float, float] | None:
    """(low, high): beyond them lie few values, as far as noisy counts tell.

    None where no values are clearly away from 0.

    A bound that is larger by t adds t sigma to the noise of each of G groups, and saves at most t for each row beyond. So it
    is worth it while the rows beyond are more than a part of sigma G, a small one, as what is cut off is in no interval. Of n units
    with values on that side of 0, b have one beyond: if rows fall on units as if by chance, these are -n ln(1 - b / n) rows.

    Args:
        edges: of the cells.
        found: in how many units' values the largest, or the smallest below 0, lies up to each cell.
        stddev: sigma, that of a group's sum for a bound of 1.
        groups: G.
        rows: the most rows of a unit.
        noise: the name of its kind.

    Privacy: post-processing.
    """
    below, total = found.counts[0], found.counts[0, -1]
    beyond = np.concatenate([[total], total - below[:-1]])  # units in cell j and above it
    errors = np.sqrt(np.concatenate([found.variances[:, -1], found.suffix_variances[0, :-1]]))
    worth, least = WORTH * groups * stddev, ABOVE[noise]
    positive, negative = edges[:-1] > 0, edges[1:] < 0
    up = _last(beyond[positive], errors[positive], worth, rows, least)
    down = _last(below[negative][::-1], np.sqrt(found.variances[0])[negative][::-1], worth, rows, least)
    high = 0.0 if up is None else float(edges[1:][positive][up])
    low = 0.0 if down is None else float(edges[:-1][negative][::-1][down])
    return (low, high) if low < high else None


def half_beyond(edges: Array, found: Prefixes, bounds: tuple[float, float]) -> bool:
    """Whether half of the units with values above 0, or of those below, have one beyond the bounds, as far as noisy counts tell.

    Then most of a sum may be cut off, and no interval around the rest says anything of it.

    Args:
        edges, found: as in ``chosen``.
        bounds: what it returned.

    Privacy: post-processing.
    """
    below, total = found.counts[0], found.counts[0, -1]
    low, high = bounds

    def above(edge: float) -> float:
        return float(total - below[np.searchsorted(edges, edge) - 1])

    def under(edge: float) -> float:
        return float(below[np.searchsorted(edges, edge) - 1])

    first = edges[edges > 0][0]
    up = high > 0 and above(high) > HALF * above(first)
    return up or (low < 0 and low > edges[0] and under(low) > HALF * under(-first))


def _last(counts: Array, errors: Array, worth: float, rows: int, least: float) -> int | None:
    """The last cell, outwards from 0, in or beyond which there are enough units; None where there is none."""
    units = max(float(counts[0]), 1.0)
    shares = np.clip(counts / units, 0.0, 1 - 1 / (2 * units))
    spread = np.clip(-units * np.log1p(-shares), counts, np.maximum(rows * counts, counts))
    enough: NDArray[np.bool_] = spread >= worth
    certain = np.flatnonzero(enough & (counts >= least * errors))
    if not len(certain):
        return None
    last = int(certain[-1])
    for place in range(last + 1, min(last + 1 + STEPS, len(counts))):
        if not (enough[place] and counts[place] >= BESIDE * errors[place]):
            break
        last = place
    return last
