"""The interface of a linear operator, and the arithmetic that all operators share.

Answers are needed twice: quickly, as doubles with a rigorous bound on their error, and, for the few draws in a million
that such a bound leaves undecided, exactly, as fractions. The noise is then exact whatever the strategy, and nothing
has to be rounded or charged for rounding (docs/privacy.md).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol, final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

UNIT = 2.0**-53
"""Largest relative error of one rounded operation in doubles."""

UP = 1 + 1e-11
"""Covers the rounding of a sensitivity that is worked out in doubles."""


class Measurable(Protocol):
    """What ``private.py`` must know about a query on a marginal to add noise to its answers. Every ``LinOp`` is one."""

    @property
    def squared_sensitivity(self) -> float:
        """Adding one row changes the answers by at most the root of this in L2."""

    def apply(self, counts: Integers) -> tuple[Array, Array | float]:
        """(answers, errors): the answers in doubles, and a bound on how far each may be from the exact one."""

    def exact(self, counts: Integers, index: int) -> Fraction:
        """One answer, exactly."""


class LinOp(ABC):
    """A linear map B from the n cells of a marginal to the m answers of a strategy, both flat arrays."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(answers, cells)."""

    @property
    @abstractmethod
    def squared_sensitivity(self) -> float:
        """max_i [B^T B]_ii, rounded up: adding one row changes the answers by at most its root in L2."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """max_i sum_j |B_ji|, rounded up: adding one row changes the answers by at most this in L1."""

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

    @abstractmethod
    def matvec(self, cells: Array) -> Array:
        """B x: along the first axis of an array (n, ...), which becomes (m, ...)."""

    @abstractmethod
    def rmatvec(self, answers: Array) -> Array:
        """B^T y: along the first axis of an array (m, ...), which becomes (n, ...)."""

    def gram(self) -> Array:
        """B^T B, shape (n, n)."""
        return self.rmatvec(self.matvec(np.eye(self.shape[1])))

    def dense(self) -> Array:
        """The matrix (m, n); for pictures and small domains."""
        return self.matvec(np.eye(self.shape[1]))


class Explicit(LinOp):
    """An operator without centring: every entry is a double, or a product of doubles.

    Its error bound is that of sums of products: twice ``steps`` roundings relative to |B| x.
    """

    cancels: ClassVar[bool] = False
    """Whether numbers of both signs meet on the way; else the answers themselves measure their error."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """At least the number of roundings that an answer goes through."""

    @abstractmethod
    def columns(self, order: int) -> Array:
        """sum_j |B_ji|^order of every cell i, shape (n,); order 1 or 2."""

    @abstractmethod
    def row(self, index: int) -> list[Fraction]:
        """One row of B, exactly."""

    def magnitude(self, cells: Array) -> Array:
        """A bound on every number that ``matvec`` passes through on the way to an answer, for cells >= 0."""
        return self.matvec(cells)

    def along(self, table: Array, how: str) -> Array:
        """``matvec``, ``rmatvec``, ``magnitude`` or ``estimate`` along the middle axis of a table of three."""
        return np.moveaxis(getattr(self, how)(np.moveaxis(table, 1, 0)), 0, 1)

    @property
    def squared_sensitivity(self) -> float:
        return float(self.columns(2).max()) * UP

    @property
    def sensitivity(self) -> float:
        return float(self.columns(1).max()) * UP

    def apply(self, counts: Integers) -> tuple[Array, Array | float]:
        cells = counts.astype(np.float64)
        answers = self.matvec(cells)
        size = self.magnitude(cells) if self.cancels else answers
        return answers, 2 * (self.steps + 1) * UNIT * size

    def exact(self, counts: Integers, index: int) -> Fraction:
        return sparse_contract(counts, [self.row(index)])


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


def sparse_contract(table: Integers, rows: list[list[Fraction]]) -> Fraction:
    """``contract`` without the places where a vector is 0: of a p-Identity row only one is left."""
    kept = [[place for place, value in enumerate(row) if value] for row in rows]
    if not all(kept):
        return Fraction(0)
    inside = table[np.ix_(*kept)] if kept else table
    return contract(inside, [[row[place] for place in places] for row, places in zip(rows, kept, strict=True)])


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
        return values, 2 * UNIT * np.abs(values)

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
