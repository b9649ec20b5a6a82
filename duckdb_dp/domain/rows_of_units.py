"""How many rows the units have, from noisy numbers of units with so many rows, and what a bound on the rows would keep."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import numpy as np

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.linop import Array

LARGEST = 1_000_000
"""The largest bound that is looked at; units with more rows are taken to have one more."""

BOUNDS = tuple(bound for e in range(7) for bound in (10**e, 2 * 10**e, 3 * 10**e, 5 * 10**e) if bound <= LARGEST)
"""Cell j holds the units with more than BOUNDS[j - 1] rows and at most BOUNDS[j]; one more cell those with more than the last."""

CERTAIN = 4.2
"""Standard deviations above which neighbouring cells together are not empty. Among all ranges of empty cells one is above it in less than 1
of 100 requests: less would multiply noise by the rows of large units."""


def attribute(name: str) -> Attribute:
    """The number of rows of a unit, with a cell for each bound."""
    return Attribute(name=name, type="BIGINT", kind="bins", points=(1, *(bound + 1 for bound in BOUNDS), 2**62))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What one bound keeps; shares are of the noisy numbers, cut to [0, 1], and None where nothing is certain.

    Attributes:
        units_whole: share of the units of which no row is left out.
        rows_kept: share of the rows that count.
        rows_left_out, stddev: how many do not, and the standard deviation of that: of its noise, and of where in a cell of counts the
            numbers of rows lie, evenly spread.
    """

    units_whole: float | None
    rows_kept: float | None
    rows_left_out: float
    stddev: float


@final
@dataclass(frozen=True, slots=True)
class RowsOfUnits:
    """Noisy numbers of units by their number of rows.

    With N_j units of about m_j rows in cell j, a bound k leaves out sum_j N_j max(m_j - k, 0) rows. The cells after ``seen`` are
    left out of all sums.

    Attributes:
        counts: N, shape (len(BOUNDS) + 1,).
        deviation: the standard deviation of each.

    Privacy: post-processing.
    """

    counts: Array
    deviation: float

    @property
    def seen(self) -> int:
        """How many cells there are up to the last one of a range that is certainly not empty; 0 if none is.

        The range with the most standard deviations comes first, and then those after it.
        """
        sums, found = np.concatenate([[0.0], np.cumsum(self.counts)]), 0
        while found < len(self.counts):
            starts, ends = np.triu_indices(len(self.counts) + 1 - found, 1)
            scores = (sums[found + ends] - sums[found + starts]) / (self.deviation * np.sqrt(ends - starts))
            best = int(np.argmax(scores))
            if scores[best] <= CERTAIN:
                break
            found += int(ends[best])
        return found

    @property
    def unseen(self) -> float:
        """So many units in one cell, or fewer, may have more rows and not be seen."""
        return CERTAIN * self.deviation

    def unseen_share(self, times: float) -> float | None:
        """The rows of so many units, of so many times the largest bound, over all rows that are seen; None where nothing is."""
        counts, rows = self._cells()
        seen = float(rows @ counts)
        return self.unseen * times * self.bounds[-1] / seen if self.seen and seen > 0 else None

    @property
    def bounds(self) -> list[int]:
        """The bounds up to the one that leaves nothing out."""
        return list(BOUNDS[: max(1, self.seen)])

    def kept(self, bound: int) -> Kept:
        """What a bound keeps."""
        number, (counts, rows) = self.seen, self._cells()
        highs = np.array([*BOUNDS, LARGEST + 1], np.float64)[: len(rows)]
        below = np.maximum.accumulate(np.concatenate([[0.0], np.cumsum(counts)]))  # noise aside it grows
        beyond = np.maximum(rows - bound, 0)
        # Where in its cell a number lies is not known: anywhere beyond the bound, and alike in all cells at worst.
        starts = np.maximum(np.array([1, *(low + 1 for low in BOUNDS)], np.float64)[: len(rows)], bound)
        inside = float(np.maximum(highs - starts, 0) / math.sqrt(12) @ np.maximum(counts, 0))
        left_out, all_rows = max(0.0, float(beyond @ counts)), float(rows @ counts)
        whole = float(np.interp(bound, [0, *highs], below))
        return Kept(
            units_whole=_share(whole, float(below[-1])) if number else None,
            rows_kept=_share(all_rows - left_out, all_rows) if number else None,
            rows_left_out=left_out,
            stddev=math.hypot(self.deviation * math.sqrt(float(beyond @ beyond)), inside),
        )

    def _cells(self) -> tuple[Array, Array]:
        """(N, m) of the cells that are seen: numbers of units, and about how many rows each has.

        In a cell numbers of rows x have the density x^-a that its neighbours' densities say, where both are certain, else 1 / x.
        """
        number = max(1, self.seen)
        ends = [0, *BOUNDS, LARGEST + 1][: number + 1]
        widths, middles = np.diff(ends), np.sqrt([(low + 1) * high for low, high in pairwise(ends)])
        counts = self.counts[:number]
        slopes = np.ones(number)
        for j in range(1, number - 1):
            if min(counts[j - 1], counts[j + 1]) > CERTAIN * self.deviation:
                fall = math.log(counts[j - 1] / widths[j - 1]) - math.log(counts[j + 1] / widths[j + 1])
                slopes[j] = fall / math.log(middles[j + 1] / middles[j - 1])
        means = [_mean(low + 1, high, slope) for (low, high), slope in zip(pairwise(ends), slopes, strict=True)]
        return counts, np.array(means)


def _mean(first: int, last: int, slope: float) -> float:
    """The mean of first, ..., last with weights x^-slope; of long cells of as many points as tell it."""
    points = np.unique(np.linspace(first, last, min(last - first + 1, 1_000)).round())
    weights = (points / first) ** -slope
    return float(points @ weights / weights.sum())


def _share(part: float, whole: float) -> float | None:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else None
