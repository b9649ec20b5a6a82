"""A square matrix that depends on i - j and i + j alone, with scaled columns: large strategies without their entries."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from duckdb_dp.linop.base import Array, Explicit

BLOCK = 512
"""Rows that are written out at a time: 40 MB on 10,000 cells."""

TERMS = 256
"""Terms that are summed at a time: on 10,000 cells an answer goes through 300 roundings instead of 10,000."""


@final
@dataclass(frozen=True, eq=False)
class Symmetric:
    """R_ij = near_|i-j| + far_(i+j), 0 where the rounded sum is negative, shape (n, n).

    Attributes:
        near: shape (n,).
        far: shape (2 n - 1,).
        positive: whether sums below 0 are taken for rounding.
    """

    near: Array
    far: Array
    positive: bool = True

    def blocks(self) -> Iterator[tuple[int, Array]]:
        """(first row, rows) of the matrix, some rows at a time."""
        n = len(self.near)
        by_difference = sliding_window_view(np.concatenate([self.near[:0:-1], self.near]), n)[::-1]
        by_sum = sliding_window_view(self.far, n)
        for start in range(0, n, BLOCK):
            rows = by_difference[start : start + BLOCK] + by_sum[start : start + BLOCK]
            yield start, np.maximum(rows, 0.0, out=rows) if self.positive else rows

    def row(self, index: int) -> Array:
        """One row, as in ``blocks``."""
        apart = np.abs(np.arange(len(self.near)) - index)
        row = self.near[apart] + self.far[index : index + len(self.near)]
        return np.maximum(row, 0.0) if self.positive else row

    def times(self, cells: Array) -> Array:
        """R x along the first axis of an array (n, ...), by sums of ``TERMS`` terms, whose errors are smaller."""
        table = cells.reshape(len(self.near), -1)
        found = np.zeros(table.shape)
        for start, rows in self.blocks():
            for first in range(0, len(table), TERMS):
                found[start : start + len(rows)] += rows[:, first : first + TERMS] @ table[first : first + TERMS]
        return found.reshape(cells.shape)


@final
@dataclass(frozen=True, eq=False)
class Reflected(Explicit):
    """B = R diag(scale), R a ``Symmetric`` matrix of entries >= 0.

    The entries of R are doubles, each the rounded sum of two; an entry of B is the exact product of two doubles.

    Attributes:
        forward: R.
        backward: R^-1.
        scale: positive, shape (n,).
    """

    forward: Symmetric
    backward: Symmetric
    scale: Array

    @classmethod
    def of(cls, near: Array, far: Array, near_back: Array, far_back: Array, scale: Array) -> "Reflected":
        """The operator of these ``vectors``."""
        return cls(Symmetric(near, far), Symmetric(near_back, far_back, positive=False), scale)

    @property
    def vectors(self) -> tuple[Array, ...]:
        """All that it is made of."""
        return self.forward.near, self.forward.far, self.backward.near, self.backward.far, self.scale

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.scale), len(self.scale)

    @property
    def steps(self) -> int:
        # A count becomes a double and is scaled; then a product and a sum of TERMS terms, and the sum of these sums.
        return 2 + TERMS + -(-len(self.scale) // TERMS)

    @cached_property
    def _columns(self) -> dict[int, Array]:
        found = {order: np.empty(len(self.scale)) for order in (1, 2)}
        for start, rows in self.forward.blocks():  # R is symmetric: its rows are its columns
            found[1][start : start + len(rows)] = rows.sum(axis=1)
            found[2][start : start + len(rows)] = np.einsum("ij,ij->i", rows, rows)
        return {order: sums * self.scale**order for order, sums in found.items()}

    def columns(self, order: int) -> Array:
        return self._columns[order]

    def row(self, index: int) -> list[Fraction]:
        entries = zip(self.forward.row(index).tolist(), self.scale.tolist(), strict=True)
        return [Fraction(value) * Fraction(scale) for value, scale in entries]

    def matvec(self, cells: Array) -> Array:
        return self.forward.times(self._scaled(cells, self.scale))

    def rmatvec(self, answers: Array) -> Array:
        return self._scaled(self.forward.times(answers), self.scale)

    def estimate(self, noisy: Array) -> Array:
        return self._scaled(self.backward.times(noisy), 1 / self.scale)

    def halves(self) -> Iterator[tuple[float, Array]]:
        """(sign, columns H), some at a time, with (B^T B)^-1 = sum of sign H H^T: here H = B^-1."""
        return ((1.0, self._scaled(rows.T, 1 / self.scale)) for _, rows in self.backward.blocks())

    @cached_property
    def sums_squared(self) -> dict[str, Array]:
        """Query kind -> q (B^T B)^-1 q^T of the sum of the first cells, and of the last ones, up to each cell and from it on.

        With H = B^-1 and P_jk the sum of H_ik for i <= j, it is sum_k P_jk^2, and of the last cells sum_k (P_nk - P_(j-1)k)^2.
        One pass over the rows of H^T, whose sums memory has next to each other.
        """
        n = len(self.scale)
        first, last = np.zeros(n), np.zeros(n + 1)
        for _, rows in self.backward.blocks():
            sums = np.cumsum(rows / self.scale, axis=1)
            first += np.einsum("ij,ij->j", sums, sums)
            np.subtract(sums[:, -1:], sums, out=sums)
            last[1:] += np.einsum("ij,ij->j", sums, sums)
        last[0] = first[-1]
        return {"prefix": first, "suffix": last[:-1]}

    def _scaled(self, table: Array, scale: Array) -> Array:
        return np.asarray(table * scale.reshape(-1, *[1] * (table.ndim - 1)), dtype=np.float64)
