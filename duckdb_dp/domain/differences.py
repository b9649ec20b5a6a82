"""How far two dates or times of a row are apart, as one more attribute of synthetic rows.

Months of a beginning and of an end say little of a stay of three days: the classes of the difference do.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.types.base import Amount
from duckdb_dp.domain.types.moments import Moment
from duckdb_dp.errors import identifier

DIFFERENCES = "differences"
"""Option of a request: (lower column, upper column) of pairs whose difference is counted beside them."""

MOST = 4
"""Differences of a table: each is one more attribute, which has its share of noise."""

SHARED = 0.25
"""The part of the longer range, at least, that lies in the other."""

LARGEST = 2**62
"""Differences, in the type's unit, that a BIGINT holds with room to spare."""


@final
@dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference of two columns of one type, from 0 on.

    Attributes:
        low, high: the columns; no value of ``high`` is below that of ``low``.
        name: what the difference is called; no attribute has that name.
    """

    low: Attribute
    high: Attribute
    name: str

    @property
    def per(self) -> int:
        """The type's units in a step of the difference: a day of dates, a second of times and timestamps."""
        return self.low.dtype.coarser[0] if self.low.dtype.coarser else 1

    @cached_property
    def attribute(self) -> Attribute:
        """Its classes, and NULL where one of both has no declared value.

        Classes begin at 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, ... steps, so that each is at most half as long again as the one before is far.
        """
        most = max(self._ends[1][1] - self._ends[0][0], self.per) // self.per
        edges, power = [0, 1], 1
        while edges[-1] <= most:
            edges += [2 * power] if power == 1 else [3 * power // 2, 2 * power]
            power *= 2
        points = [*(edge for edge in edges if edge <= most), int(most) + 1]
        return Attribute(name=self.name, type="BIGINT", kind="bins", points=tuple(points), nulls=True)

    @property
    def sql(self) -> str:
        """SQL of the difference in whole steps; NULL where a value is NULL or beyond the declared ones. No row raises an error.

        Values are brought between the declared ones before they are subtracted, so that nothing overflows, whatever is evaluated.
        """
        known, parts = [], []
        for attribute, (first, last) in zip((self.low, self.high), self._ends, strict=True):
            assert isinstance(attribute.dtype, Moment)
            units = attribute.dtype.units(f"TRY_CAST({identifier(attribute.name)} AS {attribute.type})")
            known.append(f"{units} BETWEEN {first} AND {last}")
            parts.append(f"least(greatest({units}, {first}), {last})")
        low, high = parts
        return f"CASE WHEN {' AND '.join(known)} THEN greatest({high} - {low}, 0) // {self.per} END"

    @cached_property
    def _ends(self) -> list[tuple[int, int]]:
        """The least and the greatest declared value of each, in the type's unit."""
        return [_ends(attribute) for attribute in (self.low, self.high)]

    @property
    def overlap(self) -> float:
        """The part of the longer one of both declared ranges that lies in the other."""
        (first, last), (start, end) = self._ends
        return (min(last, end) - max(first, start)) / max(last - first, end - start, 1)

    @property
    def possible(self) -> bool:
        """Whether it is one of dates or times whose ranges are about the same, so that it says more than they do, and a BIGINT holds it.

        How old people were when they came, in years, is no better known than from the years of both dates.
        """
        dtype = self.low.dtype
        if not isinstance(dtype, Moment) or dtype.name != self.high.dtype.name:
            return False
        (first, _), (_, last) = self._ends
        return self.per < last - first < LARGEST and self.overlap >= SHARED


def _ends(attribute: Attribute) -> tuple[int, int]:
    amounts: list[Amount] = attribute.dtype.amounts(attribute.points)
    return math.ceil(min(amounts)), math.floor(max(amounts))


def differences(attributes: Sequence[Attribute], pairs: Sequence[Sequence[str]]) -> list[Difference]:
    """The differences of pairs (lower column, upper column) of declared attributes."""
    known = {attribute.name: attribute for attribute in attributes}
    found, names = [], {name.lower() for name in known}  # SQL takes those that differ in case alone for one
    for low, high in pairs:
        name = f"{high} - {low}"
        while name.lower() in names:
            name += " "
        names.add(name.lower())
        found.append(Difference(low=known[low], high=known[high], name=name))
    return found


def looked_at(attributes: Sequence[Attribute], pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs whose difference is counted: of a <= b <= c not a and c, which b is between.

    Args:
        attributes: the declarations.
        pairs: (lower column, upper column) whose order is public.
    """
    found = [(one.low.name, one.high.name) for one in differences(attributes, pairs) if one.possible]
    after = {low: {high for first, high in found if first == low} for low, _ in found}
    between = [(low, high) for low, high in found if any(high in after.get(one, ()) for one in after[low] - {high})]
    return [pair for pair in dict.fromkeys(found) if pair not in between][:MOST]
