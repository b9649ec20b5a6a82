"""Between which bounds the values of SQL expressions over one row lie, by interval arithmetic."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal, localcontext
from typing import final

import numpy as np
from sqlglot import exp

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.types import Moment, Truth
from duckdb_dp.domain.types.moments import is_moment
from duckdb_dp.errors import DPError, as_sql, identifier

Bounds = tuple[float, float]
"""The smallest and the largest value."""

FARTHEST = 1e30
"""Days between two dates that nothing bounds, beyond all that there are."""


@final
class Unbounded(DPError):  # noqa: N818  what it says of a number
    """Nothing bounds a number, so that one row may change a sum of it without a bound."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What bounds columns: their declarations, and the conditions that hold; and how far dates are apart.

    Args:
        declared: the declarations, by name.
        limits: between which numbers columns lie by conditions.
        conditions: those that may say how far two dates are apart; None where they are not asked.
        anywhere: whether two declared dates are as far apart as can be where conditions do not say both ends.
    """

    declared: Mapping[str, Attribute]
    limits: Mapping[str, Bounds]
    conditions: tuple[exp.Expr, ...] | None = None
    anywhere: bool = False


_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ,
}  # fmt: skip


def conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    """What a condition's ANDs join."""
    inner = condition.unnest()
    return [*conjuncts(inner.this), *conjuncts(inner.expression)] if isinstance(inner, exp.And) else [inner]


def limits(conditions: Iterable[exp.Expr]) -> dict[str, Bounds]:
    """Column -> between which numbers it lies where all conditions hold, as far as comparisons with numbers say it."""
    found: dict[str, Bounds] = {}
    for node, (low, high) in _compared(conditions):
        if isinstance(node, exp.Column):
            before = found.get(node.name, (-math.inf, math.inf))
            found[node.name] = max(low, before[0]), min(high, before[1])
    return found


def limits_of(node: exp.Expr, conditions: Iterable[exp.Expr]) -> Bounds:
    """Between which numbers an expression lies where all conditions hold, as far as they compare that very expression with numbers."""
    text = node.unnest().sql("duckdb")
    found = [ends for one, ends in _compared(conditions) if one.sql("duckdb") == text]
    return max((low for low, _ in found), default=-math.inf), min((high for _, high in found), default=math.inf)


def _compared(conditions: Iterable[exp.Expr]) -> Iterator[tuple[exp.Expr, Bounds]]:
    """What conditions compare with numbers, all of which hold, and between which it lies."""
    for part in (part for condition in conditions for part in conjuncts(condition)):
        if isinstance(part, exp.Between):
            low, high = _number(part.args["low"]), _number(part.args["high"])
            yield part.this.unnest(), (-math.inf if low is None else low, math.inf if high is None else high)
        elif type(part) in _MIRRORED:
            kind, compared, value = type(part), part.this.unnest(), _number(part.expression)
            if value is None:
                kind, compared, value = _MIRRORED[kind], part.expression.unnest(), _number(part.this)
            if value is not None:
                least = value if kind in (exp.GT, exp.GTE, exp.EQ) else -math.inf
                yield compared, (least, value if kind in (exp.LT, exp.LTE, exp.EQ) else math.inf)


def _number(node: exp.Expr) -> float | None:
    inner = node.unnest()
    if isinstance(inner, exp.Neg):
        value = _number(inner.this)
        return None if value is None else -value
    return float(inner.this) if isinstance(inner, exp.Literal) and not inner.is_string else None


def bounds(node: exp.Expr, declared: Mapping[str, Attribute], conditions: Iterable[exp.Expr] = ()) -> Bounds | None:
    """Between which numbers the value of a checked expression lies, by interval arithmetic; None where nothing bounds it.

    A column lies between those of the conditions that its row satisfies; where these do not say both, also between its declared
    bounds, as values beyond them are clamped with the result.

    Args:
        node: of ``checked``.
        declared: the declarations, by name.
        conditions: checked conditions, all of which hold.

    Raises:
        DPError: a column in it has no bounds.
    """
    return between(node, limits(conditions), declared)


def apart(
    node: exp.Expr, declared: Mapping[str, Attribute], conditions: Iterable[exp.Expr], *, anywhere: bool
) -> Bounds | None:
    """The same where conditions also bound the differences of dates that they compare, wherever these stand in the expression.

    Args:
        node: of ``checked``.
        declared: the declarations, by name.
        conditions: checked conditions, all of which hold.
        anywhere: whether the declarations do not say how far two columns of dates are apart: where the bounds are others then, they
            follow from these declarations.

    Raises:
        DPError: a column in it has no bounds.
    """
    held = tuple(conditions)
    return _finite(_bounds(node, _Known(declared, limits(held), held, anywhere)))


def between(node: exp.Expr, known: Mapping[str, Bounds], declared: Mapping[str, Attribute]) -> Bounds | None:
    """The same where it is known between which numbers columns lie."""
    return _finite(_bounds(node, _Known(declared, known)))


def _finite(found: Bounds | None) -> Bounds | None:
    return None if found is None or not all(map(math.isfinite, found)) else found


DIGITS = 3
"""After the point of a DECIMAL that says none."""

_BOUNDED = (
    exp.Nullif, exp.Neg, exp.Abs, exp.Floor, exp.Ceil, exp.Round, exp.Cast, exp.TryCast, exp.Sqrt, exp.Add, exp.Sub, exp.Mul,
    exp.Div, exp.IntDiv, exp.Mod,
)  # fmt: skip
"""Whose bounds follow from those of their first operand, and of their second."""


def _bounds(node: exp.Expr, known: _Known) -> Bounds | None:
    node = node.unnest()
    if isinstance(node, exp.Column):
        return _declared(node, known)
    if isinstance(node, exp.Literal) and not node.is_string:
        return float(node.this), float(node.this)
    if isinstance(node, exp.Boolean | exp.Not | exp.And | exp.Or | exp.Predicate):
        return 0.0, 1.0
    if isinstance(node, exp.Case):
        return _union([*[branch.args["true"] for branch in node.args["ifs"]], node.args.get("default")], known)
    if isinstance(node, exp.If):
        return _union([node.args["true"], node.args.get("false")], known)
    if isinstance(node, exp.Coalesce):
        return _union([node.this, *node.expressions], known)
    if isinstance(node, exp.Least | exp.Greatest):
        return _chosen(node, known)
    if isinstance(node, exp.Year):
        return _years(node.this, known)
    if isinstance(node, exp.Sub) and any(dates := [_days(part, known) for part in (node.this, node.expression)]):
        return _between_dates(node, _arithmetic(node, dates[0], dates[1]), known) if dates[0] else None
    if not isinstance(node, _BOUNDED) or (one := _bounds(node.this, known)) is None:
        return None
    if isinstance(node, exp.Nullif):
        return one
    if isinstance(node, exp.Neg):
        return -one[1], -one[0]
    if isinstance(node, exp.Abs):
        return _hull([abs(one[0]), abs(one[1]), *([0.0] if one[0] < 0 < one[1] else [])])
    if isinstance(node, exp.Floor | exp.Ceil):
        return math.floor(one[0]), math.ceil(one[1])
    if isinstance(node, exp.Round):
        step = _step(node.args.get("decimals"))
        return None if step is None else (one[0] - step, one[1] + step)
    if isinstance(node, exp.Cast | exp.TryCast):
        return _cast(node.to, one)
    if isinstance(node, exp.Sqrt) and one[0] >= 0:
        return math.sqrt(one[0]), math.sqrt(one[1])
    if isinstance(node, exp.IntDiv | exp.Mod):
        return _divided(node, one)
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div):
        return _arithmetic(node, one, _bounds(node.expression, known))
    return None


def _cast(to: exp.DataType, one: Bounds) -> Bounds:
    """Of a number as another type: decimals and floats are rounded, and what is true is 1."""
    name = to.this.name
    if name == "BOOLEAN":
        return 0.0, 1.0
    if name == "DECIMAL" and all(map(math.isfinite, one)):
        digits = int(to.expressions[1].name) if len(to.expressions) > 1 else 0 if to.expressions else DIGITS
        return _rounded(one[0], digits, down=True), _rounded(one[1], digits, down=False)
    if name == "FLOAT":
        return float(np.float32(one[0])), float(np.float32(one[1]))
    return one if name in ("DOUBLE", "DECIMAL") else (math.floor(one[0]), math.ceil(one[1]))


def _rounded(end: float, digits: int, *, down: bool) -> float:
    """An end as a decimal of so many digits after the point; of two that are as near, the one that leaves more between both ends."""
    ways = ROUND_HALF_UP, ROUND_HALF_DOWN
    with localcontext(prec=400):
        found = [float(Decimal(repr(end)).quantize(Decimal(1).scaleb(-digits), rounding=way)) for way in ways]
    return min(found) if down else max(found)


def _step(decimals: exp.Expr | None) -> float | None:
    """How far rounding may move a number; None where that is not written as a number."""
    text = "0" if decimals is None else decimals.sql("duckdb")
    return 0.5 * 10.0 ** -int(text) if re.fullmatch(r"-?\d{1,2}", text) else None


def _arithmetic(node: exp.Expr, left: Bounds, right: Bounds | None) -> Bounds | None:
    if right is None:
        return None
    if isinstance(node, exp.Add):
        return left[0] + right[0], left[1] + right[1]
    if isinstance(node, exp.Sub):
        return left[0] - right[1], left[1] - right[0]
    if isinstance(node, exp.Mul):
        return _hull([a * b for a in left for b in right])
    return None if right[0] <= 0 <= right[1] else _hull([a / b for a in left for b in right])


def _divided(node: exp.Expr, one: Bounds) -> Bounds | None:
    """Of // and % by a number; of others nothing is known."""
    by = _number(node.expression)
    if not by:
        return None
    if isinstance(node, exp.Mod):  # has the sign of what is divided
        return max(one[0], -abs(by)) if one[0] < 0 else 0.0, min(one[1], abs(by)) if one[1] > 0 else 0.0
    ends = sorted((one[0] / by, one[1] / by))
    return float(math.floor(ends[0])), float(math.ceil(ends[1]))


def _hull(values: list[float]) -> Bounds | None:
    return None if any(math.isnan(value) for value in values) else (min(values), max(values))


def _union(nodes: list[exp.Expr | None], known: _Known) -> Bounds | None:
    """All that one of several results may be; NULL is none."""
    results = [node for node in nodes if node is not None and not isinstance(node, exp.Null)]
    found = [_bounds(node, known) for node in results]
    ends = [end for each in found if each is not None for end in each]
    return _hull(ends) if ends and None not in found else None


def _chosen(node: exp.Expr, known: _Known) -> Bounds | None:
    """least and greatest skip NULL, so any operand may be the result; but it is never beyond one that is never NULL."""
    operands = [node.this, *node.expressions]
    ends, free = [], False
    for operand in operands:
        try:
            each = _bounds(operand, known)
        except DPError:
            each, free = None, True
        free |= each is None
        ends.append(each or (-math.inf, math.inf))
    fixed = [each for operand, each in zip(operands, ends, strict=True) if not operand.find(exp.Column)]
    low, high = min(each[0] for each in ends), max(each[1] for each in ends)
    if isinstance(node, exp.Least):
        high = min([high, *[each[1] for each in fixed]])
    else:
        low = max([low, *[each[0] for each in fixed]])
    return low, high


def _declared(node: exp.Column, known: _Known) -> Bounds:
    low, high = known.limits.get(node.name, (-math.inf, math.inf))
    attribute = known.declared.get(node.name)
    if attribute is None and math.isfinite(low) and math.isfinite(high):
        return min(low, high), max(low, high)
    if attribute is None:
        name = identifier(node.name)
        raise Unbounded(
            f"{name} has no declared bounds, which say how much one row may add; declare them by dp_attribute, such as "
            f"low := 0, high := 100, step := 10, or write them: ... FILTER (WHERE {name} BETWEEN 0 AND 100)."
        )
    found = numeric_bounds(attribute)
    if found is None:
        raise Unbounded(f"{as_sql(node.name)} is {attribute.type}, and only numbers have a sum or an average.")
    if not (math.isfinite(low) and math.isfinite(high)):  # an interval that is written is meant, beyond the domain too
        if low > found[1] or high < found[0]:
            name = identifier(node.name)
            raise Unbounded(
                f"{name} is beyond its declared bounds there, so that they do not say how much one row may add; write both ends: "
                f"... FILTER (WHERE {name} BETWEEN ... AND ...)."
            )
        low, high = max(low, found[0]), min(high, found[1])
    return min(low, high), max(low, high)


def numeric_bounds(attribute: Attribute) -> Bounds | None:
    """The smallest and the largest declared number of an attribute; None of one without numbers."""
    if isinstance(attribute.dtype, Truth):
        return 0.0, 1.0
    if not attribute.dtype.numeric or not attribute.points:
        return None
    points = [float(point) for point in attribute.points]
    return min(points), max(points)


def _years(node: exp.Expr, known: _Known) -> Bounds | None:
    found = _dates(node, known)
    return (float(min(found).year), float(max(found).year)) if found else None


def _days(node: exp.Expr, known: _Known) -> Bounds | None:
    """Between which days, counted from one of them, a date lies: a column, a literal, or a moment as a date; None of anything else."""
    node, cast = node.unnest(), False
    found: list[date] | None = None
    if isinstance(node, exp.Cast | exp.TryCast) and node.to.this.name == "DATE":
        node, cast = node.this.unnest(), True
    if cast and isinstance(node, exp.Literal):
        found = [date.fromisoformat(node.name)] if is_moment("DATE", node.name) else None
    elif cast or (node.name in known.declared and known.declared[node.name].type == "DATE"):
        found = _dates(node, known)
    return (float(min(found).toordinal()), float(max(found).toordinal())) if found else None


def _between_dates(node: exp.Sub, found: Bounds | None, known: _Known) -> Bounds | None:
    """The bounds of a difference of dates, and what conditions say of it."""
    if found is None or known.conditions is None:
        return found
    least, most = limits_of(node, known.conditions)
    if least > found[1] or most < found[0]:  # its values are others than the declared ones
        least, most = -math.inf, math.inf
    columns = all(part.find(exp.Column) for part in (node.this, node.expression))
    if known.anywhere and columns and not math.isfinite(most - least):
        found = -FARTHEST, FARTHEST
    low, high = max(least, found[0]), min(most, found[1])
    return min(low, high), max(low, high)  # of conditions that nothing satisfies


def _dates(node: exp.Expr, known: _Known) -> list[date] | None:
    """The declared dates of a column of dates or moments; None of others."""
    attribute = known.declared.get(node.name) if isinstance(node, exp.Column) else None
    if attribute is None or not isinstance(attribute.dtype, Moment) or attribute.dtype.name == "TIME":
        return None
    return [date.fromisoformat(str(point)[:10]) for point in (attribute.points[0], attribute.points[-1])]
