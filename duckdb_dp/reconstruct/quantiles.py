"""Quantiles from noisy prefix counts: an isotonic fit, its inversion, and intervals from the counts themselves.

With F_j the noisy number of rows in the cells 0 to j, N = F_(n-1) and a quantile q, the q-quantile of the rows lies in the
first cell j with true F_j >= q N. Noisy prefixes may fall; their fit by least squares among sequences that do not fall is
isotonic regression. An interval needs no fit: the true cell j has F_j - q N >= 0 and F_(j-1) - q N < 0 before noise, and
each of the two holds within z standard deviations of the noise of F - q N with probability 97.5 % at least.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.linop import Array, Integers

MARGIN = 2.0**-40
"""Of N: by so much a sum of doubles may fall short of the rank that it stands for."""


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Prefixes:
    """Noisy prefix counts of groups, with what their intervals need.

    Attributes:
        counts: F, shape (groups, n).
        variances: Var F_j, shape (groups, n).
        suffix_variances: Var (N - F_j), shape (groups, n); 0 at the end.
        width: z, the half-width of a 95 % interval in standard deviations.
    """

    counts: Array
    variances: Array
    suffix_variances: Array
    width: float

    def stddevs(self, q: float) -> Array:
        """Standard deviations of F_j - q N, shape (groups, n).

        Formula: F - q N = (1 - q) F - q (N - F), and N = F + (N - F) gives the covariance of the two, so that its variance
        is (1 - q) Var F + q Var(N - F) - q (1 - q) Var N.
        """
        total = self.variances[:, -1:]
        found = (1 - q) * self.variances + q * self.suffix_variances - q * (1 - q) * total
        return np.asarray(np.sqrt(np.maximum(found, 0.0)), dtype=np.float64)

    def known(self) -> NDArray[np.bool_]:
        """Which groups have a noisy number of rows that is clearly above 0, shape (groups,)."""
        return np.asarray(self.counts[:, -1] > self.width * np.sqrt(self.variances[:, -1]), dtype=np.bool_)

    def seen(self) -> tuple[Integers, Integers]:
        """The first and the last cell with rows of each group, shape (groups,): beyond them the noisy number is within one stddev of 0."""
        none_above = self.counts[:, -1:] - self.counts <= np.sqrt(np.maximum(self.suffix_variances, 0.0))
        none_below = self.counts[:, :-1] <= np.sqrt(self.variances[:, :-1])
        low = np.where(none_below.any(axis=1), none_below.shape[1] - none_below[:, ::-1].argmax(axis=1), 0)
        return low, none_above.argmax(axis=1)

    def fitted(self) -> Array:
        """The non-negative F that do not fall and are nearest to the noisy ones, weighted by 1 / Var F, shape (groups, n)."""
        from scipy.optimize import isotonic_regression

        weights = self.variances.min(axis=1, keepdims=True) / self.variances
        found = [isotonic_regression(noisy, weights=own).x for noisy, own in zip(self.counts, weights, strict=True)]
        return np.asarray(np.maximum(found, 0.0), dtype=np.float64)

    def quantiles(self, asked: Sequence[float]) -> Array:
        """(cell, share, low, high) of every group and quantile, shape (groups, quantiles, 4).

        The value lies in the cell, by the share of its rows that are below it, in [0, 1); the interval reaches from the
        cell low to the cell high. Where a group's number of rows is not ``known`` the cell is NaN, and the interval is
        all cells.

        Privacy: post-processing.
        """
        fitted, n = self.fitted(), self.counts.shape[1]
        found = np.empty((len(self.counts), len(asked), 4))
        for place, q in enumerate(asked):
            above, half = self.counts - q * self.counts[:, -1:], self.width * self.stddevs(q)
            reached, short = above + half >= 0, above - half <= 0
            for group, fit in enumerate(fitted):
                cell, share = _inverted(fit, q)
                low, high = _first(reached[group]), n - 1 - _first(short[group, -2::-1])
                found[group, place] = cell, share, min(low, cell), max(high, cell)
        found[~self.known()] = np.nan, np.nan, 0, n - 1
        return found

    def selected(self, asked: Sequence[float], points: Array) -> Array:
        """The same of quantiles that were selected; the intervals are those of the prefixes, and a value lies in its own.

        Args:
            asked: the quantiles.
            points: the number of the cell and the share of the cell below, shape (groups, quantiles).

        Privacy: post-processing.
        """
        found = self.quantiles(asked)
        cells = np.floor(points)
        inside = np.clip(cells, found[:, :, 2], found[:, :, 3])
        known = self.known()
        found[known, :, 0] = inside[known]
        found[known, :, 1] = np.where(inside == cells, points - cells, 0.5)[known]
        return found


def _inverted(fit: Array, q: float) -> tuple[int, float]:
    """The first cell that reaches the rank q N, which is 1 at least, and the share of its rows up to there."""
    rank = max(q * fit[-1], min(1.0, fit[-1])) * (1 - MARGIN)
    cell = min(int(np.searchsorted(fit, rank)), len(fit) - 1)
    before = fit[cell - 1] if cell else 0.0
    inside = fit[cell] - before
    share = (rank - before) / inside if inside > 0 else 0.0
    return cell, min(max(float(share), 0.0), 1 - 2.0**-53)


def _first(true: NDArray[np.bool_]) -> int:
    """The first place that is true; their number where none is."""
    return int(np.argmax(true)) if true.any() else len(true)
