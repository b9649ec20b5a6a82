"""A query that is no linear operator and still has a sensitivity: the L1 distance of a marginal from fixed counts."""

from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np

from duckdb_dp.linop.base import UNIT, Array, Integers


@final
@dataclass(frozen=True, slots=True)
class Distance:
    """One answer, |mu - nu|_1, for fixed counts nu: one row more moves one cell by 1 and so the answer by at most 1.

    Attributes:
        expected: nu.
        moved: how far one of a unit's k rows moves the answer: 1, unless a row may go from one cell to another, 2 / k.

    It is not linear, and need not be: it is ``Measurable``.
    """

    expected: Array
    moved: float = 1.0

    @property
    def squared_sensitivity(self) -> float:
        """moved^2."""
        return self.moved**2

    def apply(self, counts: Integers) -> tuple[Array, Array]:
        """(the distance, a bound on its rounding error)."""
        distance = np.abs(counts - self.expected).sum()
        # A sum of n positive numbers by halves, in blocks of at most 128, after one rounding of each.
        return np.array([distance]), np.array([2 * UNIT * (136 + counts.size.bit_length()) * distance])

    def exact(self, counts: Integers, index: int) -> Fraction:
        """The distance, exactly."""
        pairs = zip(counts.tolist(), self.expected.tolist(), strict=True)
        return sum((abs(int(count) - Fraction(value)) for count, value in pairs), Fraction(0))
