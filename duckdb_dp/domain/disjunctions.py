"""Disjunctions of conditions on different attributes, computed from their complements and without joint cells.

q_1 OR ... OR q_k = NOT (NOT q_1 AND ... AND NOT q_k): the matrix of all of them is 1 - (x)_i W_i, W_i the complements of
attribute i's predicates, and with c_i = W_i^T w_i their weighted column sums and w the sum of all weights

    G = w 1 1^T - 1 ((x)_i c_i)^T - ((x)_i c_i) 1^T + (x)_i W_i^T diag(w_i) W_i,

four Kronecker products, whatever k is.

Source: [HDMM18] appendix A.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.domain.queries import Queries
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array

MAX_DENSE = 65_536
"""Most joint cells on which disjunctions are written out as a matrix."""


@final
@dataclass(frozen=True, slots=True)
class Complement(Queries):
    """NOT q for every predicate of a family: 1 - q.

    Source: [HDMM18] Theorem 15.
    """

    inner: Queries

    @property
    def n(self) -> int:  # type: ignore[override]
        return self.inner.n

    @property
    def count(self) -> int:
        return self.inner.count

    def gram(self) -> Array:
        gram = self.inner.gram()
        held = np.diag(gram)  # of predicates, how many hold each cell
        found: Array = self.inner.weights().sum() - held[:, None] - held + gram
        return found

    def means(self) -> Array:
        return 1 - self.inner.means()

    def weights(self) -> Array:
        return self.inner.weights()

    def dense(self) -> Array:
        return 1 - self.inner.dense()

    def answers(self, table: Array, axis: int) -> Array:
        found: Array = table.sum(axis=axis, keepdims=True) - self.inner.answers(table, axis)
        return found

    def bounds(self) -> None:
        return None


@final
@dataclass(frozen=True, slots=True)
class Disjunctions(Queries):
    """q_1 OR ... OR q_k for all products of one predicate per attribute, on the joint cells: 1 - (x)_i (1 - q_i).

    Attributes:
        negated: the families of all NOT q_i, one per attribute.

    Source: [HDMM18] Theorem 16.
    """

    negated: tuple[Queries, ...]

    @classmethod
    def of(cls, families: Sequence[Queries]) -> "Disjunctions":
        """From the families of predicates q_i, one per attribute.

        Raises:
            DPError: queries with other entries than 0 and 1.
        """
        for family in families:
            if family.bounds() is None and not np.isin(family.dense(), (0.0, 1.0)).all():
                raise DPError("disjunctions: a condition holds for a cell or not; give predicates of 0 and 1 alone.")
        return cls(tuple(Complement(family) for family in families))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the attributes."""
        return tuple(family.n for family in self.negated)

    @property
    def n(self) -> int:  # type: ignore[override]
        return math.prod(self.sizes)

    @property
    def count(self) -> int:
        return math.prod(family.count for family in self.negated)

    def gram(self) -> Array:
        rows = self.dense()
        return np.asarray(rows.T @ (self.weights()[:, None] * rows), dtype=np.float64)

    def mean_square(self) -> float:
        pairs = [(family.weights(), family.means()) for family in self.negated]
        none, once, twice = (math.prod(float(w @ m**power) for w, m in pairs) for power in (0, 1, 2))
        return max(none - 2 * once + twice, 0.0)

    def means(self) -> Array:
        return 1 - _outer([family.means() for family in self.negated])

    def weights(self) -> Array:
        return _outer([family.weights() for family in self.negated])

    def dense(self) -> Array:
        if self.n > MAX_DENSE:
            raise DPError(
                f"disjunctions on {self.n:,} cells are no matrix, which is made up to {MAX_DENSE:,} cells; "
                "use mechanism 'querysmasher', or 'hdmm' with products or marginals."
            )
        found: Array = np.ones((1, 1))
        for family in self.negated:
            found = np.asarray(np.kron(found, family.dense()), dtype=np.float64)
        return 1 - found

    def answers(self, table: Array, axis: int) -> Array:
        cells = np.moveaxis(table, axis, 0)
        found = cells.reshape(*self.sizes, *cells.shape[1:])
        for place, family in enumerate(self.negated):
            found = family.answers(found, place)
        whole = cells.sum(axis=0, keepdims=True)
        return np.moveaxis(whole - found.reshape(-1, *cells.shape[1:]), 0, axis)

    def bounds(self) -> None:
        return None


def _outer(vectors: Sequence[Array]) -> Array:
    """The products of one entry of each, in row-major order."""
    found = np.ones(1)
    for vector in vectors:
        found = np.multiply.outer(found, vector).reshape(-1)
    return found
