"""The exact sums of groups that a statement has worked out. Private: only ``private.py`` reads them."""

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Clique
from duckdb_dp.grouped_sums import BITS, GroupedSums, sum_name
from duckdb_dp.linop import Integers


@final
class ExactSums:
    """Sums in steps of their grids, and histograms of values in public cells, by ``sum_name``.

    Args:
        parts: what is summed.
        blocks: name -> (groups, sums) of those that have rows. Of what has cells, a number of rows for each
            (group * cells + cell); of a sum whose bounds are chosen, under the name with 'sum' behind it the sum in steps of
            the cell's grid, and with 'units' the number of units whose largest or smallest value is in a cell.
    """

    def __init__(
        self,
        parts: Sequence[GroupedSums],
        blocks: Mapping[Clique, tuple[NDArray[np.integer], NDArray[np.integer]]],
    ) -> None:
        every = [(part, one) for part in parts for one in part.sums]
        self._sums = {sum_name(index)[0]: each for index, each in enumerate(every)}
        self._blocks = blocks

    def order(self, names: Sequence[Clique]) -> list[int]:
        """Places of sums in the order in which they are read: histograms first, as bounds are chosen by them."""
        return sorted(range(len(names)), key=lambda place: len(names[place]) == 1)

    def marginal(self, name: Clique) -> Integers:
        """The sum of each group; or by (name, 'cells', 'group', 'value') a marginal of its histogram, over those that are not named."""
        part, one = self._sums[name[0]]
        cells = 1 if one.cells is None else one.cells.size
        of_units = one.chosen and len(name) > 1
        places, sums = self._blocks[(*name[:1], "units") if of_units else name[:1]]
        found = np.zeros((1 if of_units else part.size, cells), dtype=np.int64)
        found.reshape(-1)[places] = sums
        summed = tuple(axis for axis, kind in enumerate(("group", "value")) if len(name) > 1 and kind not in name)
        marginal: Integers = found.sum(axis=summed).reshape(-1)
        return marginal

    def within(self, name: Clique, limits: tuple[float, float] | None) -> Integers:
        """The sum of each group with values clamped to edges of its cells, in steps of the larger one / 2^BITS.

        Without limits it is ``marginal``. Otherwise one row changes it by at most ``CHOSEN`` steps: by 2^BITS, by 2 more as it is
        rounded, and by 1 as the sum is.
        """
        if limits is None:
            return self.marginal(name)
        part, one = self._sums[name[0]]
        low, high = limits
        assert one.cells is not None
        edges, size = [float(point) for point in one.cells.points], one.cells.size
        power = 2 if one.square else 1
        places, rows = self._blocks[name]
        summed = dict(zip(*(found.tolist() for found in self._blocks[*name, "sum"]), strict=True))
        ends = [max(abs(a), abs(b)) for a, b in itertools.pairwise(edges)]
        grids = [Fraction(2) ** (power * math.frexp(end)[1] - BITS) for end in ends]
        totals = [Fraction(0)] * part.size
        for place, count in zip(places.tolist(), rows.tolist(), strict=True):
            group, cell = divmod(place, size)
            if edges[cell] >= high:
                totals[group] += count * Fraction(high) ** power
            elif edges[cell + 1] <= low:
                totals[group] += count * Fraction(low) ** power
            else:
                totals[group] += summed[place] * grids[cell]
        step = Fraction(max(abs(low), abs(high))) ** power / 2**BITS
        return np.array([max(-MOST, min(MOST, round(total / step))) for total in totals], dtype=np.int64)


MOST = 2**62
"""Sums are clamped to this, which changes no sensitivity."""


Exact = Counts | ExactSums
"""Exact marginals of counts, or sums of groups."""
