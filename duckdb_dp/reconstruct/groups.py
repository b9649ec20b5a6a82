"""Tables of groups of neighbouring values: what is measured of a pair of many values where noise would drown each of its cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from duckdb_dp.linop import Array, Integers


@final
@dataclass(frozen=True, eq=False)
class Groups:
    """The values of each attribute of a clique in groups.

    Attributes:
        of: of each attribute the group of each value, numbered from 0.
        nearness: of each attribute how near each value is to each group, shape (values, groups), rows of sum 1; see ``between``.

    Privacy: post-processing, of tables that are noisy.
    """

    of: tuple[Integers, ...]
    nearness: Sequence[Array]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Groups of each attribute."""
        return tuple(int(one.max()) + 1 for one in self.of)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each attribute has."""
        return tuple(map(len, self.of))

    @property
    def of_neighbours(self) -> bool:
        """Whether each group is of neighbours."""
        return all(order is None for order, _ in self._sorted)

    @cached_property
    def cells(self) -> Integers:
        """The cell of the grouped table that each cell of the table is in, both flat."""
        return np.asarray(np.ravel_multi_index(np.ix_(*self.of), self.shape).reshape(-1), dtype=np.int64)

    def sums(self, table: Array) -> Array:
        """The grouped table."""
        for axis, (order, starts) in enumerate(self._sorted):
            table = np.add.reduceat(table if order is None else table.take(order, axis=axis), starts, axis=axis)
        return table

    @cached_property
    def _sorted(self) -> list[tuple[Integers | None, Integers]]:
        """Of each attribute (the order in which groups stand together, None where they do, where each begins)."""
        found = list[tuple[Integers | None, Integers]]()
        for of in self.of:
            order = np.argsort(of, kind="stable")
            starts = np.searchsorted(of[order], np.arange(int(of.max()) + 1))
            found.append((None if bool((np.diff(of) >= 0).all()) else order, starts))
        return found

    def scaled(self, table: Array, sums: Array) -> Array:
        """The table with these sums, by factors of groups, and where values are in an order on lines between these."""
        one, other = self.nearness
        smooth = table * (one @ _quotient(sums, self.sums(table)) @ other.T)
        return np.asarray(smooth * _quotient(sums, self.sums(smooth))[np.ix_(*self.of)], dtype=np.float64)


def _quotient(wanted: Array, have: Array) -> Array:
    return np.divide(wanted, have, out=np.zeros_like(have), where=have > 0)
