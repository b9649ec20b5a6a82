"""Which values of an attribute are alike: neighbours of those in an order, and keys of public rows that have the same values."""

from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.linop import Array, Integers

ALIKE = "alike"
"""Option of a request: (attribute, public table, columns of each way, group of each value in each way) of keys of public rows."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """What is known of an attribute's values before anything is measured.

    Attributes:
        ordered: how many of the first values are in an order.
        ways: the group of each value, numbered from 0, in several ways, of which the first says most in few groups.
    """

    ordered: int = 0
    ways: tuple[Integers, ...] = ()

    @property
    def known(self) -> bool:
        """Whether there is any."""
        return bool(self.ordered or self.ways)


UNKNOWN = Likeness()


def group_of(counts: Array, number: float, likeness: Likeness = UNKNOWN) -> Integers:
    """The group of each value: at most so many of neighbours, or those of the first way in which values are known to be alike.

    Privacy: post-processing of noisy counts.
    """
    return likeness.ways[0] if likeness.ways else numbered(together(counts, number), len(counts))


def together(counts: Array, number: float) -> Integers:
    """The first values of at most so many groups of neighbours, of about equal sums of roots of counts.

    A table errs in proportion to the roots of its counts: so rare values come together, and one that is frequent stays alone.

    Privacy: post-processing of noisy counts.
    """
    roots = np.sqrt(np.maximum(counts, 0.0))
    roots += roots.mean() / len(roots) + 1e-9  # so that each value has a place
    middles = (np.cumsum(roots) - roots / 2) / roots.sum()
    return np.flatnonzero(np.diff(np.floor(middles * number), prepend=-1.0) > 0)


def numbered(starts: Integers, size: int) -> Integers:
    """The group of each value, where each group is of neighbours and begins at one of ``starts``."""
    return np.repeat(np.arange(len(starts)), np.diff(starts, append=size))


def between(counts: Array, of: Integers, ordered: int) -> Array:
    """How near each value is to each group: on lines between the middles of groups for the first values, which are in an order.

    Others are in their own group alone, and so are all where groups are not of neighbours. Shape (values, groups), rows of sum 1.

    Args:
        counts: noisy, shape (values,).
        of: the group of each value.
        ordered: how many values are in an order.

    Privacy: post-processing.
    """
    found = np.eye(int(of.max()) + 1)[of]
    inside = len(np.unique(of[:ordered]))
    if inside > 1 and bool((np.diff(of) >= 0).all()):
        places, weights = np.arange(ordered, dtype=np.float64), np.maximum(counts[:ordered], 0.0) + 1e-9
        middles = np.bincount(of[:ordered], weights * places) / np.bincount(of[:ordered], weights)
        found[:ordered] = 0.0
        found[:ordered, :inside] = np.stack([np.interp(places, middles, unit) for unit in np.eye(inside)], 1)
    return found
