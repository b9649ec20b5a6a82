"""An operator on a ring of cells, on which the last cells lie over the first ones, and what tells these apart."""

from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np

from duckdb_dp.linop.base import Array, Explicit
from duckdb_dp.linop.circulant import Circulant
from duckdb_dp.linop.waves import Waves


@final
@dataclass(frozen=True, eq=False)
class Folded(Explicit):
    """B = [R F; C D]: F lays the last r of n cells x over the first r, at half of each, and D takes their differences.

    (F x)_i = (x_i + x_(n-r+i)) / 2 for i < r, else x_i; (D x)_i = x_i - x_(n-r+i). F and D together have an inverse, so that
    (B^T B)^-1 is that of R and that of C, side by side in these coordinates.

    Attributes:
        ring: R, on n - r cells, all of whose windows have the same variance.
        ends: C, on r cells, 0 < r < n - r.
    """

    ring: Circulant | Waves
    ends: Circulant

    @property
    def shape(self) -> tuple[int, int]:
        (rows, around), (more, over) = self.ring.shape, self.ends.shape
        return rows + more, around + over

    @property
    def steps(self) -> int:
        return 1 + max(self.ring.steps, self.ends.steps)  # a sum or a difference of two cells first; halves are exact

    @property
    def cancels(self) -> bool:  # type: ignore[override]
        """Always, by the differences."""
        return True

    def columns(self, order: int) -> Array:
        ring, ends, over = self.ring.columns(order), self.ends.columns(order), self.ends.n
        both = ring[:over] / 2**order + ends
        return np.concatenate([both, ring[over:], both])

    def row(self, index: int) -> list[Fraction]:
        rows, over = self.ring.shape[0], self.ends.n
        if index < rows:
            row = self.ring.row(index)
            half = [value / 2 for value in row[:over]]
            return half + row[over:] + half
        row = self.ends.row(index - rows)
        return row + [Fraction(0)] * (self.ring.shape[1] - over) + [-value for value in row]

    def matvec(self, cells: Array) -> Array:
        first, last = cells[: self.ends.n], cells[self.ring.shape[1] :]
        return np.concatenate([self.ring.matvec(self._laid(cells)), self.ends.matvec(first - last)])

    def magnitude(self, cells: Array) -> Array:
        first, last = cells[: self.ends.n], cells[self.ring.shape[1] :]
        return np.concatenate([self.ring.magnitude(self._laid(cells)), self.ends.magnitude(first + last)])

    def rmatvec(self, answers: Array) -> Array:
        rows, over = self.ring.shape[0], self.ends.n
        around, apart = self.ring.rmatvec(answers[:rows]), self.ends.rmatvec(answers[rows:])
        return np.concatenate([around[:over] / 2 + apart, around[over:], around[:over] / 2 - apart])

    def estimate(self, noisy: Array) -> Array:
        rows, over = self.ring.shape[0], self.ends.n
        around, half = self.ring.estimate(noisy[:rows]), self.ends.estimate(noisy[rows:]) / 2
        return np.concatenate([around[:over] + half, around[over:], around[:over] - half])

    def windows(self, width: int) -> Array:
        """w (B^T B)^-1 w^T of every window of the width that the ring is whole multiples of, two or more: shape (n - width + 1,).

        A window is one of the ring, and half of the differences from its first cell on, or up to its last one.
        """
        over, found = self.ends.n, np.empty(self.shape[1] - width + 1)
        around = self.ring
        found[:] = (around.squares("width", width) if isinstance(around, Waves) else around.windows(width))[0]
        sums = self.ends.prefixes() / 4
        found[:over] += sums[::-1]
        found[-over:] += sums
        return found

    def _laid(self, cells: Array) -> Array:
        over, around = self.ends.n, self.ring.shape[1]
        return np.concatenate([(cells[:over] + cells[around:]) / 2, cells[over:around]])
