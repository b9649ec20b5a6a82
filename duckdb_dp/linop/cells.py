"""The cells of a marginal as they are, and their total: operators without a matrix."""

from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np

from duckdb_dp.linop.base import UNIT, Array, Explicit, Integers


@final
@dataclass(frozen=True, slots=True)
class Identity(Explicit):
    """The n cells themselves: B = I."""

    n: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    @property
    def steps(self) -> int:
        return 0

    @property
    def squared_sensitivity(self) -> float:
        return 1.0

    @property
    def sensitivity(self) -> float:
        return 1.0

    def columns(self, order: int) -> Array:
        return np.ones(self.n)

    def row(self, index: int) -> list[Fraction]:
        return [Fraction(int(cell == index)) for cell in range(self.n)]

    def apply(self, counts: Integers) -> tuple[Array, Array | float]:
        values = counts.astype(np.float64)
        return values, 2 * UNIT * values

    def exact(self, counts: Integers, index: int) -> Fraction:
        return Fraction(int(counts[index]))

    def matvec(self, cells: Array) -> Array:
        return cells

    def rmatvec(self, answers: Array) -> Array:
        return answers

    def estimate(self, noisy: Array) -> Array:
        return noisy


@final
@dataclass(frozen=True, slots=True)
class Total(Explicit):
    """The sum of n cells: B = 1^T."""

    n: int

    @property
    def shape(self) -> tuple[int, int]:
        return 1, self.n

    @property
    def steps(self) -> int:
        return self.n + 1

    @property
    def squared_sensitivity(self) -> float:
        return 1.0

    @property
    def sensitivity(self) -> float:
        return 1.0

    def columns(self, order: int) -> Array:
        return np.ones(self.n)

    def row(self, index: int) -> list[Fraction]:
        return [Fraction(1)] * self.n

    def exact(self, counts: Integers, index: int) -> Fraction:
        return Fraction(sum(counts.tolist()))

    def matvec(self, cells: Array) -> Array:
        return np.asarray(cells.sum(axis=0, keepdims=True), dtype=np.float64)

    def rmatvec(self, answers: Array) -> Array:
        return np.asarray(np.repeat(answers, self.n, axis=0), dtype=np.float64)

    def estimate(self, noisy: Array) -> Array:
        return np.asarray(np.repeat(noisy, self.n, axis=0) / self.n, dtype=np.float64)
