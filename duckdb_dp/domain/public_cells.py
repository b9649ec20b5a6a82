"""Public cells of a column type, for finding where its values lie: 0 and +-{1, 2, 5} 10^k, years, hours, and finer ones."""

import datetime
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.queries import MAX_REFLECTED
from duckdb_dp.domain.types import ColumnType, Decimal, Moment, Real, Scalar, Whole

FINEST = tuple(sorted({Fraction(round(100 * 10 ** (i / 200)), 10) for i in range(200)}))
COARSE, MEDIUM, FINE = (10, 20, 50), (10, 12, 15, 20, 25, 30, 40, 50, 60, 80), range(10, 100)
"""The first digits of cell edges, in tenths."""

EXPONENTS = range(-30, 31)
"""Of the edges of FLOAT and DOUBLE; what is nearer to 0, or farther, is in one cell."""

FINE_EXPONENTS, FINEST_EXPONENTS = range(-9, 16), range(-2, 8)

WHOLE = 3_000
"""Whole numbers up to this one are fine cells of their own, years among them."""


@cache
def edges(dtype: ColumnType, *, fine: bool) -> tuple[Scalar, ...]:
    """The edges of cells over the whole range of an ordered type; the fine ones are among them those of the coarse cells.

    Privacy: a function of the type alone.
    """
    if isinstance(dtype, Moment):
        return tuple(_moments(dtype.name, fine))
    found = set(_numbers(dtype, COARSE, _exponents(dtype, EXPONENTS)))
    if fine:
        found |= set(_numbers(dtype, FINE, _exponents(dtype, FINE_EXPONENTS)))
        if isinstance(dtype, Whole):
            found |= set(map(Fraction, range(-WHOLE, WHOLE + 1)))
    (low, high), points = _ends(dtype), _sorted(found)
    inside = points[bisect_right(points, low) : bisect_left(points, high)]
    return tuple(_plain(point) for point in (low, *inside, high))


def _sorted(points: Iterable[Fraction]) -> list[Fraction]:
    """Increasing; by the nearest doubles first, which compare 30 times as fast."""
    return sorted(points, key=lambda point: (float(point), point))


def in_order(attribute: Attribute, *, line: bool = False) -> Attribute:
    """The attribute with its cells in the order of its values, without 'other' and NULL; with ``line`` ``on_line``."""
    if not attribute.dtype.ordered:
        return attribute
    points = attribute.points
    if attribute.kind == "values":
        orders = attribute.dtype.orders(points)
        points = tuple(points[place] for place in sorted(range(len(points)), key=orders.__getitem__))
    found = replace(attribute, points=points, other=False, nulls=False)
    return on_line(found) if line else found


def on_line(attribute: Attribute) -> Attribute:
    """The attribute with cells for all values, see ``Attribute.line``; as it is where prefixes of so many are not planned."""
    size = 2 * attribute.base + 1 if attribute.kind == "values" else attribute.base + 2
    return replace(attribute, line=True) if size <= MAX_REFLECTED else attribute


EVEN = 1_000
"""Even parts of a range between public ends, beside the cells of its type."""


def between(
    dtype: ColumnType, low: Scalar | None, high: Scalar | None, declared: Iterable[Scalar] = (), *, most: int
) -> tuple[Scalar, ...]:
    """The edges of cells from low to high, at most so many cells where that can be: fine ones, or else coarser ones.

    Args:
        dtype: an ordered type.
        low, high: the ends; None for those of the type.
        declared: edges that are kept.
        most: cells.

    Privacy: a function of the type and of what is declared.
    """
    whole = edges(dtype, fine=True)
    ends = (whole[0] if low is None else low, whole[-1] if high is None else high)
    even = [] if low is None or high is None else _even(dtype, low, high)
    coarse = edges(dtype, fine=False)
    levels: list[Iterable[Scalar]] = [[*whole, *even], whole, coarse, ()]
    if not isinstance(dtype, Moment):
        medium = _of(dtype, MEDIUM, FINE_EXPONENTS)
        units = _units(dtype)
        finest = [*coarse, *medium, *_of(dtype, FINEST, FINEST_EXPONENTS), *units]
        levels = [[*finest, *even], finest, [*medium, *units, *even], [*medium, *units], medium, coarse, ()]
    found: tuple[Scalar, ...] = ()
    for points in levels:
        found = _inside(dtype, [*points, *declared], *ends)
        if len(found) <= most + 1:
            break
    return found


def _inside(dtype: ColumnType, points: list[Scalar], low: Scalar, high: Scalar) -> tuple[Scalar, ...]:
    """The ends, and the points between them, each once, in order."""
    first, last = dtype.orders((low, high))
    ordered = {order: point for point, order in zip(points, dtype.orders(points), strict=True) if first < order < last}
    return (low, *(ordered[order] for order in sorted(ordered)), high)


def _even(dtype: ColumnType, low: Scalar, high: Scalar) -> list[Scalar]:
    """Edges of even parts; of dates and times days, months where there are too many."""
    if isinstance(dtype, Moment):
        if dtype.name == "TIME":
            return []
        first, last = (datetime.date.fromisoformat(str(end)[:10]) for end in (low, high))
        days = (last - first).days
        return [str(first + datetime.timedelta(day)) for day in range(1, days + 1)] if days <= 4 * EVEN else []
    start, step = Fraction(str(low)), (Fraction(str(high)) - Fraction(str(low))) / EVEN
    inner = [start + step * part for part in range(1, EVEN)]
    if isinstance(dtype, Whole):
        return [round(point) for point in inner]
    if isinstance(dtype, Decimal):
        return [_plain(Fraction(round(point * dtype.per_one), dtype.per_one)) for point in inner]
    return [float(point) for point in inner]


def _units(dtype: ColumnType) -> list[Scalar]:
    """Small values one by one: whole numbers, and of decimals the first multiples of their last digit."""
    if isinstance(dtype, Whole) or (isinstance(dtype, Decimal) and dtype.per_one == 1):
        return list(range(-WHOLE // 3, WHOLE + 1))
    if isinstance(dtype, Decimal):
        return [_plain(Fraction(k, dtype.per_one)) for k in range(-100, 101)]
    return []


@cache
def _of(dtype: ColumnType, digits: tuple[Fraction | int, ...], exponents: range) -> tuple[Scalar, ...]:
    allowed = [k for k in _exponents(dtype, exponents) if k in exponents]
    return tuple(map(_plain, _sorted(set(_numbers(dtype, digits, allowed)))))


def _exponents(dtype: ColumnType, wanted: range) -> range:
    if isinstance(dtype, Decimal):
        width, scale = dtype.digits
        return range(-scale, width - scale + 1)
    return range(40) if isinstance(dtype, Whole) else wanted


def _numbers(dtype: ColumnType, digits: Iterable[Fraction | int], exponents: Iterable[int]) -> Iterable[Fraction]:
    """0 and +-(d / 10) 10^k, those that the type holds."""
    least = 1 if isinstance(dtype, Whole) else dtype.per_one
    yield Fraction(0)
    for k in exponents:
        for d in digits:
            point = Fraction(d) / 10 * Fraction(10) ** k
            if isinstance(dtype, Real) or (point * least).denominator == 1:
                yield point
                yield -point


def _ends(dtype: ColumnType) -> tuple[Fraction, Fraction]:
    if isinstance(dtype, Whole):
        low, high = dtype.limits
        return Fraction(low), Fraction(high)
    if isinstance(dtype, Decimal):
        width, scale = dtype.digits
        most = Fraction(10) ** (width - scale)
    else:
        most = Fraction(2**128 - 2**104) if dtype.name == "FLOAT" else Fraction(2**1024 - 2**971)
    return -most, most


def _plain(point: Fraction) -> Any:
    return int(point) if point.denominator == 1 and abs(point) < 2**128 else float(point)


def _moments(type_: str, fine: bool) -> list[Scalar]:
    if type_ == "TIME":
        inner = [f"{m // 60:02}:{m % 60:02}:00" for m in range(0, 24 * 60, 1 if fine else 60)]
        return [*inner, "23:59:59.999999"]
    first, last = (1678, 2261) if type_ == "TIMESTAMP_NS" else (1, 9999)
    years = {first, *range(1000, 1800, 100), *range(1800, 2201), *range(2200, 10_000, 100)}
    months = range(1, 13) if fine else range(1, 2)
    found = [
        f"{year:04}-{month:02}-01"
        for year in sorted(years)
        if first <= year <= last
        for month in (months if 1900 <= year <= 2100 else range(1, 2))
    ]
    end = {"DATE": "", "TIMESTAMP_S": " 23:59:59", "TIMESTAMP_MS": " 23:59:59.999"}.get(type_, " 23:59:59.999999")
    return [*found, f"{last:04}-12-31{end}"]
