"""Implicit linear operators on marginals: what a measurement applies to exact counts.

Answers are needed twice: quickly, as doubles with a rigorous bound on their error, and, for the few draws in a million
that such a bound leaves undecided, exactly, as fractions. The noise is then exact whatever the strategy, and nothing
has to be rounded or charged for rounding (docs/privacy.md).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
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
    def denominator(self) -> int:
        return 1

    @property
    def squared_sensitivity(self) -> float:
        return 1.0

    def numerators(self, counts: Integers) -> Integers:
        return counts

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
    def denominator(self) -> int:
        return math.prod(self.sizes)

    @property
    def squared_sensitivity(self) -> float:
        return math.prod((n - 1) / n for n in self.sizes)

    def numerators(self, counts: Integers) -> Integers:
        table = counts.reshape(self.sizes)
        centred = reduce(lambda x, axis: self.sizes[axis] * x - x.sum(axis=axis, keepdims=True), range(table.ndim), table)
        return centred.reshape(counts.shape)

    def apply(self, counts: Integers) -> tuple[Array, Array | float]:
        table = counts.astype(np.float64).reshape(self.sizes)
        # Every entry of C is below 1, so that no number on the way, nor its error, exceeds what the total allows.
        error = 4 * UNIT * (sum(self.sizes) + 4) * float(table.sum())
        return centre(table).reshape(-1), error

    def exact(self, counts: Integers, index: int) -> Fraction:
        rows = [[Fraction(int(j == i)) - Fraction(1, n) for j in range(n)] for i, n in zip(self._place(index), self.sizes, strict=True)]
        return contract(counts.reshape(self.sizes), rows)

    def estimate(self, noisy: Array) -> Array:
        return centre(noisy.reshape(self.sizes)).reshape(-1)

    def _place(self, index: int) -> tuple[int, ...]:
        return tuple(int(i) for i in np.unravel_index(index, self.sizes)) if self.sizes else ()


@final
@dataclass(frozen=True, slots=True, eq=False)
class Factored(LinOp):
    """B = (F_1 (x) ... (x) F_k) (C (x) ... (x) C): any strategy on a residual, one factor per attribute or a joint one.

    C centres along every axis, so that B sees only the residual of its clique.

    Attributes:
        sizes: sizes of the clique's attributes, at least one.
        factors: F_i (m_i, n_i) for each attribute; or one F (m, cells) on the joint cells.
    """

    sizes: tuple[int, ...]
    factors: tuple[Array, ...]
    _centred: tuple[Array, ...] = field(init=False, repr=False)
    _inverses: tuple[Array, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        centred = tuple(
            centre(factor.reshape(-1, *sizes), first=1).reshape(len(factor), -1)
            for factor, sizes in zip(self.factors, self._axes, strict=True)
        )
        object.__setattr__(self, "_centred", centred)
        object.__setattr__(self, "_inverses", tuple(np.linalg.pinv(factor, rcond=1e-11) for factor in centred))

    @property
    def joint(self) -> bool:
        """Whether one factor acts on the joint cells of several attributes."""
        return len(self.factors) < len(self.sizes)

    @property
    def centred(self) -> tuple[Array, ...]:
        """F_i C for each factor, (m_i, n_i)."""
        return self._centred

    @property
    def inverses(self) -> tuple[Array, ...]:
        """(F_i C)^+ for each factor, (n_i, m_i)."""
        return self._inverses

    @property
    def shape(self) -> tuple[int, int]:
        return math.prod(len(factor) for factor in self.factors), math.prod(self.sizes)

    @property
    def squared_sensitivity(self) -> float:
        # The largest column of a Kronecker product is the product of the largest; 1e-11 covers the doubles' rounding.
        return math.prod(float((factor**2).sum(axis=0).max()) for factor in self._centred) * (1 + 1e-11)

    def apply(self, counts: Integers) -> tuple[Array, Array | float]:
        table = counts.astype(np.float64)
        answers = self._times(self._centred, table)
        # Each of the k products of length n_i adds at most n_i roundings; F C itself was rounded like one more.
        steps = sum(factor.shape[1] for factor in self.factors) + 8 * len(self.sizes) + sum(self.sizes)
        return answers, 2 * steps * UNIT * self._times([np.abs(f) + np.abs(f).mean(axis=1, keepdims=True) for f in self.factors], table)

    def exact(self, counts: Integers, index: int) -> Fraction:
        shape = [len(factor) for factor in self.factors]
        rows = []
        for place, factor, sizes in zip(np.unravel_index(index, shape), self.factors, self._axes, strict=True):
            row = np.array([Fraction(value) for value in factor[place].tolist()], dtype=object).reshape(sizes)
            for axis, n in enumerate(sizes):
                row = row - row.sum(axis=axis, keepdims=True) * Fraction(1, n)
            rows.append(row.reshape(-1).tolist())
        return contract(counts.reshape([factor.shape[1] for factor in self.factors]), rows)

    def estimate(self, noisy: Array) -> Array:
        return self._times(self._inverses, noisy)

    @property
    def _axes(self) -> tuple[tuple[int, ...], ...]:
        """The sizes of the attributes that each factor acts on."""
        return (self.sizes,) if self.joint else tuple((n,) for n in self.sizes)

    @staticmethod
    def _times(matrices: "tuple[Array, ...] | list[Array]", flat: Array) -> Array:
        table = flat.reshape([matrix.shape[1] for matrix in matrices])
        for axis, matrix in enumerate(matrices):
            table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
        return table.reshape(-1)


def centre(table: Array, first: int = 0) -> Array:
    """Subtract the mean along every axis from ``first`` on: the projection on the residual space of those attributes.

    Source: [AIM+GReM] Table 1.
    """
    for axis in range(first, table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
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
