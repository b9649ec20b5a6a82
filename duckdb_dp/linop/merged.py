"""An operator on fewer cells, of which one stands for a run of cells that no query tells apart."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.linop.base import Array, Explicit


@final
@dataclass(frozen=True, eq=False)
class Merged(Explicit):
    """B = A L: L sums ``run`` cells from ``first`` on into one.

    Attributes:
        inner: A.
        first: the cell of A that stands for the run, and the run's first cell.
        run: number of cells, 1 or more.
    """

    inner: Explicit
    first: int
    run: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.inner.shape[0], self.inner.shape[1] + self.run - 1

    @property
    def steps(self) -> int:
        return self.inner.steps + self.run

    @property
    def cancels(self) -> bool:  # type: ignore[override]
        """Whether A does."""
        return self.inner.cancels

    @cached_property
    def label(self) -> NDArray[np.intp]:
        """The cell of A of every cell."""
        return np.repeat(np.arange(self.inner.shape[1]), self.sizes)

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """How many cells each cell of A stands for."""
        found = np.ones(self.inner.shape[1], dtype=np.intp)
        found[self.first] = self.run
        return found

    def columns(self, order: int) -> Array:
        return np.asarray(self.inner.columns(order)[self.label], dtype=np.float64)

    def row(self, index: int) -> list[Fraction]:
        row = self.inner.row(index)
        return [row[cell] for cell in self.label.tolist()]

    def matvec(self, cells: Array) -> Array:
        return self.inner.matvec(self._sums(cells))

    def magnitude(self, cells: Array) -> Array:
        return self.inner.magnitude(self._sums(cells))

    def rmatvec(self, answers: Array) -> Array:
        return np.asarray(self.inner.rmatvec(answers)[self.label], dtype=np.float64)

    def estimate(self, noisy: Array) -> Array:
        found = self.inner.estimate(noisy)
        return np.asarray((found / self.sizes.reshape(-1, *[1] * (found.ndim - 1)))[self.label], dtype=np.float64)

    def _sums(self, cells: Array) -> Array:
        starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        return np.asarray(np.add.reduceat(cells, starts, axis=0), dtype=np.float64)
