"""How many links the rows of a unit's side have, as measured: a histogram of degrees, and what can be known of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

import numpy as np

from duckdb_dp.counting.units import classes, shares_of, sizes_of
from duckdb_dp.linop import Array, Integers, Total
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.nonneg import simplex
from duckdb_dp.synthesis.links.per_unit import NoisyTable, PerUnit, measure_tables

ROWS, ANY = 0.15, 0.4
"""Shares, of what is spent on the degrees of a side, for how many rows it has, and for how many of them have a link."""

CLEAR = 3.0
"""Standard deviations of its noise above which a class of degrees is seen by itself."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ByGroup:
    """The rows of a unit's side by class of degree and by groups of the values of one of their attributes, as measured.

    Attributes:
        noisy: rows, shape (classes, groups), without those of degree 0.
        group: of each value.
    """

    noisy: NoisyTable
    group: Integers


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The degrees of the rows of a unit's side as measured.

    Attributes:
        rows: how many rows the private side has.
        linked: how many of them have a link.
        linked_variance: of the noise of that.
        sizes: rows by class of degree, without those of degree 0.
        values: for some attributes of the side, the same by their values.
    """

    rows: float
    linked: float
    linked_variance: float
    sizes: NoisyTable
    values: Mapping[str, ByGroup] = field(default_factory=dict)

    @property
    def units(self) -> Array:
        """Rows that have links, by class of degree, as the noise lets them be known."""
        return numbers(self.sizes, self.linked)

    @property
    def classed(self) -> NoisyTable:
        """The same from all tables together, each weighed by its noise: sums over the values of an attribute are what ``sizes`` is."""
        found = [(self.sizes.table, self.sizes.variance)]
        tables = [one.noisy for one in self.values.values()]
        found += [(one.table.sum(axis=1), one.variance * one.table.shape[1]) for one in tables]
        whole = sum(1 / variance for _, variance in found)
        return NoisyTable(np.asarray(sum(table / variance for table, variance in found)) / whole, 1 / whole)


def measure_degrees(queryable: PrivateQueryable, tag: str, rho: float) -> Measured:
    """How many rows the unit's side has, and how many of each degree.

    Privacy: spends rho; a unit changes either by 1.
    """
    total = (tag,), PerUnit(Total(2), 1, queryable.rows), ROWS * rho
    ((rows, _),) = queryable.answer_all([total])
    most = queryable.rows
    steps = [(shares_of(()), (1,), ANY * rho), (sizes_of(most), (len(classes(most)),), (1 - ROWS - ANY) * rho)]
    linked, sizes = measure_tables(queryable, steps)
    together = sizes.variance * sizes.table.size
    weight = together / (together + linked.variance)
    return Measured(
        rows=max(float(rows[0]), 1.0),
        linked=max(weight * float(linked.table[0]) + (1 - weight) * float(sizes.table.sum()), 1.0),
        linked_variance=weight * linked.variance,
        sizes=sizes,
    )


def at_bound(measured: Measured, most: int) -> dict[str, float]:
    """How many rows have as many links as are counted of one (``links``), so that some of theirs may be left out, as measured.

    Privacy: post-processing.
    """
    sizes = measured.sizes
    return {
        "links": float(classes(most)[-1]),
        "rows": min(max(0.0, float(sizes.table[-1])), measured.rows),
        "stddev": float(np.sqrt(sizes.variance)),
        "of": measured.rows,
    }


def numbers(noisy: NoisyTable, total: float, expected: Array | None = None) -> Array:
    """Rows by class of degree as the noise lets them be known: none below 0, and all together so many.

    If each noisy number were made 0 where it is below, half of the noise of all empty classes would be left, and rows would seem to have
    as many links as the bound allows. So two things are added. After the last class that is seen by itself, and after the largest
    one that is expected, numbers fall: neighbours that do not are replaced by their mean, in which noise is less. And one
    number is taken from all, so that they have their sum: the nearest numbers in L2 that do.

    Args:
        noisy: as measured.
        total: rows that have links.
        expected: what the numbers are shrunk towards; None for nothing.

    Privacy: post-processing.
    """
    from scipy.optimize import isotonic_regression  # for import time

    found = noisy.table if expected is None else noisy.shrunk(expected)
    seen = np.flatnonzero(noisy.table > CLEAR * np.sqrt(noisy.variance))
    first = max(int(seen[-1]) + 1 if seen.size else 0, 0 if expected is None else int(np.argmax(expected)))
    tail = isotonic_regression(found[first:], increasing=False).x if first < found.size else found[first:]
    return simplex(np.append(found[:first], tail), total)


def means(most: int) -> Array:
    """The middle of each class of degrees."""
    first = classes(most)
    return np.asarray((first + np.append(first[1:] - 1, most)) / 2)


def mean_power(measured: Measured, most: int, power: float) -> float:
    """The mean of k^power over the units that have links, k of them each.

    Privacy: post-processing.
    """
    units = measured.units
    return float(units @ means(most) ** power / units.sum())
