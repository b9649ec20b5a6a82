"""Attributes of sides in groups of neighbouring values, where noise would drown each value beside an attribute of the other side."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from duckdb_dp.adaptive.neyman.allocation import effective
from duckdb_dp.adaptive.neyman.coarse import beside
from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.queryable import PrivateQueryable
from duckdb_dp.synthesis.links.matches import Compared
from duckdb_dp.synthesis.links.sides import Side, side_of

EVEN = 4.0
"""How many times an even share of the budget groups are made for: pairs that depend on one another get more."""

LEARNING = 0.5
"""Share of the budget for what links have of both sides, about: the rest is for how many links rows have, and for what is in one unit."""


def in_groups(
    queryable: PrivateQueryable,
    sides: Sequence[Side],
    unit: int,
    ordered: Mapping[str, int],
    compared: Collection[Compared] = (),
) -> tuple[PrivateQueryable, tuple[Side, Side]]:
    """The same with some attributes of both sides in groups of neighbouring values: ages of single years as seven, say.

    What ages have in common with the kind of a booking is smooth, and each year has as much noise as each group. The groups are those
    that cost least beside an attribute of the other side, of as many values as these have on average (geometric mean), for ``EVEN``
    times an even share of what is measured of all pairs: a value more costs noise, and one less hides what differs within a group.

    Args:
        queryable: counts of the links, unit by unit.
        sides: both, with synthetic rows.
        unit: the side whose rows are the units, which weigh 1 each.
        ordered: attribute -> how many of its first values are in an order; only these are in groups.
        compared: what of both ends is compared: these attributes stay as they are.

    Privacy: post-processing, of synthetic rows and the budget. Groups of what is counted change no row's part in it.
    """
    tables = [
        {name: _counts(side, queryable.domain, place) for place, name in enumerate(side.attributes)} for side in sides
    ]
    pairs = math.prod(max(len(found), 1) for found in tables)
    rho = EVEN * LEARNING * queryable.left / pairs
    spared = {name for one in compared for name in (one.left, one.right)}
    found = dict[str, Integers]()
    for side, own, others in zip(sides, tables, reversed(tables), strict=True):
        cells = float(np.exp(np.mean([math.log(effective(one) + 1) for one in others.values()]))) if others else 1.0
        for name, table in own.items():
            if name == side.key or name in spared or any(name in pair for pair in side.implied):
                continue
            number = ordered.get(name, 0)
            of = (
                beside(table[:number], cells, 2 * rho, float(len(sides[unit].rows)), number) if number else np.arange(0)
            )
            if number and int(of.max()) + 1 < number:
                found[name] = np.append(of, int(of.max()) + 1 + np.arange(len(table) - number))
    if not found:
        return queryable, (sides[0], sides[1])
    left, right = (_grouped(side, found) for side in sides)
    return queryable.in_groups(found), (left, right)


def _counts(side: Side, domain: Domain, place: int) -> Array:
    """How many rows have each value of an attribute."""
    size = domain.sizes[side.attributes[place]]
    return np.bincount(side.types[side.rows, place], minlength=size).astype(np.float64)


def _grouped(side: Side, groups: Mapping[str, Integers]) -> Side:
    codes = side.types.copy()
    for place, name in enumerate(side.attributes):
        if name in groups:
            codes[:, place] = groups[name][codes[:, place]]
    same = side_of(side.attributes, codes[side.rows])
    return replace(side, types=same.types, rows=same.rows)
