"""The CALL of dp_attribute that declares what dp_discover has found."""

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from duckdb_dp.counting.encode import literal
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.domain.types import ColumnType, Decimal, Moment, Scalar, Whole
from duckdb_dp.errors import DPError, quoted
from duckdb_dp.request import Request
from duckdb_dp.sql.unknown_values import point_of

CELLS = 50
"""About so many cells, at most, between bounds."""

LARGE = 1e15
"""Doubles below it have the same digits in every version of DuckDB."""


_NULLS = ", nulls := true"


def call(dataset: str, column: str, domain: str) -> str:
    """The statement that declares a column.

    Args:
        dataset: its name as an argument.
        column: the column.
        domain: the arguments that say which values there are; '' where the type does.
    """
    return f"CALL dp_attribute({', '.join(filter(None, [dataset, quoted(column), domain]))})"


def of_values(request: Request, texts: Sequence[str], dataset: str, *, nulls: bool) -> tuple[str, Attribute] | None:
    """(CALL of dp_attribute, what it declares) for released values; None where there are none, or no declaration holds them.

    Args:
        request: that they were asked with.
        texts: the values.
        dataset: its name as an argument.
        nulls: whether NULL was found.
    """
    options = dict(request.options)
    name, type_ = options["attribute"], options["type"]
    dtype, call, more = types.column_type(type_), f"CALL dp_attribute({dataset}, {quoted(name)}", _NULLS * nulls
    try:
        if dtype.members is not None:
            return f"{call}{more})", declare(name=name, type=type_, nulls=nulls)
        points = [point for text in texts if (point := declared_point(dtype, text)) is not None]
        if not points:
            return None
        found = declare(name=name, type=type_, values=points, other=True, nulls=nulls)
        return f'{call}, "values" := {_list(points)}, other := true{more})', found
    except DPError:
        return None


def declared_point(dtype: ColumnType, text: str) -> Scalar | None:
    """The value as dp_attribute is given it; None for a decimal of more digits than a double has."""
    point: Scalar | Fraction | None = point_of(dtype, text)
    if not isinstance(point, Fraction):
        return point
    number = int(point) if point.denominator == 1 else float(text)
    return number if Fraction(str(number)) == point else None


def of_cells(request: Request, points: Sequence[Scalar], dataset: str, *, nulls: bool) -> tuple[str, Attribute] | None:
    """The same for bounds, and for the edges of bins; None where nothing was found."""
    options = dict(request.options)
    name, type_ = options["attribute"], options["type"]
    dtype, call, more = types.column_type(type_), f"CALL dp_attribute({dataset}, {quoted(name)}", _NULLS * nulls
    if len(points) < 2:
        return None
    if not isinstance(dtype, Whole):
        points = [_typed(point) for point in points]
    try:
        if options["find"] == "bins":
            found = declare(name=name, type=type_, bins=[*points], nulls=nulls)
            return f"{call}, bins := {_list(points)}{more})", found
        low, high = points
        step, shown = even_step(dtype, low, high)
        found = declare(name=name, type=type_, low=low, high=high, step=step, nulls=nulls)
        return f"{call}, low := {_one(low)}, high := {_one(high)}, step := {shown}{more})", found
    except (DPError, OverflowError):
        return None


def even_step(dtype: ColumnType, low: Any, high: Any) -> tuple[Scalar, str]:
    """(step, its SQL): the least of 1, 2 and 5 times 10^k that cuts the range into few cells; of dates a month or a year."""
    if isinstance(dtype, Moment):
        if dtype.name == "TIME":
            return "01:00:00", "INTERVAL 1 HOUR"
        months = 12 * (int(high[:4]) - int(low[:4]))
        return ("1 month", "INTERVAL 1 MONTH") if months <= CELLS else ("1 year", "INTERVAL 1 YEAR")
    width = (
        Fraction(high) - Fraction(low)
        if isinstance(low, int) and isinstance(high, int)
        else Fraction(str(high)) - Fraction(str(low))
    )
    digits = 0 if isinstance(dtype, Whole) else dtype.digits[1] if isinstance(dtype, Decimal) else 40
    steps = (Fraction(m) * Fraction(10) ** k for k in range(-digits, 400) for m in (1, 2, 5))
    step = next(step for step in steps if width <= CELLS * step)
    plain: Scalar = int(step) if step.denominator == 1 else float(step)
    plain = plain if isinstance(dtype, Whole) else _typed(plain)
    return plain, _one(plain)


def _one(point: Scalar) -> str:
    """SQL of a number that reaches dp_attribute as it is: DuckDB 1.4 writes large doubles as whole numbers, other ones."""
    large = isinstance(point, float) and abs(point) >= LARGE
    return f"{literal(json.dumps(point))}::JSON" if large else literal(point)


def _typed(point: Scalar) -> Scalar:
    """A whole number that no BIGINT holds as the double that is written alike: all of them are 1, 2 or 5 times 10^k."""
    return (
        float(point)
        if isinstance(point, int) and abs(point) >= 2**63 and Fraction(repr(float(point))) == point
        else point
    )


def _list(points: Sequence[Scalar]) -> str:
    """SQL of a list that reaches dp_attribute as it is: DuckDB makes numbers of several types one type, and rounds them."""
    alike = (
        {*map(type, points)} in ({str}, {bool})
        or all(type(point) is float and abs(point) < LARGE for point in points)
        or all(type(point) is int and -(2**63) <= point < 2**63 for point in points)
    )
    return f"[{', '.join(map(literal, points))}]" if alike else f"{literal(json.dumps(list(points)))}::JSON"
