"""A matrix as an operator, and the Kronecker product of operators."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import final

import numpy as np

from duckdb_dp.linop.base import UP, Array, Explicit, Integers, sparse_contract


@final
@dataclass(frozen=True, eq=False)
class Dense(Explicit):
    """A matrix (m, n)."""

    matrix: Array

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.matrix), self.matrix.shape[1]

    @cached_property
    def cancels(self) -> bool:  # type: ignore[override]
        """Whether it has negative entries."""
        return bool((self.matrix < 0).any())

    @property
    def steps(self) -> int:
        return self.shape[1]

    def columns(self, order: int) -> Array:
        return np.asarray((np.abs(self.matrix) ** order).sum(axis=0), dtype=np.float64)

    def row(self, index: int) -> list[Fraction]:
        return [Fraction(value) for value in self.matrix[index].tolist()]

    def matvec(self, cells: Array) -> Array:
        return _product(self.matrix, cells)

    def magnitude(self, cells: Array) -> Array:
        return _product(np.abs(self.matrix), cells)

    def rmatvec(self, answers: Array) -> Array:
        return _product(self.matrix.T, answers)

    @cached_property
    def inverse(self) -> Array:
        """B^+, shape (n, m)."""
        wide = len(self.matrix) <= self.matrix.shape[1]
        found = _normal_inverse(self.matrix) if wide else _normal_inverse(self.matrix.T)
        if found is None:
            return np.asarray(np.linalg.pinv(self.matrix, rcond=1e-11), dtype=np.float64)
        return found if wide else np.ascontiguousarray(found.T)

    def estimate(self, noisy: Array) -> Array:
        return _product(self.inverse, noisy)

    def gram(self) -> Array:
        return np.asarray(self.matrix.T @ self.matrix, dtype=np.float64)

    def along(self, table: Array, how: str) -> Array:
        matrix = self._acting(how)
        if table.shape[2] == 1:  # one product of matrices instead of many with a vector
            return np.asarray(table[:, :, 0] @ matrix.T, dtype=np.float64)[:, :, None]
        return np.asarray(matrix @ table, dtype=np.float64)

    def _acting(self, how: str) -> Array:
        if how == "estimate":
            return self.inverse
        if how == "magnitude":
            return np.abs(self.matrix)
        return self.matrix if how == "matvec" else self.matrix.T


@final
@dataclass(frozen=True, eq=False)
class Kron(Explicit):
    """B_1 (x) ... (x) B_d, cells and answers in row-major order; with no factor the 1 x 1 identity.

    Every operation goes factor by factor, so that nothing larger than cells or answers is ever held.

    Source: [HDMM18] section 5.4, Alg. 1.
    """

    factors: tuple[Explicit, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return math.prod(f.shape[0] for f in self.factors), math.prod(f.shape[1] for f in self.factors)

    @cached_property
    def cancels(self) -> bool:  # type: ignore[override]
        """Whether any factor does."""
        return any(factor.cancels for factor in self.factors)

    @property
    def steps(self) -> int:
        return sum(factor.steps + 1 for factor in self.factors)

    @property
    def squared_sensitivity(self) -> float:
        # The largest column of a Kronecker product is the product of the largest.
        return math.prod(factor.squared_sensitivity for factor in self.factors) * UP

    @property
    def sensitivity(self) -> float:
        return math.prod(factor.sensitivity for factor in self.factors) * UP

    def columns(self, order: int) -> Array:
        found = np.ones(1)
        for factor in self.factors:
            found = np.multiply.outer(found, factor.columns(order)).reshape(-1)
        return found

    def row(self, index: int) -> list[Fraction]:
        found = [Fraction(1)]
        for row in self._rows(index):
            found = [a * b for a in found for b in row]
        return found

    def exact(self, counts: Integers, index: int) -> Fraction:
        return sparse_contract(counts.reshape([f.shape[1] for f in self.factors]), self._rows(index))

    def matvec(self, cells: Array) -> Array:
        return self._through(cells, "matvec", 1)

    def magnitude(self, cells: Array) -> Array:
        return self._through(cells, "magnitude", 1)

    def rmatvec(self, answers: Array) -> Array:
        return self._through(answers, "rmatvec", 0)

    def estimate(self, noisy: Array) -> Array:
        return self._through(noisy, "estimate", 0)

    def gram(self) -> Array:
        found: Array = np.ones((1, 1))
        for factor in self.factors:
            found = np.asarray(np.kron(found, factor.gram()), dtype=np.float64)
        return found

    def _rows(self, index: int) -> list[list[Fraction]]:
        places = np.unravel_index(index, [factor.shape[0] for factor in self.factors]) if self.factors else ()
        return [factor.row(int(place)) for factor, place in zip(self.factors, places, strict=True)]

    def _through(self, table: Array, how: str, side: int) -> Array:
        """Every factor's operation along its axis; ``side`` is the place of that axis's length in ``shape``."""
        last, after = table.shape[1:], math.prod(table.shape[1:])
        for factor in reversed(self.factors):
            table = factor.along(table.reshape(-1, factor.shape[side], after), how)
            after *= table.shape[1]
        return table.reshape(-1, *last)


def _product(matrix: Array, cells: Array) -> Array:
    return np.asarray(np.tensordot(matrix, cells, axes=1), dtype=np.float64)


def _normal_inverse(matrix: Array) -> Array | None:
    """B^T (B B^T)^-1 for B of full row rank, ten times faster than by singular values; None where it is not exact."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve  # 0.1 s: only who needs it pays for it

    try:
        factor = cho_factor(matrix @ matrix.T)
    except LinAlgError:
        return None
    diagonal = np.abs(np.diag(factor[0]))
    if diagonal.min() < 1e-4 * diagonal.max():
        return None
    found: Array = np.ascontiguousarray(cho_solve(factor, matrix).T, dtype=np.float64)
    # Its rows lie in B's row space, so that B X = I makes it the pseudo-inverse.
    residual = matrix @ found
    residual[np.arange(len(residual)), np.arange(len(residual))] -= 1
    return found if float(np.abs(residual).max(initial=0.0)) < 1e-10 else None
