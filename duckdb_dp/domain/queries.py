"""Families of linear queries on one attribute or on joint cells, stored without their rows where possible."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import sha256
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.linop import Array

Bounds = NDArray[np.int64]


MAX_CELLS = 8192
"""Most cells of an attribute whose queries need a dense Gram matrix: 0.5 GB."""

MAX_REFLECTED = 262_144
"""Most cells of an axis that has a strategy in closed form: 10 seconds."""


class Queries(ABC):
    """m queries on n cells: rows q of a matrix W (m, n), each with a weight."""

    n: int

    @property
    @abstractmethod
    def count(self) -> int:
        """m, the number of queries."""

    @abstractmethod
    def gram(self) -> Array:
        """W^T diag(weights) W, shape (n, n)."""

    @abstractmethod
    def means(self) -> Array:
        """(q 1) / n of each query: what is left of it when the attribute is averaged out."""

    @abstractmethod
    def weights(self) -> Array:
        """Weight of each query, shape (m,)."""

    def mean_square(self) -> float:
        """The weighted sum of squared ``means``."""
        return float(self.weights() @ self.means() ** 2)

    @abstractmethod
    def dense(self) -> Array:
        """W, shape (m, n)."""

    @abstractmethod
    def answers(self, table: Array, axis: int) -> Array:
        """W applied along one axis of a table: that axis changes from n to m."""

    @abstractmethod
    def bounds(self) -> tuple[Bounds, Bounds] | None:
        """(first, last) cell of each query, both inclusive; None where queries are not intervals."""


@final
@dataclass(frozen=True, slots=True)
class Intervals(Queries):
    """Sums over intervals of cells; circular ones wrap around and have first > last.

    Attributes:
        kind: 'identity', 'total', 'prefix', 'suffix', 'range', 'circular', 'width' or 'hierarchy'.
        n: number of cells.
        parameter: the width, or the fan-out; 0 for the other kinds.
    """

    kind: str
    n: int
    parameter: int = 0

    def __post_init__(self) -> None:
        if self.kind not in INTERVALS:
            raise DPError(
                f"query kind {as_sql(self.kind)} is not known; use {', '.join(KINDS)}, or a list of predicates."
            )
        if self.kind == "width" and not 1 <= self.parameter <= self.n:
            raise DPError(f"'width-{self.parameter}' does not fit {self.n} cells; the width is 1 to {self.n}.")
        if self.kind == "hierarchy" and self.parameter < 2:
            raise DPError(f"'hierarchy-{self.parameter}' has no levels; the fan-out is at least 2, e.g. 'hierarchy-4'.")

    @property
    def meaning(self) -> str:
        """The kind, as 'identity' or 'total' where a width of 1 or of all cells means these."""
        if self.kind == "width" and self.parameter in (1, self.n):
            return "total" if self.parameter == self.n else "identity"
        return self.kind

    @property
    def count(self) -> int:
        n = self.n
        if self.kind == "hierarchy":
            return len(_intervals(self)[0])
        counts = {"total": 1, "range": n * (n + 1) // 2, "circular": n * n, "width": n - self.parameter + 1}
        return counts.get(self.kind, n)

    def gram(self) -> Array:
        if self.n > MAX_CELLS:
            raise DPError(
                f"'{self.kind}' queries on {self.n:,} cells: strategies are planned up to {MAX_CELLS:,} cells of one "
                f"attribute; declare coarser bins, or ask for one product of prefixes, suffixes, ranges or widths, up to {MAX_REFLECTED:,}."
            )
        return _gram(self)

    def means(self) -> Array:
        first, last = _intervals(self)
        return (np.where(first <= last, 0, self.n) + last - first + 1) / self.n

    def weights(self) -> Array:
        return np.ones(self.count)

    def dense(self) -> Array:
        first, last = (bound[:, None] for bound in _intervals(self))
        cell = np.arange(self.n)
        inside = (first <= cell) & (cell <= last)
        return np.where(first <= last, inside, (cell >= first) | (cell <= last)).astype(np.float64)

    def answers(self, table: Array, axis: int) -> Array:
        if self.kind == "identity":
            return table
        sums = np.cumsum(table, axis=axis)
        if self.kind == "prefix":
            return sums
        first, last = _intervals(self)
        sums = np.concatenate([np.zeros_like(np.take(sums, [0], axis=axis)), sums], axis=axis)
        found = np.take(sums, last + 1, axis=axis) - np.take(sums, first, axis=axis)
        if self.kind == "circular":
            wraps = (first > last).reshape([-1 if i == axis % table.ndim else 1 for i in range(table.ndim)])
            found += wraps * np.take(sums, [self.n], axis=axis)
        return found

    def bounds(self) -> tuple[Bounds, Bounds]:
        return _intervals(self)


@final
@dataclass(frozen=True, slots=True)
class Predicates(Queries):
    """Queries given as a matrix, with a weight each; equal when their content is.

    Args:
        matrix: W (m, n), finite; 0/1 for predicates.
        weight: one positive weight per query, or None.

    Raises:
        DPError: no query, a matrix that is not two-dimensional and finite, or weights that do not fit.
    """

    digest: str
    _matrix: Array = field(compare=False, repr=False)
    _weights: Array = field(compare=False, repr=False)

    @classmethod
    def of(cls, matrix: ArrayLike, weights: ArrayLike | None = None) -> "Predicates":
        """The queries that are the rows of a matrix."""
        try:
            rows = np.atleast_2d(np.asarray(matrix, dtype=np.float64))
        except (TypeError, ValueError):
            raise DPError(
                "predicates: the matrix is not a rectangle of numbers; give one row of cells per query."
            ) from None
        if rows.ndim != 2 or rows.size == 0 or not np.isfinite(rows).all():
            raise DPError(
                f"predicates: a matrix of shape {rows.shape} was given; give at least one row of finite numbers."
            )
        try:
            scale = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
            scale = np.broadcast_to(scale, len(rows))
        except (TypeError, ValueError):
            scale = np.zeros(1)
        if not ((scale > 0) & np.isfinite(scale)).all():
            raise DPError("predicates: weights are positive and finite, one per query.")
        digest = sha256(repr(rows.shape).encode() + rows.tobytes() + scale.tobytes()).hexdigest()
        return cls(digest, rows, np.array(scale))

    @property
    def n(self) -> int:  # type: ignore[override]
        return int(self._matrix.shape[1])

    @property
    def count(self) -> int:
        return int(self._matrix.shape[0])

    def gram(self) -> Array:
        return self._matrix.T @ (self._weights[:, None] * self._matrix)

    def means(self) -> Array:
        found: Array = self._matrix.mean(axis=1)
        return found

    def weights(self) -> Array:
        return self._weights

    def dense(self) -> Array:
        return self._matrix

    def answers(self, table: Array, axis: int) -> Array:
        return np.moveaxis(np.tensordot(self._matrix, table, axes=(1, axis)), 0, axis)

    def bounds(self) -> None:
        return None


INTERVALS = ("identity", "total", "prefix", "suffix", "range", "circular", "width", "hierarchy")
KINDS: dict[str, Callable[[int], Queries]] = {kind: partial(Intervals, kind) for kind in INTERVALS}
"""The families of queries that have a name: what makes that of n cells."""

PAIR_KINDS = ("affine", "abs")


def parse_kind(kind: object, n: int) -> Queries:
    """A query family from its name, such as 'range', 'width-7' or 'hierarchy-4', or from a list of predicates."""
    if isinstance(kind, Queries):
        if kind.n != n:
            raise DPError(f"queries on {kind.n} cells were given for an attribute of {n}; give one column per cell.")
        return kind
    if isinstance(kind, str):
        match = re.fullmatch(r"(width|hierarchy)(?:[- ](\d+))?", kind)
        if match and match[1] == "hierarchy":
            return Intervals("hierarchy", n, int(match[2] or 2))
        if match and match[2]:
            return Intervals("width", n, int(match[2]))
        if match:
            raise DPError("'width' needs a number of cells, e.g. 'width-7'.")
        return KINDS[kind](n) if kind in KINDS else Intervals(kind, n)
    found = Predicates.of(kind)  # type: ignore[arg-type]
    if found.n != n:
        raise DPError(
            f"predicates: the matrix has {found.n} columns and the attribute {n} cells; give one column per cell."
        )
    return found


def parse_pair(kind: object, sizes: Sequence[int], weights: ArrayLike | None = None) -> Predicates:
    """Queries on the joint cells of several attributes: 'affine' (a + b <= c), 'abs' (|a - b| <= c), or a matrix."""
    if isinstance(kind, str):
        if kind not in PAIR_KINDS or len(sizes) != 2:
            raise DPError(
                f"{as_sql(kind)} on {len(sizes)} attributes is not known; on two attributes use 'affine' or 'abs', else a matrix."
            )
        return (
            _pair(kind, tuple(sizes)) if weights is None else Predicates.of(_pair(kind, tuple(sizes)).dense(), weights)
        )
    found = Predicates.of(kind, weights)  # type: ignore[arg-type]
    cells = int(np.prod(sizes))
    if found.n != cells:
        raise DPError(
            f"predicates: the matrix has {found.n} columns and the attributes {cells} cells together; they must agree."
        )
    return found


@lru_cache(maxsize=64)
def _pair(kind: str, sizes: tuple[int, ...]) -> Predicates:
    a, b = np.indices(sizes).reshape(2, -1)
    value, top = (a + b, sum(sizes) - 1) if kind == "affine" else (abs(a - b), max(sizes))
    return Predicates.of(value[None, :] <= np.arange(top)[:, None])


@lru_cache(maxsize=256)
def _intervals(queries: Intervals) -> tuple[Bounds, Bounds]:
    n, kind = queries.n, queries.kind
    cells = np.arange(n)
    if kind == "identity":
        return cells, cells
    if kind == "total":
        return cells[:1], cells[-1:]
    if kind == "prefix":
        return np.zeros(n, np.int64), cells
    if kind == "suffix":
        return cells, np.full(n, n - 1)
    if kind == "width":
        first = np.arange(n - queries.parameter + 1)
        return first, first + queries.parameter - 1
    if kind == "circular":
        first, length = (grid.reshape(-1) for grid in np.meshgrid(cells, np.arange(1, n + 1), indexing="ij"))
        return first, (first + length - 1) % n
    if kind == "range":
        first, last = np.triu_indices(n)
        return first, last
    found: dict[tuple[int, int], None] = {}
    width = 1
    while True:
        found |= {(start, min(start + width, n) - 1): None for start in range(0, n, width)}
        if width >= n:
            break
        width *= queries.parameter
    first, last = np.array(list(found)).T
    return first, last


@lru_cache(maxsize=64)
def _gram(queries: Intervals) -> Array:
    """Number of queries that hold both cells, in O(n^2 + m).

    Where begins and ends are free of each other, those that begin by the first times those that end by the last; else from a
    two-dimensional running sum over (first, last).
    """
    n = queries.n
    if queries.kind in ("prefix", "suffix", "range"):
        begins, ends = np.arange(1.0, n + 1), np.arange(float(n), 0, -1)
        upper = np.outer(
            begins if queries.kind != "prefix" else np.ones(n), ends if queries.kind != "suffix" else np.ones(n)
        )
        return np.asarray(np.triu(upper) + np.triu(upper, 1).T, dtype=np.float64)
    first, last = _intervals(queries)
    # A full circle that starts at s ends at s - 1: as an interval that wraps it is the complement of nothing.
    straight = first <= last
    gram = _pairs_inside(n, first[straight], last[straight])
    if not straight.all():
        # 1 - q is the straight interval (last + 1 .. first - 1), empty for the full circle.
        begin, end = last[~straight] + 1, first[~straight] - 1
        some = begin <= end
        without = _pairs_inside(n, begin[some], end[some])
        single = without.diagonal()
        gram = gram + (~straight).sum() - single[:, None] - single[None, :] + without
    return gram


def _pairs_inside(n: int, first: Bounds, last: Bounds) -> Array:
    histogram = np.zeros((n, n))
    np.add.at(histogram, (first, last), 1.0)
    # upto[i, j]: intervals with first <= i and last >= j.
    upto = np.cumsum(np.cumsum(histogram, axis=0)[:, ::-1], axis=1)[:, ::-1]
    low, high = np.minimum.outer(np.arange(n), np.arange(n)), np.maximum.outer(np.arange(n), np.arange(n))
    found: Array = upto[low, high]
    return found
