"""Measures how many links the rows of a unit's side have by the values of each of their attributes."""

import math
from collections.abc import Sequence

import numpy as np

from duckdb_dp.counting.units import classes, sizes_of, weight_of
from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array, Identity
from duckdb_dp.linop.grouped import Grouped
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.likeness import group_of
from duckdb_dp.synthesis.links.measured_degrees import ByGroup
from duckdb_dp.synthesis.links.per_unit import NoisyTable, PerUnit
from duckdb_dp.synthesis.links.sides import Side
from duckdb_dp.synthesis.links.within import looked_at

CLEAR, FEWEST, MOST = 20.0, 3, 16
"""Units of a group of values, over the standard deviation of the noise in a cell, that let its mean number of links be seen; and groups of
one attribute at least and at most."""

CELLS = 2**22
"""Values times classes of numbers of links of an attribute, at most."""


def measure_by_value(queryable: PrivateQueryable, side: Side, rho: float, units: float) -> dict[str, ByGroup]:
    """For each attribute of the unit's side, its values by class of the number of links.

    Attributes of few values are measured value by value. Values of others are put into groups of neighbours that hold about equal sums of
    roots of the side's rows, as many as noise lets be told apart; where these would be fewer than FEWEST, the attribute is left out.

    Args:
        queryable: what measures.
        side: the unit's.
        rho: what to spend.
        units: how many rows the private side has, as measured.

    Privacy: spends rho, or nothing where there is no attribute; each table has sensitivity 1 for a unit, which is in one class and in
        one group.
    """
    domain, first = queryable.domain, classes(queryable.rows)
    single = looked_at(domain, side.attributes)
    wide, number = _wide(
        domain, [name for name in side.attributes if name not in single], len(single), len(first), rho, units
    )
    groups = {name: np.arange(domain.sizes[name]) for name in single}
    groups |= {name: group_of(_rows(domain, side, name), number) for name in wide}
    asked, shapes = [], []
    for name, group in groups.items():
        shape = len(first), int(group.max()) + 1
        cells = (np.arange(len(first))[:, None] * shape[1] + group[None, :]).reshape(-1)
        sums = Identity(math.prod(shape))
        query = Grouped(sums, cells, math.prod(shape)) if name in wide else sums
        clique = sizes_of(queryable.rows, name)
        asked.append((clique, PerUnit(query, weight_of(clique), queryable.rows), rho / len(groups) * (1 - 1e-9)))
        shapes.append(shape)
    found = zip(groups.items(), shapes, queryable.answer_all(asked), strict=True)
    return {
        name: ByGroup(noisy=NoisyTable(answers.reshape(shape), variance), group=group)
        for (name, group), shape, (answers, variance) in found
    }


def _wide(
    domain: Domain, names: Sequence[str], single: int, classes: int, rho: float, units: float
) -> tuple[list[str], int]:
    """(the attributes whose values are measured in groups, those of fewest values first; how many groups each has at most)."""
    left = sorted(
        (name for name in names if 1 < domain.sizes[name] <= CELLS // classes), key=lambda name: domain.sizes[name]
    )
    while left:
        noise = math.sqrt((single + len(left)) / (2 * rho))
        if (number := int(units / (CLEAR * noise))) >= FEWEST:
            return left, min(number, MOST)
        left.pop()
    return [], 0


def _rows(domain: Domain, side: Side, name: str) -> Array:
    """The side's rows by value."""
    codes = side.types[side.rows, side.attributes.index(name)]
    return np.bincount(codes, minlength=domain.sizes[name]).astype(np.float64)
