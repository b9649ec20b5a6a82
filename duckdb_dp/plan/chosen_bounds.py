"""The bounds of a sum that nothing bounds, from noisy numbers of units beyond each candidate."""

import math

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.grouped_sums import PER_OCTAVE
from duckdb_dp.linop import Array
from duckdb_dp.noise.kinds import GAUSSIAN, LAPLACE
from duckdb_dp.reconstruct.quantiles import Prefixes

OF_BOUNDS = 3 / 7
"""Weight of choosing bounds beside 1 of a sum: 3/10 of the cost of both."""

ABOVE = {GAUSSIAN.name: 5.0, LAPLACE.name: 8.0}
"""Standard deviations of noise above which a number of units beyond a bound is one: chance alone gets there once in 1,000
requests, and would ruin the answer."""

BESIDE = 2.0
"""The same for bounds next to one that is certain, and ln 16 / BESIDE^2 of it more for each octave: one that chance makes 2^t times
too large is as much less likely as its noise costs more variance."""

FORMER_STEPS, FORMER_WORTH = 8, 0.5
"""How many bounds beyond a certain one were looked at, and ``WORTH``, in releases that do not store what was chosen."""

WORTH = 0.75
"""Rows beyond a bound, in standard deviations of all groups' sums for a bound of 1, for which a larger bound is worth its noise."""

OVER, FARTHEST, SURPRISE, TRUST = 4, 12, 4.0, 1.5
"""Cells over which the number of units beyond is seen to fall; cells up to which it is extrapolated; standard deviations by which a
noisy count that is below the extrapolation refutes it; and standard deviation of the extrapolation, as a part of itself."""

HALF = 0.5
"""Part of the units with values on a side of 0, of which more lie beyond the bound than an answer may pass over."""


def chosen(
    edges: Array, found: Prefixes, *, stddev: float, groups: int, rows: int, noise: str, former: bool = False
) -> tuple[float, float] | None:
    """(low, high): beyond them lie few values, as far as noisy counts tell.

    None where no values are clearly away from 0.

    A bound that is larger by t adds t sigma to the noise of each of G groups, and saves at most t for each row beyond. So it
    is worth it while the rows beyond are more than a part of sigma G, a small one, as what is cut off is in no interval. Of n units
    with values on that side of 0, b have one beyond: if rows fall on units as if by chance, these are -n ln(1 - b / n) rows.

    Few units are worth a larger bound, and no noisy count of few units is clear. So beyond the last bound for which it is, their
    number is extrapolated: ``_farther``.

    Args:
        edges: of the cells.
        found: in how many units' values the largest, or the smallest below 0, lies up to each cell.
        stddev: sigma, that of a group's sum for a bound of 1.
        groups: G.
        rows: the most rows of a unit.
        noise: the name of its kind.
        former: whether to choose as was done when what was chosen was not stored.

    Privacy: post-processing.
    """
    below, total = found.counts[0], found.counts[0, -1]
    beyond = np.concatenate([[total], total - below[:-1]])  # units in cell j and above it
    errors = np.sqrt(np.concatenate([found.variances[:, -1], found.suffix_variances[0, :-1]]))
    worth, least = (FORMER_WORTH if former else WORTH) * groups * stddev, ABOVE[noise]
    positive, negative = edges[:-1] > 0, edges[1:] < 0
    up = _last(beyond[positive], errors[positive], worth, rows, least, former)
    down = _last(below[negative][::-1], np.sqrt(found.variances[0])[negative][::-1], worth, rows, least, former)
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


def _last(counts: Array, errors: Array, worth: float, rows: int, least: float, former: bool) -> int | None:
    """The last cell, outwards from 0, in or beyond which there are enough units; None where there is none."""
    units = max(float(counts[0]), 1.0)
    shares = np.clip(counts / units, 0.0, 1 - 1 / (2 * units))
    spread = np.clip(-units * np.log1p(-shares), counts, np.maximum(rows * counts, counts))
    enough: NDArray[np.bool_] = spread >= worth
    certain = np.flatnonzero(enough & (counts >= least * errors))
    if not len(certain):
        return None
    last = first = int(certain[-1])
    beside = enough & (counts >= BESIDE * errors)
    for place in range(first + 1, min(first + 1 + FORMER_STEPS, len(counts)) if former else len(counts)):
        if not beside[place]:
            break
        octaves = 0.0 if former else (place - first) / PER_OCTAVE
        if (counts[place] / errors[place]) ** 2 >= BESIDE**2 + math.log(16) * octaves:
            last = place
    return last if former else max(last, _farther(counts, errors, first, worth))


def _farther(counts: Array, errors: Array, last: int, worth: float) -> int:
    """The last cell, outwards from ``last``, in or beyond which enough units may be expected.

    Their number falls from there on as fast as before, by half in an octave at least, and faster once it has: each step takes the noisy
    count c of standard deviation s into account where it is below the extrapolated e, whose own one is taken for TRUST e, as
    e + (c - e) / (1 + (s / (TRUST e))^2). Where c is far below e, the values end there, and c - s is taken instead.
    """
    start = expected = max(float(counts[last]), 1.0)
    before = max(float(counts[max(last - OVER, 0)]), expected)
    falls = max(math.log(before / expected) / OVER, math.log(2) / PER_OCTAVE)
    for place in range(last + 1, min(last + 1 + FARTHEST, len(counts))):
        ahead, count, error = expected * math.exp(-falls), float(counts[place]), float(errors[place])
        if ahead - count > SURPRISE * error:
            expected = count - error
        else:
            expected = ahead + min(count - ahead, 0.0) / (1 + (error / (TRUST * ahead)) ** 2)
        if expected < max(worth, 1.0):
            return place - 1
        falls = max(falls, math.log(start / expected) / (place - last))
    return min(last + FARTHEST, len(counts) - 1)
