"""How the rows of each side are linked: what is measured of it, and the shape that this gives the degrees of synthetic rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from duckdb_dp.domain.domain import Domain
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.at_least import Cumulated, measure_cumulated, model_cumulated
from duckdb_dp.synthesis.links.by_unit import ByUnit
from duckdb_dp.synthesis.links.degrees import Degrees
from duckdb_dp.synthesis.links.degrees import model as model_degrees
from duckdb_dp.synthesis.links.linked_rows import measure_linked, shrunk
from duckdb_dp.synthesis.links.measured_degrees import ByGroup, Measured, mean_power, measure_degrees
from duckdb_dp.synthesis.links.negative_binomials import clipped
from duckdb_dp.synthesis.links.popularity import Popularity, measure_popularity, worth
from duckdb_dp.synthesis.links.sides import Side

LINKED, DEGREES, POPULAR = 0.03, 0.08, 0.04
"""Share of the budget for how many rows of a side have a link at all, or of two units how many links; of one unit, for the latter; and
for the links of each row of a side that anybody may see."""

WHETHER = 2
"""Values of the attribute that says whether a row has a link; one that says how many has more."""

Known = Measured | Cumulated | Popularity | None
"""What is known of a side's degrees: their histogram, how many rows have at least so many, or what ``Popularity`` says, or nothing."""


@final
@dataclass(frozen=True, slots=True)
class Shape:
    """The degrees that synthetic rows get.

    Attributes:
        linked: the share of rows that have a link; None where it is not known.
        degrees: the distribution, of rows with a bound.
        popularity: what is known of rows without one.
    """

    linked: float | None = None
    degrees: Degrees | None = None
    popularity: Popularity | None = None


def measure_rows(queryable: PrivateQueryable, sides: Sequence[Side], unit: int | None, rho: float) -> list[Known]:
    """How the rows of each side are linked.

    Args:
        queryable: what measures.
        sides: both.
        unit: the side whose rows are the units; None where there is no such side.
        rho: of what shares are spent.

    Privacy: spends LINKED rho for each side whose rows are counted, and DEGREES rho for that of the unit instead; of the side
    whose links are counted row by row POPULAR rho too, where that says more than noise.
    """
    found: list[Known] = [None, None]
    of_unit = None
    if unit is not None and (tag := sides[unit].linked) is not None:
        found[unit] = of_unit = measure_degrees(queryable, tag, DEGREES * rho)
    for end, side in enumerate(sides):
        if end == unit or side.linked is None:
            continue
        if queryable.domain.sizes[side.linked] > WHETHER:
            found[end] = measure_cumulated(queryable, side.linked, LINKED * rho)
            continue
        links = (
            len(sides[1 - end].rows) if of_unit is None else of_unit.linked * mean_power(of_unit, queryable.rows, 0.5)
        )
        found[end] = _popularity(queryable, side, end, unit, links, rho)
    return found


def _popularity(
    queryable: PrivateQueryable, side: Side, end: int, unit: int | None, links: float, rho: float
) -> Popularity | None:
    """What is known of the rows of a side that is not the unit.

    How many have a link is left out where noise for all links of a unit would be larger than the side.
    """
    assert side.linked is not None
    loud = unit is not None and queryable.rows > len(side.rows) * np.sqrt(LINKED * rho)
    linked = None if loud else measure_linked(queryable, side.linked, LINKED * rho)
    partners, most = queryable.partners(end), 1 if unit is not None else queryable.rows
    if partners is None or not worth(partners[0], links, POPULAR * rho, most):
        return None if linked is None else Popularity(linked=linked)
    return measure_popularity(queryable, end, linked, POPULAR * rho, units=unit is not None)


def units_of(end: int, known: Known, shape: Shape, links: float, most: int) -> ByUnit:
    """What is known of the units: so many links together, and each has at most so many."""
    assert isinstance(known, Measured)
    assert shape.degrees is not None
    total = float(np.clip(known.linked, links / most, max(links, 1.0)))
    return ByUnit(end=end, degrees=shape.degrees, total=total, variance=known.linked_variance)


def shape_of(known: Known, side: Side, domain: Domain, links: int, sizes: Mapping[str, ByGroup]) -> Shape:
    """The degrees that rows get: as measured, or of a clipped negative binomial where there is a bound alone."""
    if known is None:
        return Shape()
    if isinstance(known, Measured):
        return Shape(degrees=model_degrees(replace(known, values=sizes), side, domain, links))
    if isinstance(known, Cumulated):
        return Shape(degrees=model_cumulated(known, side, links))
    share = None if known.linked is None else shrunk(*known.linked, links, len(side.rows))
    if side.max_degree is None:
        original = known.original and len(known.weights) == len(side.rows)
        return Shape(linked=share, popularity=replace(known, original=original))
    if share is None:
        return Shape()
    return Shape(linked=share, degrees=Degrees(shares=clipped(links / len(side.rows), 1 - share, side.max_degree)))
