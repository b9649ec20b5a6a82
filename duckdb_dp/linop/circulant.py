"""The first columns of a circulant matrix: strategies for windows that slide over many cells, without their entries."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from duckdb_dp.linop.base import Array, Explicit
from duckdb_dp.linop.reflected import BLOCK, TERMS


@final
@dataclass(frozen=True, eq=False)
class Circulant(Explicit):
    """B_ij = kernel_((i - j) mod N), shape (N, n).

    V = B^T B is Toeplitz: V_ij = t_|i-j|. With x = V^-1 e_0, y = (0, x_(n-1), ..., x_1) and L(x) the lower triangular Toeplitz
    matrix whose first column is x, V^-1 = (L(x) L(x)^T - L(y) L(y)^T) / x_0 (Gohberg and Semencul).

    Attributes:
        kernel: shape (N,), N >= n.
        n: number of cells.
    """

    kernel: Array
    n: int
    cancels: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.kernel), self.n

    @property
    def steps(self) -> int:
        # A count becomes a double; then a product and a sum of TERMS terms, and the sum of these sums.
        return 2 + TERMS + -(-self.n // TERMS)

    def columns(self, order: int) -> Array:
        return np.full(self.n, float((np.abs(self.kernel) ** order).sum()))

    def row(self, index: int) -> list[Fraction]:
        return [Fraction(value) for value in self._entries(self.kernel)[index].tolist()]

    def matvec(self, cells: Array) -> Array:
        return self._times(self.kernel, cells)

    def magnitude(self, cells: Array) -> Array:
        return self._times(np.abs(self.kernel), cells)

    def rmatvec(self, answers: Array) -> Array:
        table = answers.reshape(len(answers), -1)
        found = np.zeros((self.n, table.shape[1]))
        entries = self._entries(self.kernel)
        for start in range(0, len(table), BLOCK):
            found += entries[start : start + BLOCK].T @ table[start : start + BLOCK]
        return found.reshape(self.n, *answers.shape[1:])

    def estimate(self, noisy: Array) -> Array:
        return self.solve(self.rmatvec(noisy))

    def solve(self, cells: Array) -> Array:
        """V^-1 times cells, along the first axis."""
        from scipy.fft import irfft, next_fast_len, rfft  # 0.1 s: only who needs it pays for it

        table = np.ascontiguousarray(cells.reshape(self.n, -1).T)
        size = int(next_fast_len(2 * self.n, real=True))
        given, total = rfft(table, size), np.zeros_like(table)
        for sign, column in self.corners:
            image = rfft(column, size)
            inside = irfft(image.conj() * given, size)[:, : self.n]
            total += sign * irfft(image * rfft(inside, size), size)[:, : self.n]
        return np.asarray(total.T.reshape(cells.shape), dtype=np.float64)

    @cached_property
    def corners(self) -> tuple[tuple[float, Array], tuple[float, Array]]:
        """(1, x) and (-1, y), both divided by sqrt(x_0)."""
        from scipy.linalg import solve_toeplitz  # 0.1 s: only who needs it pays for it

        image = np.fft.rfft(self.kernel)
        toeplitz = np.fft.irfft((image * image.conj()).real, len(self.kernel))[: self.n]
        first = np.zeros(self.n)
        first[0] = 1.0
        x = np.asarray(solve_toeplitz(toeplitz, first), dtype=np.float64)
        x /= np.sqrt(x[0])
        return (1.0, x), (-1.0, np.concatenate([[0.0], x[:0:-1]]))

    def windows(self, width: int) -> Array:
        """w V^-1 w^T of every window w of so many cells, shape (n - width + 1,), in O(n).

        With S the running sums of x, window k meets column j of L(x) in S_(k-j+width) - S_(k-j), 0 <= j < n.
        """
        windows = self.n - width + 1
        apart = np.arange(1 - self.n, windows)
        found = np.zeros(windows)
        for sign, column in self.corners:
            sums = np.concatenate([[0.0], np.cumsum(column)])
            met = sums[np.clip(apart + width, 0, self.n)] - sums[np.clip(apart, 0, self.n)]
            running = np.concatenate([[0.0], np.cumsum(met**2)])
            found += sign * (running[self.n :] - running[:windows])
        return found

    def prefixes(self) -> Array:
        """p V^-1 p^T of every prefix p, shape (n,), in O(n); of suffixes the same from the shortest on."""
        return np.asarray(
            sum((sign * np.cumsum(np.cumsum(column) ** 2) for sign, column in self.corners), np.zeros(self.n))
        )

    def halves(self) -> Iterator[tuple[float, Array]]:
        """(sign, columns H), some at a time, with V^-1 = sum of sign H H^T."""
        for sign, column in self.corners:
            shifted = sliding_window_view(np.concatenate([np.zeros(self.n - 1), column]), self.n)[::-1]
            for start in range(0, self.n, BLOCK):
                yield sign, shifted[start : start + BLOCK].T

    def _entries(self, kernel: Array) -> Array:
        """All entries (N, n), as a view."""
        around = np.concatenate([kernel[len(kernel) - self.n + 1 :], kernel])
        return sliding_window_view(around, self.n)[:, ::-1]

    def _times(self, kernel: Array, cells: Array) -> Array:
        """The product by sums of ``TERMS`` terms, whose errors are smaller."""
        table = cells.reshape(self.n, -1)
        found = np.zeros((len(kernel), table.shape[1]))
        entries = self._entries(kernel)
        for start in range(0, len(kernel), BLOCK):
            rows = np.ascontiguousarray(entries[start : start + BLOCK])
            for first in range(0, self.n, TERMS):
                found[start : start + BLOCK] += rows[:, first : first + TERMS] @ table[first : first + TERMS]
        return found.reshape(len(kernel), *cells.shape[1:])
