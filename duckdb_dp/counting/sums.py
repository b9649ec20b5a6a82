"""The exact sums of groups that a statement has worked out. Private: only ``private.py`` reads them."""

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Integers
from duckdb_dp.sum_names import BITS, PER_OCTAVE, sum_name, sum_number

if TYPE_CHECKING:
    from duckdb_dp.grouped_sums import GroupedSums


@final
class ExactSums:
    """Sums in steps of their grids, and histograms of values in public cells, by ``sum_name``.

    Args:
        parts: what is summed.
        blocks: name -> (groups, sums) of those that have rows. Of what has cells, a number of rows for each
            (group * cells + cell); of a sum whose bounds are chosen, under the name with 'sum' behind it the sum in steps of
            the cell's grid, and with 'units' the number of units whose largest or smallest value is in a cell. Where a bound on
            an owner's rows is chosen, each number is one for each of its candidates c: (c * groups + group). Of a sum whose
            contributions are bounded by their norm tau it is the sum of what was cut, in steps of tau / 2^BITS. Of both there is,
            with 'owners' behind the name of the first sum, how many owners have their norm, or their rows, up to c.
            Where no bound on norms was chosen before, it is by the cell of the norm: see ``cut``.
            Under ``CHOICES`` are what was chosen for norms; under ``CHOOSE``, where that is still to be done, nothing.
        counts: those that are planned beside the sums.
    """

    def __init__(
        self,
        parts: "Sequence[GroupedSums]",
        blocks: Mapping[Clique, tuple[NDArray[np.integer], NDArray[np.integer]]],
        counts: Counts | None = None,
    ) -> None:
        self._counts = counts
        every = [(part, one) for part in parts for one in part.sums]
        self._sums = {sum_name(index)[0]: each for index, each in enumerate(every)}
        self._blocks = blocks

    def order(self, names: Sequence[Clique]) -> list[int]:
        """Places of sums in the order in which they are read: histograms first, as bounds are chosen by them."""
        return sorted(range(len(names)), key=lambda place: len(names[place]) == 1)

    def marginal(self, name: Clique) -> Integers:
        """The sum of each group; or by (name, 'cells', 'group', 'value') a marginal of its histogram, over those that are not named."""
        if sum_number(name) is None:
            assert self._counts is not None
            return self._counts.marginal(name)
        part, one = self._sums[name[0]]
        cells = 1 if one.cells is None else one.cells.size
        of_units = one.chosen and len(name) > 1
        places, sums = self._blocks[(*name[:1], "units") if of_units else name[:1]]
        found = np.zeros((1 if of_units else part.size, cells), dtype=np.int64)
        found.reshape(-1)[places] = sums
        summed = tuple(axis for axis, kind in enumerate(("group", "value")) if len(name) > 1 and kind not in name)
        marginal: Integers = found.sum(axis=summed).reshape(-1)
        return marginal

    def owners(self, first: int, candidates: int) -> Integers:
        """How many owners have their norm, or their rows, up to each candidate and beyond the one before, and beyond all.

        Args:
            first: the number of the first sum that is bounded so.
            candidates: how many there are.
        """
        places, owners = self._blocks[*sum_name(first), "owners"]
        found = np.zeros(candidates + 1, dtype=np.int64)
        np.add.at(found, np.minimum(places, candidates), owners)
        return found

    def choice(self, place: int) -> tuple[int, int, int]:
        """What was chosen for a bound on norms, before its sums were worked out: see ``private.choose_bounds``.

        Args:
            place: of the bound among those of ``clipping.by_norm``.
        """
        places, chosen = self._blocks[CHOICES]
        found = dict(zip(places.tolist(), chosen.tolist(), strict=True))
        return found[3 * place], found[3 * place + 1], found[3 * place + 2]

    @property
    def by_cells(self) -> bool:
        """Whether sums that are bounded by norm are by the cells of norms, as no bound was chosen before."""
        return CHOICES not in self._blocks

    def cut(self, name: Clique, choice: int) -> Integers:
        """The sum of what owners add to the one group, with each one cut to a candidate tau_c, in steps of tau_c / 2^BITS.

        Of the owners whose norm is in cell k, so at most tau_k, there is the sum x_k in steps of tau_k / 2^BITS, and how many more of
        them add a number above 0 than below, g_k:

            (sum_{k <= c} x_k 2^((k - c) / 4) + 2^BITS sum_{k > c} g_k) (1 - 2^-28),   rounded once.

        One owner changes the bracket by 2^BITS at most, and so the result by 2^BITS - 4 + 1. It is exact, with rational powers.

        Args:
            name: of the sum.
            choice: the number c of the candidate.
        """
        inside, beyond = (
            zip(*(each.tolist() for each in self._blocks[*name[:1], *more]), strict=True) for more in ((), SIGNS)
        )
        one = 2**60
        total = sum(x * math.floor(one * 2.0 ** ((k - choice) / PER_OCTAVE)) for k, x in inside if k <= choice)
        total += sum(g for k, g in beyond if k > choice) * 2**BITS * one
        cut = round(Fraction(total, one) * (1 - Fraction(1, 2**28)))
        return np.array([max(-MOST, min(MOST, cut))], dtype=np.int64)

    def first_rows(self, name: Clique, choice: int) -> Integers:
        """What ``marginal`` is of the rows of each owner up to a candidate for their number."""
        part, one = self._sums[name[0]]
        places, rows = self._blocks[name[:1]]
        size = part.size * (1 if one.cells is None else one.cells.size)
        kept = places // size <= choice
        found = np.zeros((part.size, size // part.size), dtype=np.int64)
        np.add.at(found.reshape(-1), places[kept] % size, rows[kept])
        summed = tuple(axis for axis, kind in enumerate(("group", "value")) if len(name) > 1 and kind not in name)
        counts: Integers = found.sum(axis=summed).reshape(-1)
        return counts

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


SIGNS: Clique = ("signs",)
"""Behind the name of a sum by cells of norms: how many more owners add a number above 0 than below."""

CHOOSE: Clique = ("choose",)
CHOICES: Clique = ("choices",)
"""Names of blocks: of a statement that asks for the bounds on norms, and of what it was told."""

MOST = 2**62
"""Sums are clamped to this, which changes no sensitivity."""


Exact = Counts | ExactSums
"""Exact marginals of counts, or sums of groups."""
