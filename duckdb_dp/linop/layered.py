"""A layer of sums over coarse cells, and the cells themselves: strategies for Laplace noise without most of their zeros."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.linop.base import Array, Explicit

BLOCK = 2048
"""Queries whose variances are worked out at a time: 8 MB on 512 coarse cells."""


@final
@dataclass(frozen=True, eq=False)
class Layered(Explicit):
    """B = [T S; c I]: S (count, n) are hats, which share every cell out between two neighbouring coarse cells.

    By Woodbury's identity (B^T B)^-1 = (I - S^T K S) / c^2 with K = (c^2 (T^T T)^-1 + S S^T)^-1.

    Attributes:
        top: T >= 0, shape (k, count), of full column rank; count > 1.
        n: number of cells.
        cell: c > 0.
    """

    top: Array
    n: int
    cell: float

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.top) + self.n, self.n

    @property
    def count(self) -> int:
        """Number of coarse cells."""
        return int(self.top.shape[1])

    @property
    def steps(self) -> int:
        # A count becomes a double and is shared out; sums over the cells of two coarse ones, then over the coarse cells.
        return 4 + 2 * -(-self.n // self.count) + self.count

    @cached_property
    def below(self) -> NDArray[np.intp]:
        """The lower of the two coarse cells of every cell."""
        return np.minimum(self._place.astype(np.intp), self.count - 2)

    @cached_property
    def upper(self) -> Array:
        """What the other one has of it; the lower one has 1 - ``upper``, rounded."""
        return self._place - self.below

    @property
    def _place(self) -> Array:
        return np.clip((np.arange(self.n) + 0.5) * self.count / self.n - 0.5, 0.0, self.count - 1.0)

    @cached_property
    def lower(self) -> Array:
        """1 - ``upper``."""
        return 1.0 - self.upper

    def columns(self, order: int) -> Array:
        if order == 1:
            return self._spread(self.top.sum(axis=0)) + self.cell
        gram, a = self.top.T @ self.top, self.below
        both = (
            self.lower**2 * gram[a, a]
            + 2 * self.lower * self.upper * gram[a, a + 1]
            + self.upper**2 * gram[a + 1, a + 1]
        )
        return np.asarray(both + self.cell**2, dtype=np.float64)

    def row(self, index: int) -> list[Fraction]:
        if index >= len(self.top):
            return [Fraction(self.cell) * (cell == index - len(self.top)) for cell in range(self.n)]
        weights = [Fraction(value) for value in self.top[index].tolist()]
        shares = zip(self.below.tolist(), self.lower.tolist(), self.upper.tolist(), strict=True)
        return [weights[a] * Fraction(low) + weights[a + 1] * Fraction(high) for a, low, high in shares]

    def matvec(self, cells: Array) -> Array:
        table = cells.reshape(self.n, -1)
        coarse = np.stack([self.coarse(column) for column in table.T], axis=1)
        return np.concatenate([self.top @ coarse, self.cell * table]).reshape(-1, *cells.shape[1:])

    def rmatvec(self, answers: Array) -> Array:
        table = answers.reshape(len(answers), -1)
        found = self._spread(self.top.T @ table[: len(self.top)]) + self.cell * table[len(self.top) :]
        return found.reshape(self.n, *answers.shape[1:])

    def estimate(self, noisy: Array) -> Array:
        found = self.rmatvec(noisy).reshape(self.n, -1)
        coarse = np.stack([self.coarse(column) for column in found.T], axis=1)
        estimate = (found - self._spread(self.middle @ coarse)) / self.cell**2
        return np.asarray(estimate, dtype=np.float64).reshape(self.n, *noisy.shape[1:])

    def coarse(self, cells: Array) -> Array:
        """S x, shape (count,)."""
        return self.coarse_sums(cells * self.lower, cells * self.upper)

    @cached_property
    def middle(self) -> Array:
        """K, shape (count, count)."""
        inverse = np.linalg.inv(self.top.T @ self.top) * self.cell**2 + self.overlaps
        return np.asarray(np.linalg.inv((inverse + inverse.T) / 2), dtype=np.float64)

    @cached_property
    def overlaps(self) -> Array:
        """S S^T."""
        own = self.coarse_sums(self.lower**2, self.upper**2)
        beside = np.bincount(self.below, self.lower * self.upper, self.count)[:-1]
        return np.diag(own) + np.diag(beside, 1) + np.diag(beside, -1)

    def coarse_sums(self, lower: Array, upper: Array) -> Array:
        """Sums over the cells of every coarse cell, given what each adds to the lower and to the upper one of its two."""
        found = np.bincount(self.below, lower, self.count) + np.bincount(self.below + 1, upper, self.count)
        return np.asarray(found, dtype=np.float64)

    def before(self, cells: NDArray[np.intp]) -> Array:
        """S 1_(< j) for some j = 0 .. n, shape (j, count)."""
        whole, starts, low, high = self._running
        last = self.below[np.maximum(cells - 1, 0)]
        place = np.arange(self.count)
        found = np.where(place < last[:, None], whole, 0.0)
        row = np.arange(len(cells))
        found[row, last] = np.where(last > 0, high[starts[last]] - high[starts[np.maximum(last - 1, 0)]], 0.0)
        found[row, last] += low[cells] - low[starts[last]]
        found[row, last + 1] = high[cells] - high[starts[last]]
        found[cells == 0] = 0.0
        return found

    def squares(self, first: NDArray[np.int64], last: NDArray[np.int64]) -> Array:
        """q (B^T B)^-1 q^T of intervals of cells first .. last."""
        found = np.empty(len(first))
        for start in range(0, len(first), BLOCK):
            begin, end = first[start : start + BLOCK], last[start : start + BLOCK] + 1
            seen = self.before(end) - self.before(begin)
            lost = np.einsum("ij,ij->i", seen @ self.middle, seen)
            found[start : start + BLOCK] = (end - begin - lost) / self.cell**2
        return np.maximum(found, 0.0)

    @cached_property
    def _running(self) -> tuple[Array, NDArray[np.intp], Array, Array]:
        """S 1, the first cell of every lower coarse cell, and running sums of ``lower`` and ``upper``."""
        starts = np.searchsorted(self.below, np.arange(self.count))
        low, high = (np.concatenate([[0.0], np.cumsum(share)]) for share in (self.lower, self.upper))
        return self.coarse(np.ones(self.n)), starts, low, high

    def _spread(self, coarse: Array) -> Array:
        """S^T y along the first axis."""
        extra = [1] * (coarse.ndim - 1)
        low, high = self.lower.reshape(-1, *extra), self.upper.reshape(-1, *extra)
        return np.asarray(low * coarse[self.below] + high * coarse[self.below + 1], dtype=np.float64)
