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
    """The values of each attribute of a clique in groups of neighbours.

    Attributes:
        starts: of each attribute the first value of each group, rising from 0.
        sizes: how many values each attribute has.
        nearness: of each attribute how near each value is to each group, shape (values, groups), rows of sum 1; see ``between``.

    Privacy: post-processing, of tables that are noisy.
    """

    starts: Sequence[Integers]
    sizes: tuple[int, ...]
    nearness: Sequence[Array]

    @property
    def shape(self) -> tuple[int, ...]:
        """Groups of each attribute."""
        return tuple(map(len, self.starts))

    @cached_property
    def of(self) -> tuple[Integers, ...]:
        """The group of each value, for each attribute."""
        return tuple(
            np.repeat(np.arange(len(starts)), np.diff(starts, append=size))
            for starts, size in zip(self.starts, self.sizes, strict=True)
        )

    @cached_property
    def cells(self) -> Integers:
        """The cell of the grouped table that each cell of the table is in, both flat."""
        return np.asarray(np.ravel_multi_index(np.ix_(*self.of), self.shape).reshape(-1), dtype=np.int64)

    def sums(self, table: Array) -> Array:
        """The grouped table."""
        for axis, starts in enumerate(self.starts):
            table = np.add.reduceat(table, starts, axis=axis)
        return table

    def scaled(self, table: Array, sums: Array) -> Array:
        """The table with these sums, by factors of groups, and where values are in an order on lines between these."""
        one, other = self.nearness
        smooth = table * (one @ _quotient(sums, self.sums(table)) @ other.T)
        return np.asarray(smooth * _quotient(sums, self.sums(smooth))[np.ix_(*self.of)], dtype=np.float64)


def _quotient(wanted: Array, have: Array) -> Array:
    return np.divide(wanted, have, out=np.zeros_like(have), where=have > 0)


def together(counts: Array, number: float) -> Integers:
    """The first values of at most so many groups of neighbours, of about equal sums of roots of counts.

    A table errs in proportion to the roots of its counts: so rare values come together, and one that is frequent stays alone.

    Privacy: post-processing of noisy counts.
    """
    roots = np.sqrt(np.maximum(counts, 0.0))
    roots += roots.mean() / len(roots) + 1e-9  # so that each value has a place
    middles = (np.cumsum(roots) - roots / 2) / roots.sum()
    return np.flatnonzero(np.diff(np.floor(middles * number), prepend=-1.0) > 0)


def between(counts: Array, starts: Integers, ordered: int) -> Array:
    """How near each value is to each group: on lines between the middles of groups for the first values, which are in an order.

    Others are in their own group alone. Shape (values, groups), rows of sum 1.

    Args:
        counts: noisy, shape (values,).
        starts: of the groups.
        ordered: how many values are in an order.

    Privacy: post-processing.
    """
    of = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(counts)))
    found = np.eye(len(starts))[of]
    inside = int((starts < ordered).sum())
    if inside > 1:
        places, weights = np.arange(ordered, dtype=np.float64), np.maximum(counts[:ordered], 0.0) + 1e-9
        middles = np.bincount(of[:ordered], weights * places) / np.bincount(of[:ordered], weights)
        found[:ordered] = 0.0
        found[:ordered, :inside] = np.stack([np.interp(places, middles, unit) for unit in np.eye(inside)], 1)
    return found
