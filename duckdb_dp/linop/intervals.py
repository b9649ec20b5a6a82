"""Sums over intervals of cells, without a matrix."""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

import numpy as np

from duckdb_dp.linop.base import UNIT, Array, Explicit, Integers


class Intervals(Explicit):
    """0/1 rows, each one interval: both sensitivities are the largest number of intervals that hold one cell."""

    n: int

    @property
    def squared_sensitivity(self) -> float:
        return float(self.columns(1).max())

    @property
    def sensitivity(self) -> float:
        return self.squared_sensitivity

    @abstractmethod
    def bounds(self, index: int) -> tuple[int, int]:
        """(first, last) cell of one row, both inclusive."""

    def row(self, index: int) -> list[Fraction]:
        first, last = self.bounds(index)
        return [Fraction(int(first <= cell <= last)) for cell in range(self.n)]

    def exact(self, counts: Integers, index: int) -> Fraction:
        first, last = self.bounds(index)
        return Fraction(sum(counts[first : last + 1].tolist()))

    @property
    def steps(self) -> int:
        return self.n + 1


@final
@dataclass(frozen=True, slots=True)
class Identity(Intervals):
    """The n cells themselves: B = I."""

    n: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    def columns(self, order: int) -> Array:
        return np.ones(self.n)

    @property
    def squared_sensitivity(self) -> float:
        return 1.0

    def bounds(self, index: int) -> tuple[int, int]:
        return index, index

    def apply(self, counts: Integers) -> tuple[Array, Array | float]:
        values = counts.astype(np.float64)
        return values, 2 * UNIT * values

    def matvec(self, cells: Array) -> Array:
        return cells

    def rmatvec(self, answers: Array) -> Array:
        return answers

    def estimate(self, noisy: Array) -> Array:
        return noisy

    @property
    def steps(self) -> int:
        return 0


@final
@dataclass(frozen=True, slots=True)
class Total(Intervals):
    """The sum of n cells: B = 1^T."""

    n: int

    @property
    def shape(self) -> tuple[int, int]:
        return 1, self.n

    def columns(self, order: int) -> Array:
        return np.ones(self.n)

    def bounds(self, index: int) -> tuple[int, int]:
        return 0, self.n - 1

    def matvec(self, cells: Array) -> Array:
        return np.asarray(cells.sum(axis=0, keepdims=True), dtype=np.float64)

    def rmatvec(self, answers: Array) -> Array:
        return np.asarray(np.repeat(answers, self.n, axis=0), dtype=np.float64)

    def estimate(self, noisy: Array) -> Array:
        return np.asarray(np.repeat(noisy, self.n, axis=0) / self.n, dtype=np.float64)

    def gram(self) -> Array:
        return np.ones((self.n, self.n))


@final
@dataclass(frozen=True, slots=True)
class Prefix(Intervals):
    """Sums of the first 1, 2, ..., n cells; G_ij = n - max(i, j), and the inverse takes differences."""

    n: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    def columns(self, order: int) -> Array:
        return np.arange(self.n, 0.0, -1.0)

    def bounds(self, index: int) -> tuple[int, int]:
        return 0, index

    def matvec(self, cells: Array) -> Array:
        return np.cumsum(cells, axis=0)

    def rmatvec(self, answers: Array) -> Array:
        return np.cumsum(answers[::-1], axis=0)[::-1]

    def estimate(self, noisy: Array) -> Array:
        return np.diff(noisy, axis=0, prepend=np.zeros_like(noisy[:1]))

    def gram(self) -> Array:
        cell = np.arange(self.n, dtype=np.float64)
        return self.n - np.maximum.outer(cell, cell)


@final
@dataclass(frozen=True, slots=True)
class AllRange(Intervals):
    """All n (n + 1) / 2 intervals, by their first and then their last cell; G_ij = (min + 1)(n - max).

    G is (n + 1) times the inverse of the second difference L = tridiag(-1, 2, -1), so B^+ = L B^T / (n + 1).
    """

    n: int
    cancels: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, int]:
        return self.n * (self.n + 1) // 2, self.n

    def columns(self, order: int) -> Array:
        cell = np.arange(self.n, dtype=np.float64)
        return (cell + 1) * (self.n - cell)

    def bounds(self, index: int) -> tuple[int, int]:
        first, last = np.triu_indices(self.n)
        return int(first[index]), int(last[index])

    def matvec(self, cells: Array) -> Array:
        return _differences(cells, *np.triu_indices(self.n))

    def magnitude(self, cells: Array) -> Array:
        return _sums(cells, *np.triu_indices(self.n))

    def rmatvec(self, answers: Array) -> Array:
        return _spread(answers, self.n, *np.triu_indices(self.n))

    def estimate(self, noisy: Array) -> Array:
        seen = self.rmatvec(noisy)
        found = 2 * seen
        found[1:] -= seen[:-1]
        found[:-1] -= seen[1:]
        return np.asarray(found / (self.n + 1), dtype=np.float64)

    def gram(self) -> Array:
        cell = np.arange(self.n, dtype=np.float64)
        found = (np.minimum.outer(cell, cell) + 1) * (self.n - np.maximum.outer(cell, cell))
        return np.asarray(found, dtype=np.float64)


@final
@dataclass(frozen=True, slots=True)
class WidthRange(Intervals):
    """The n - w + 1 intervals of w cells; B has full row rank, and B B^T is max(0, w - |i - j|)."""

    n: int
    width: int
    cancels: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, int]:
        return self.n - self.width + 1, self.n

    def columns(self, order: int) -> Array:
        cell = np.arange(self.n)
        return (np.minimum(cell, self.n - self.width) - np.maximum(cell - self.width + 1, 0) + 1).astype(np.float64)

    def bounds(self, index: int) -> tuple[int, int]:
        return index, index + self.width - 1

    def matvec(self, cells: Array) -> Array:
        first = np.arange(self.shape[0])
        return _differences(cells, first, first + self.width - 1)

    def magnitude(self, cells: Array) -> Array:
        first = np.arange(self.shape[0])
        return _sums(cells, first, first + self.width - 1)

    def rmatvec(self, answers: Array) -> Array:
        first = np.arange(self.shape[0])
        return _spread(answers, self.n, first, first + self.width - 1)

    def estimate(self, noisy: Array) -> Array:
        from scipy.linalg import solveh_banded  # 0.1 s: only who needs it pays for it

        m = self.shape[0]
        bands = np.zeros((min(self.width, m), m))
        bands[:] = self.width - np.arange(len(bands))[:, None]
        found = solveh_banded(bands, noisy.reshape(m, -1), lower=True)
        return self.rmatvec(np.asarray(found, dtype=np.float64).reshape(noisy.shape))

    def gram(self) -> Array:
        first = np.arange(self.n)
        low = np.maximum(np.maximum.outer(first, first) - self.width + 1, 0)
        high = np.minimum(np.minimum.outer(first, first), self.n - self.width)
        return np.asarray(np.maximum(high - low + 1, 0), dtype=np.float64)


def _cumulative(cells: Array) -> Array:
    return np.concatenate([np.zeros_like(cells[:1]), np.cumsum(cells, axis=0)])


def _differences(cells: Array, first: Integers, last: Integers) -> Array:
    """Sums over intervals, as differences of running sums."""
    sums = _cumulative(cells)
    return np.asarray(sums[last + 1] - sums[first], dtype=np.float64)


def _sums(cells: Array, first: Integers, last: Integers) -> Array:
    sums = _cumulative(cells)
    return np.asarray(sums[last + 1] + sums[first], dtype=np.float64)


def _spread(answers: Array, n: int, first: Integers, last: Integers) -> Array:
    """The transpose of ``_differences``: every answer is added to all cells of its interval."""
    steps = np.zeros((n + 1, *answers.shape[1:]))
    np.add.at(steps, first, answers)
    np.subtract.at(steps, last + 1, answers)
    return np.asarray(np.cumsum(steps[:-1], axis=0), dtype=np.float64)
