"""dp_sql, GROUP BY of an expression of whole numbers whose range the conditions say, however many columns these are worked out of."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from sqlglot import exp

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.types import Whole, find
from duckdb_dp.sql.declared_groups import selected
from duckdb_dp.sql.no_numbers import INTERVAL
from duckdb_dp.sql.same_conditions import form, simple

MOST = 50_000
"""Most whole numbers of which something is worked out."""

TABLE = "_dp_x"
"""The table of what stands for a part of an expression."""

_PARTS: dict[str, tuple[int, int]] = {
    "hour": (0, 23), "minute": (0, 59), "second": (0, 59), "month": (1, 12), "quarter": (1, 4), "day": (1, 31),
    "dayofmonth": (1, 31), "dayofweek": (0, 6), "dow": (0, 6), "weekday": (0, 6), "isodow": (1, 7), "dayofweekiso": (1, 7),
    "dayofyear": (1, 366), "doy": (1, 366), "week": (1, 53), "weekofyear": (1, 53),
}  # fmt: skip
"""Parts of dates and times, with the first and the last."""

Range = tuple[float | Fraction, float | Fraction]
"""The least and the largest number that something may be."""

_EVERYTHING: Range = (-math.inf, math.inf)

_ROUNDING = (exp.Cast, exp.TryCast, exp.Floor, exp.Ceil, exp.Round, exp.Trunc)
"""What is less than 1 away from its operand."""

_WRITTEN = re.compile(r"(\d{1,30}(\.\d{0,30})?|\.\d{1,30})(e[+-]?\d{1,2})?", re.IGNORECASE | re.ASCII)
"""Numbers that bound anything here."""

_NUMBERS = {"DECIMAL", "DOUBLE", "FLOAT", "TINYINT", "SMALLINT", "INT", "BIGINT", "INT128"}


def worked_out(
    value: exp.Expr, name: str, type_: str, conditions: Sequence[exp.Expr], type_of: Callable[[exp.Expr], str]
) -> Attribute | None:
    """All values of an expression such as (b - a) // 7 that it has where b - a BETWEEN 0 AND 60; None where conditions do not say.

    The conditions only have to bound one part of the expression that has all its columns; hour(ts) and the like need none. Whole
    numbers in these bounds for which the conditions hold are put in its place by DuckDB itself, so that //, % and what is NULL mean what
    they mean there.

    Args:
        value: the expression.
        name: what its column is called.
        type_: its type.
        conditions: what all rows satisfy.
        type_of: the types of expressions.
    """
    if form() < 6:
        return None
    for part in parts(value):
        own = _own(part, conditions)
        low, high = _all(map(_range, own))
        whole = find(type_of(part)) if math.isfinite(low) and math.isfinite(high) else None
        if not isinstance(whole, Whole) or not whole.numeric:
            continue
        first, last = max(math.ceil(low), whole.limits[0]), min(math.floor(high), whole.limits[1])
        if last - first < MOST and (shown := with_x(part, value)) is not None:
            return _listed(
                shown, name, type_, own, f"SELECT CAST(unnest(range({first}, {last + 1})) AS {whole.name}) AS x"
            )
    for part in parts(value):
        ends, shown = part_of_time(part, type_of), with_x(part, value)
        if ends is not None and shown is not None and part != value:
            numbers = f"SELECT unnest(range({ends[0]}, {ends[1] + 1})) AS x UNION ALL SELECT NULL"
            return _listed(shown, name, type_, _own(part, conditions), numbers)
    return None


def part_of_time(node: exp.Expr, type_of: Callable[[exp.Expr], str]) -> tuple[int, int] | None:
    """The first and the last number that a part of a date or a time may be; None of other expressions, and of durations.

    Args:
        node: the expression.
        type_of: the types of expressions.
    """
    part, taken = type(node).__name__, node.this
    if isinstance(node, exp.Extract):
        part, taken = node.this.name, node.expression
    elif isinstance(node, exp.Anonymous):
        named = node.name.lower() in ("date_part", "datepart") and len(node.expressions) > 1
        part = node.expressions[0].name if named else node.name
        taken = node.expressions[-1] if node.expressions else None
    ends = _PARTS.get(part.lower())
    # Hours of a duration are as many as it has, and below 0 where it is.
    return None if ends is None or not isinstance(taken, exp.Expr) or type_of(taken) == INTERVAL else ends


def range_of(part: exp.Expr, conditions: Sequence[exp.Expr]) -> Range:
    """Between which numbers a part of an expression lies where all conditions hold, or a little beyond."""
    return _all(map(_range, _own(part, conditions)))


def _own(part: exp.Expr, conditions: Sequence[exp.Expr]) -> list[exp.Expr]:
    """The conditions on a part alone, with x in its place."""
    return [one for one in (with_x(part, node) for node in conditions) if one is not None]


def parts(value: exp.Expr) -> list[exp.Expr]:
    """The parts of an expression that have all its columns, the smallest first."""
    found = {node.sql("duckdb"): node for node in value.walk() if not isinstance(node, exp.Paren | exp.Identifier)}
    kept = [
        (len(text), node) for text, node in found.items() if node.find(exp.Column) and with_x(node, value) is not None
    ]
    return [node for _, node in sorted(kept, key=lambda pair: pair[0])]


def with_x(part: exp.Expr, node: exp.Expr) -> exp.Expr | None:
    """An expression with x in place of a part, and -x in place of the difference the other way round; None where it has other columns."""
    text, turned = part.sql("duckdb"), _turned(part)

    def one(inner: exp.Expr) -> exp.Expr:
        own = inner.sql("duckdb")
        if own == text:
            return exp.column("x", table=TABLE)
        return exp.paren(exp.Neg(this=exp.column("x", table=TABLE))) if own == turned else inner

    found = node.copy().transform(one)
    columns = [*found.find_all(exp.Column)]
    return found if columns and all(each.table == TABLE for each in columns) and not found.find(exp.Query) else None


def _turned(part: exp.Expr) -> str | None:
    """SQL of the same difference the other way round."""
    if not isinstance(part, exp.Sub | exp.DateDiff):
        return None
    found = part.copy()
    found.set("this", part.expression.copy())
    found.set("expression", part.this.copy())
    return found.sql("duckdb")


def _listed(shown: exp.Expr, name: str, type_: str, conditions: Sequence[exp.Expr], numbers: str) -> Attribute | None:
    kept = " AND ".join(["true", *(f"TRY(CAST(({one.sql('duckdb')}) AS BOOLEAN))" for one in conditions)])
    values = f"TRY(CAST(({shown.sql('duckdb')}) AS {type_}))"
    return selected(name, type_, f"SELECT {values} FROM ({numbers}) AS {TABLE} WHERE {kept}")


def _all(ranges: Iterator[Range]) -> Range:
    low, high = _EVERYTHING
    for least, most in ranges:
        low, high = max(low, least), min(high, most)
    return low, high


def _range(node: exp.Expr) -> Range:
    """Between which numbers x lies where a condition holds, or a little beyond."""
    node = simple(node)
    if isinstance(node, exp.And):
        return _all(map(_range, (node.this, node.expression)))
    if isinstance(node, exp.Or):
        sides = [_range(side) for side in (node.this, node.expression)]
        return min(low for low, _ in sides), max(high for _, high in sides)
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        low, high = (_number(node.args[word]) for word in ("low", "high"))
        return _solved(node.this, (-math.inf if low is None else low, math.inf if high is None else high))
    if isinstance(node, exp.In):
        numbers = [_number(one) for one in node.expressions if not isinstance(one.unnest(), exp.Null)]
        known = [one for one in numbers if one is not None]
        return _solved(node.this, (min(known), max(known))) if known and None not in numbers else _EVERYTHING
    return _compared(node)


def _compared(node: exp.Expr) -> Range:
    """The same of a comparison with a number, on either side."""
    if not isinstance(node, exp.EQ | exp.NullSafeEQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
        return _EVERYTHING
    above, below = isinstance(node, exp.GT | exp.GTE), isinstance(node, exp.LT | exp.LTE)
    side, number = node.this, _number(node.expression)
    if number is None:
        side, number, above, below = node.expression, _number(node.this), below, above
    return (
        _EVERYTHING
        if number is None
        else _solved(side, (-math.inf if below else number, math.inf if above else number))
    )


def _solved(node: exp.Expr, ends: Range) -> Range:
    """Between which numbers x lies where an expression of it does, or a little beyond."""
    node, (low, high) = node.unnest(), ends
    if isinstance(node, exp.Column):
        return ends
    if isinstance(node, exp.Neg):
        return _solved(node.this, (-high, -low))
    if isinstance(node, exp.Abs):
        return _solved(node.this, (-high, high))
    if isinstance(node, _ROUNDING):
        kind = node.to.this.name if isinstance(node, exp.Cast | exp.TryCast) else "INT"
        plain_ = kind in _NUMBERS and not node.args.get("decimals")
        return _solved(node.this, (low - 1, high + 1)) if plain_ else _EVERYTHING
    if not isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.IntDiv):
        return _EVERYTHING
    inner, by = node.this, _number(node.expression)
    if by is None:
        inner, by = node.expression, _number(node.this)
        if by is None or isinstance(node, exp.Div | exp.IntDiv):
            return _EVERYTHING
        if isinstance(node, exp.Sub):
            return _solved(inner, (by - high, by - low))
    if isinstance(node, exp.Add | exp.Sub):
        more = -by if isinstance(node, exp.Add) else by
        return _solved(inner, (low + more, high + more))
    if by == 0:
        return _EVERYTHING
    if isinstance(node, exp.IntDiv):  # which may round towards 0
        low, high = low - 1, high + 1
    least, most = sorted((low / by, high / by) if isinstance(node, exp.Mul) else (low * by, high * by))
    return _solved(inner, (least, most))


def _number(node: exp.Expr) -> Fraction | None:
    """A number that is written, exactly."""
    inner = node.unnest()
    if isinstance(inner, exp.Neg):
        value = _number(inner.this)
        return None if value is None else -value
    written = _WRITTEN.fullmatch(inner.name) if isinstance(inner, exp.Literal) and not inner.is_string else None
    return None if written is None else Fraction(inner.name)
