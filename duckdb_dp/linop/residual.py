"""Operators on one residual: plain centring, and any strategy after centring."""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import final

import numpy as np

from duckdb_dp.linop.base import UNIT, UP, Array, Integers, LinOp, centre, contract


@final
@dataclass(frozen=True, slots=True)
class Centring(LinOp):
    """B = C_n1 (x) ... (x) C_nk with C_n = I - 11^T/n: the residual of a marginal, along every axis.

    The answers span the residual space of the clique, so that plain i.i.d. noise on them equals the residual
    mechanism's correlated noise after projection; squared sensitivity prod (n_i - 1)/n_i. With no axis it is the total.

    Source: [RP23] section 4; [AIM+GReM] Alg. 5.
    """

    sizes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        cells = math.prod(self.sizes)
        return cells, cells

    @property
    def squared_sensitivity(self) -> float:
        return math.prod((n - 1) / n for n in self.sizes)

    @property
    def sensitivity(self) -> float:
        return math.prod(2 * (n - 1) / n for n in self.sizes) * (1 + 8 * len(self.sizes) * UNIT)

    def apply(self, counts: Integers) -> tuple[Array, Array | float]:
        table, cells, total = counts.reshape(self.sizes), math.prod(self.sizes), int(counts.sum())
        if cells * total << len(self.sizes) < 2**62:
            # n x - sum(x) along each axis, in integers: what is divided at the end is exact.
            for axis, n in enumerate(self.sizes):
                table = n * table - table.sum(axis=axis, keepdims=True)
            return table.reshape(-1) / cells, 4 * UNIT * total
        # Every entry of C is below 1, so that no number on the way, nor its error, exceeds what the total allows.
        error = 4 * UNIT * (sum(self.sizes) + 4) * float(total)
        return centre(table.astype(np.float64)).reshape(-1), error

    def exact(self, counts: Integers, index: int) -> Fraction:
        table, place = counts.reshape(self.sizes), self._place(index)
        found = Fraction(0)
        for alone in itertools.product((True, False), repeat=len(self.sizes)):  # each axis at its place, or summed
            part = table[tuple(i if one else slice(None) for i, one in zip(place, alone, strict=True))]
            found += Fraction(
                int(part.sum()), math.prod(-n for n, one in zip(self.sizes, alone, strict=True) if not one)
            )
        return found

    def estimate(self, noisy: Array) -> Array:
        return self.matvec(noisy)

    def matvec(self, cells: Array) -> Array:
        last = cells.shape[1:]
        table = np.moveaxis(cells.reshape(*self.sizes, -1), -1, 0)
        return np.moveaxis(centre(table, first=1), 0, -1).reshape(-1, *last)

    def rmatvec(self, answers: Array) -> Array:
        return self.matvec(answers)

    def _place(self, index: int) -> tuple[int, ...]:
        return tuple(int(i) for i in np.unravel_index(index, self.sizes)) if self.sizes else ()


@final
@dataclass(frozen=True, eq=False)
class Factor:
    """One factor of a strategy: a matrix F on one attribute, or on the joint cells of several.

    Its centred form and pseudo-inverse are worked out once, however many strategies share it.

    Attributes:
        matrix: F (m, n), real.
        sizes: sizes of the attributes that it acts on, n = prod sizes.
    """

    matrix: Array
    sizes: tuple[int, ...]

    @cached_property
    def centred(self) -> Array:
        """F (C (x) ... (x) C), shape (m, n)."""
        return centre(self.matrix.reshape(-1, *self.sizes), first=1).reshape(self.matrix.shape)

    @cached_property
    def inverse(self) -> Array:
        """Pseudo-inverse of the centred form, shape (n, m); of cells alone without a singular value decomposition."""
        n, scale = self.matrix.shape[1], self.matrix[0, 0]
        if self.sizes == (n,) and scale and np.array_equal(self.matrix, scale * np.eye(n)):
            return np.asarray((np.eye(n) - 1 / n) / scale, dtype=np.float64)
        return np.asarray(np.linalg.pinv(self.centred, rcond=1e-11), dtype=np.float64)

    @cached_property
    def covariance(self) -> Array:
        """Covariance of the estimate from unit noise: inverse @ inverse^T, shape (n, n)."""
        return np.asarray(self.inverse @ self.inverse.T, dtype=np.float64)

    @cached_property
    def squared_norm(self) -> float:
        """Largest squared column norm of the centred form."""
        return float((self.centred**2).sum(axis=0).max())

    @cached_property
    def norm(self) -> float:
        """Largest L1 norm of a column of the centred form."""
        return float(np.abs(self.centred).sum(axis=0).max())

    @cached_property
    def reach(self) -> Array:
        """|F| (C' (x) ... ), a bound on the size of every number that ``apply`` may pass through."""
        table = np.abs(self.matrix).reshape(-1, *self.sizes)
        for axis in range(1, table.ndim):
            table = np.add(table, table.mean(axis=axis, keepdims=True), dtype=np.float64)
        return table.reshape(self.matrix.shape)

    def unit(self) -> "Factor":
        """Scaled to a largest column norm of 1."""
        return Factor(self.matrix / math.sqrt(self.squared_norm), self.sizes)

    def exact_row(self, index: int) -> list[Fraction]:
        """One row of the centred form, exactly."""
        row = np.array([Fraction(value) for value in self.matrix[index].tolist()], dtype=object).reshape(self.sizes)
        for axis, n in enumerate(self.sizes):
            row = row - row.sum(axis=axis, keepdims=True) * Fraction(1, n)
        return list(row.reshape(-1))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Factored(LinOp):
    """B = (F_1 (x) ... (x) F_k) (C (x) ... (x) C): any strategy on a residual, one factor per attribute or a joint one.

    C centres along every axis, so that B sees only the residual of its clique.
    """

    factors: tuple[Factor, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return math.prod(len(f.matrix) for f in self.factors), math.prod(math.prod(f.sizes) for f in self.factors)

    @property
    def squared_sensitivity(self) -> float:
        # The largest column of a Kronecker product is the product of the largest; 1e-11 covers the doubles' rounding.
        return math.prod(factor.squared_norm for factor in self.factors) * UP

    @property
    def sensitivity(self) -> float:
        return math.prod(factor.norm for factor in self.factors) * UP

    def apply(self, counts: Integers) -> tuple[Array, Array | float]:
        table = counts.astype(np.float64)
        answers = times([factor.centred for factor in self.factors], table)
        # A product of length n adds at most n roundings, relative to |F| |x|; F C itself was rounded like a few more.
        steps = sum(math.prod(factor.sizes) + 8 * len(factor.sizes) + sum(factor.sizes) for factor in self.factors)
        return answers, 2 * steps * UNIT * times([factor.reach for factor in self.factors], table)

    def exact(self, counts: Integers, index: int) -> Fraction:
        places = np.unravel_index(index, [len(factor.matrix) for factor in self.factors])
        rows = [factor.exact_row(int(place)) for factor, place in zip(self.factors, places, strict=True)]
        return contract(counts.reshape([len(row) for row in rows]), rows)

    def estimate(self, noisy: Array) -> Array:
        return times([factor.inverse for factor in self.factors], noisy)

    def matvec(self, cells: Array) -> Array:
        return times([factor.centred for factor in self.factors], cells)

    def rmatvec(self, answers: Array) -> Array:
        return times([factor.centred.T for factor in self.factors], answers)


def times(matrices: list[Array], cells: Array) -> Array:
    """(M_1 (x) ... (x) M_k) x along the first axis of an array, factor by factor and without a transposed copy."""
    last = cells.shape[1:]
    sizes = [matrix.shape[1] for matrix in matrices]
    after = math.prod(last)
    table = cells
    for place in reversed(range(len(matrices))):
        matrix = matrices[place]
        if after == 1:
            table = table.reshape(-1, sizes[place]) @ matrix.T
        else:
            table = matrix @ table.reshape(-1, sizes[place], after)
        after *= len(matrix)
    return np.asarray(table, dtype=np.float64).reshape(-1, *last)
