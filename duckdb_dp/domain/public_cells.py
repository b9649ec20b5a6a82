"""Public cells of a column type, for finding where its values lie: 0 and +-{1, 2, 5} 10^k, years, hours, and finer ones."""

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from duckdb_dp.domain.types import ColumnType, Decimal, Moment, Real, Scalar, Whole

COARSE, FINE = (10, 20, 50), range(10, 100)
"""The first digits of cell edges, in tenths."""

EXPONENTS = range(-30, 31)
"""Of the edges of FLOAT and DOUBLE; what is nearer to 0, or farther, is in one cell."""

FINE_EXPONENTS = range(-9, 16)

WHOLE = 3_000
"""Whole numbers up to this one are fine cells of their own, years among them."""


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
    low, high = _ends(dtype)
    inside = sorted(point for point in found if low < point < high)
    return tuple(_plain(point) for point in (low, *inside, high))


def _exponents(dtype: ColumnType, wanted: range) -> range:
    if isinstance(dtype, Decimal):
        width, scale = dtype.digits
        return range(-scale, width - scale + 1)
    return range(40) if isinstance(dtype, Whole) else wanted


def _numbers(dtype: ColumnType, digits: Iterable[int], exponents: range) -> Iterable[Fraction]:
    """0 and +-(d / 10) 10^k, those that the type holds."""
    least = 1 if isinstance(dtype, Whole) else dtype.per_one
    yield Fraction(0)
    for k in exponents:
        for d in digits:
            point = Fraction(d, 10) * Fraction(10) ** k
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
