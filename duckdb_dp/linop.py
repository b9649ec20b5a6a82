"""Implicit linear operators on marginals: what a measurement applies to exact counts.

Every operator here has small rational entries, so that it can be applied to whole-number counts without rounding:
``numerators(counts) / denominator`` is the exact answer. Noise is then drawn on a grid that contains every answer,
and no rounding has to be charged (docs/privacy.md).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import reduce
from typing import final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


class LinOp(ABC):
    """A linear map from the cells of a marginal, given as an array, to answers of the same array form."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(answers, cells)."""

    @property
    @abstractmethod
    def denominator(self) -> int:
        """The least whole number that makes every entry of the matrix whole."""

    @property
    @abstractmethod
    def squared_sensitivity(self) -> float:
        """max_i [B^T B]_ii: the largest squared L2 norm of a column; adding one row changes the answers by this."""

    @abstractmethod
    def numerators(self, counts: Integers) -> Integers:
        """denominator * B @ counts, in exact integer arithmetic.

        With whole non-negative counts no number on the way exceeds 2 * denominator * sum(counts); callers pass
        arrays of Python integers (dtype object) where that would not fit 63 bits.
        """

    def dense(self) -> Array:
        """The matrix (answers, cells); for tests and small domains."""
        answers, cells = self.shape
        columns = [self.numerators(unit).reshape(answers) for unit in np.eye(cells, dtype=np.int64)]
        return np.stack(columns, axis=1) / self.denominator


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
