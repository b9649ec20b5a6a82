"""Implicit linear operators on marginals: what a measurement applies to exact counts.

Answers are needed twice: quickly, as doubles with a rigorous bound on their error, and, for the few draws in a million
that such a bound leaves undecided, exactly, as fractions. The noise is then exact whatever the strategy, and nothing
has to be rounded or charged for rounding (docs/privacy.md).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

UNIT = 2.0**-53
"""Largest relative error of one rounded operation in doubles."""


class LinOp(ABC):
    """A linear map B from the cells of a marginal to the answers of a strategy, both flat arrays."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(answers, cells)."""

    @property
    @abstractmethod
    def squared_sensitivity(self) -> float:
        """max_i [B^T B]_ii, rounded up: adding one row changes the answers by at most its root in L2."""

    @abstractmethod
    def apply(self, counts: Integers) -> tuple[Array, Array | float]:
        """(answers, errors): B counts in doubles, and a bound on how far each answer may be from the exact one."""

    @abstractmethod
    def exact(self, counts: Integers, index: int) -> Fraction:
        """One answer of B counts, exactly."""

    @abstractmethod
    def estimate(self, noisy: Array) -> Array:
        """B^+ noisy, flat: the unbiased estimate of the part of the marginal that B sees.

        Privacy: post-processing.
        """

    def dense(self) -> Array:
        """The matrix (answers, cells); for tests and small domains."""
        return np.stack([self.apply(unit)[0] for unit in np.eye(self.shape[1], dtype=np.int64)], axis=1)


@final
@dataclass(frozen=True, slots=True)
class Identity(LinOp):
    """The n cells themselves: B = I."""

    n: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    @property
    def squared_sensitivity(self) -> float:
        return 1.0

    def apply(self, counts: Integers) -> tuple[Array, Array | float]:
        values = counts.astype(np.float64)
        return values, 2 * UNIT * values

    def exact(self, counts: Integers, index: int) -> Fraction:
        return Fraction(int(counts[index]))

    def estimate(self, noisy: Array) -> Array:
        return noisy


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

    def apply(self, counts: Integers) -> tuple[Array, Array | float]:
        table = counts.astype(np.float64).reshape(self.sizes)
        # Every entry of C is below 1, so that no number on the way, nor its error, exceeds what the total allows.
        error = 4 * UNIT * (sum(self.sizes) + 4) * float(table.sum())
        return centre(table).reshape(-1), error

    def exact(self, counts: Integers, index: int) -> Fraction:
        rows = [
            [Fraction(int(j == i)) - Fraction(1, n) for j in range(n)]
            for i, n in zip(self._place(index), self.sizes, strict=True)
        ]
        return contract(counts.reshape(self.sizes), rows)

    def estimate(self, noisy: Array) -> Array:
        return centre(noisy.reshape(self.sizes)).reshape(-1)

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
        """Pseudo-inverse of the centred form, shape (n, m)."""
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
    def joint(self) -> bool:
        """Whether one factor acts on the joint cells of several attributes."""
        return len(self.factors[0].sizes) > 1

    @property
    def shape(self) -> tuple[int, int]:
        return math.prod(len(f.matrix) for f in self.factors), math.prod(math.prod(f.sizes) for f in self.factors)

    @property
    def squared_sensitivity(self) -> float:
        # The largest column of a Kronecker product is the product of the largest; 1e-11 covers the doubles' rounding.
        return math.prod(factor.squared_norm for factor in self.factors) * (1 + 1e-11)

    def apply(self, counts: Integers) -> tuple[Array, Array | float]:
        table = counts.astype(np.float64)
        answers = _times([factor.centred for factor in self.factors], table)
        # A product of length n adds at most n roundings, relative to |F| |x|; F C itself was rounded like a few more.
        steps = sum(math.prod(factor.sizes) + 8 * len(factor.sizes) + sum(factor.sizes) for factor in self.factors)
        return answers, 2 * steps * UNIT * _times([factor.reach for factor in self.factors], table)

    def exact(self, counts: Integers, index: int) -> Fraction:
        places = np.unravel_index(index, [len(factor.matrix) for factor in self.factors])
        rows = [factor.exact_row(int(place)) for factor, place in zip(self.factors, places, strict=True)]
        return contract(counts.reshape([len(row) for row in rows]), rows)

    def estimate(self, noisy: Array) -> Array:
        return _times([factor.inverse for factor in self.factors], noisy)


def _times(matrices: list[Array], flat: Array) -> Array:
    """(M_1 (x) ... (x) M_k) x, axis by axis."""
    table = flat.reshape([matrix.shape[1] for matrix in matrices])
    for axis, matrix in enumerate(matrices):
        table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
    return table.reshape(-1)


def centre(table: Array, first: int = 0) -> Array:
    """Subtract the mean along every axis from ``first`` on: the projection on the residual space of those attributes.

    Source: [AIM+GReM] Table 1.
    """
    for axis in range(first, table.ndim):
        table = np.subtract(table, table.mean(axis=axis, keepdims=True), dtype=np.float64)
    return table


def contract(table: Integers, rows: list[list[Fraction]]) -> Fraction:
    """The product of a table of whole numbers with one vector of fractions per axis, exactly."""
    scale = 1
    found: NDArray[np.object_] = table.astype(object)
    for row in reversed(rows):
        # Whole numbers over a common denominator: ten times faster than sums of fractions.
        common = math.lcm(*(value.denominator for value in row))
        found = found @ np.array([int(value * common) for value in row], dtype=object)
        scale *= common
    return Fraction(int(np.asarray(found).item()), scale)
