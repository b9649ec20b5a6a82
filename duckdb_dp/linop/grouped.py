"""A query on sums of groups of cells."""

from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np

from duckdb_dp.linop.base import Array, Integers, Measurable


@final
@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """A query on the sums of groups of cells: one row is in one group, so its sensitivity is that of the query.

    Attributes:
        query: what is asked of the sums.
        group: of each cell, flat.
        groups: how many there are.

    It is ``Measurable``.
    """

    query: Measurable
    group: Integers
    groups: int

    @property
    def shape(self) -> tuple[int, int]:
        """(groups, cells)."""
        return self.groups, len(self.group)

    @property
    def squared_sensitivity(self) -> float:
        """That of the query."""
        return self.query.squared_sensitivity

    def apply(self, counts: Integers) -> tuple[Array, Array | float]:
        """(answers, errors) of the query on the sums."""
        return self.query.apply(self._sums(counts))

    def exact(self, counts: Integers, index: int) -> Fraction:
        """One answer, exactly."""
        return self.query.exact(self._sums(counts), index)

    def _sums(self, counts: Integers) -> Integers:
        sums = np.zeros(self.groups, dtype=np.int64)
        np.add.at(sums, self.group, counts)  # in whole numbers, however large
        return sums
