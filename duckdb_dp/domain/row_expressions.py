"""SQL expressions over the columns of one row: which are allowed, and between which bounds their values lie.

An expression may use the syntax and the functions listed here and nothing else: they depend on the row alone, and give the
same value each time. What can fail is evaluated inside DuckDB's TRY by the callers, so a private value never raises an error.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, final

from sqlglot import exp

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.try_catches import UNITS, caught
from duckdb_dp.domain.types import Moment, Truth
from duckdb_dp.errors import DPError, UnknownColumn, as_sql, brief, identifier, meant

Bounds = tuple[float, float]
"""The smallest and the largest value."""

_NODES: tuple[type[exp.Expr], ...] = (
    exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Neg, exp.Not, exp.And, exp.Or, exp.Add, exp.Sub, exp.Mul, exp.Div,
    exp.IntDiv, exp.Mod, exp.Pow, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.Case, exp.If, exp.Cast, exp.TryCast, exp.Coalesce, exp.Nullif,
    exp.Least, exp.Greatest, exp.Abs, exp.Round, exp.Floor, exp.Ceil, exp.Sign, exp.Sqrt, exp.Ln, exp.Exp, exp.DPipe,
    exp.Concat, exp.Lower, exp.Upper, exp.Length, exp.Trim, exp.Substring, exp.Left, exp.Right, exp.StartsWith,
    exp.Contains, exp.StrPosition, exp.RegexpLike, exp.Year, exp.Month, exp.Quarter, exp.Week, exp.Day, exp.DayOfWeek,
    exp.DayOfMonth, exp.DayOfYear, exp.Hour, exp.Minute, exp.Second, exp.Extract, exp.TimestampTrunc, exp.DateTrunc,
    exp.DateDiff, exp.Interval, exp.TimeToStr, exp.IsNan, exp.IsInf, exp.EndsWith, exp.Trunc, exp.DayOfWeekIso,
    exp.Dayname, exp.Monthname, exp.WeekOfYear, exp.RegexpReplace, exp.RegexpExtract, exp.RegexpFullMatch, exp.SplitPart, exp.Replace,
    exp.Pad, exp.Reverse, exp.Log, exp.Ascii, exp.Chr, exp.Translate, exp.ConcatWs, exp.TimeToUnix, exp.LastDay, exp.DateBin,
    exp.DateFromParts, exp.MD5, exp.Sin, exp.Cos, exp.Tan, exp.Asin, exp.Acos, exp.Atan, exp.Cbrt, exp.Degrees, exp.Radians, exp.Pi,
    exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.StrToTime, exp.SimilarTo, exp.Escape, exp.Glob, exp.UnixToTime,
    exp.AtTimeZone,
)  # fmt: skip
"""What an expression may be made of. None of these reads anything but its operands."""

NAMED = (
    "date_part", "datepart", "suffix", "prefix", "isfinite", "weekday", "yearweek", "isoyear", "decade", "century", "strlen", "bit_count",
    "date_sub", "datesub", "try_strptime", "jaccard", "hash", "make_timestamp_ms", "epoch_ms",
)  # fmt: skip
"""Functions that the parser has no node for; epoch_ms of a number has one."""

_ARGUMENTS = {
    "this", "expression", "expressions", "low", "high", "ifs", "default", "true", "false", "to", "unit", "decimals",
    "start", "length", "format", "position", "substr", "safe", "ignore_nulls", "coalesce", "negate", "date_part_boundary", "is_string",
    "replacement", "modifiers", "single_replace", "group", "null_if_pos_overflow", "delimiter", "part_index", "fill_pattern", "is_left",
    "from_", "year", "month", "day", "scale", "zone", "flag", "options", "parameters",
}  # fmt: skip
"""Parts of a node that leave its meaning as it is written; the parser notes what changes it in others."""

_TYPES = {
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "INT128", "UTINYINT", "USMALLINT", "UINT", "UBIGINT", "UINT128",
    "FLOAT", "DOUBLE", "DECIMAL", "TEXT", "VARCHAR", "DATE", "TIME", "TIMESTAMP",
    "TIMESTAMPNTZ", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS",
}  # fmt: skip
"""What a cast may make of a value, as sqlglot names it."""


def checked(node: exp.Expr, columns: Mapping[str, str]) -> exp.Expr:
    """The expression with each column as it is spelled in the table.

    Args:
        node: the expression.
        columns: lower-case name -> name.

    Raises:
        DPError: it uses something that is not allowed, or a column that the table has not.
    """
    if isinstance(node, exp.Column):
        return exp.column(exp.to_identifier(_column(node, columns), quoted=True))
    if isinstance(node, exp.Anonymous):
        if node.name.lower() not in NAMED:
            refuse(node)
    elif type(node) not in _NODES:
        refuse(node)
    if {name for name, value in node.args.items() if value} - _ARGUMENTS:
        refuse(node)
    if isinstance(node, exp.TimestampTrunc | exp.DateTrunc | exp.Extract) and _unit(node).upper() not in UNITS:
        refuse(node)
    if isinstance(node, exp.UnixToTime) and node.args.get("scale") is None:
        refuse(node)  # to_timestamp, whose parts depend on a time zone: make_timestamp and epoch_ms do not
    if isinstance(node, exp.AtTimeZone) and not (
        isinstance(node.args["zone"], exp.Literal) and node.args["zone"].is_string
    ):
        refuse(node)
    if isinstance(node, exp.Pad) and not re.fullmatch(r"\d{1,3}", node.expression.sql("duckdb")):
        refuse(node)  # a length that a row says might take all memory
    if isinstance(node, exp.Cast | exp.TryCast) and node.to.this.name not in _TYPES:
        refuse(node)
    found = _with_parts(node, lambda part: checked(part, columns))
    total = caught(found)
    if total is None:
        refuse(node)
    return total


def _with_parts(node: exp.Expr, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """A copy of a node with changed parts, which are not copied before: a copy of each part of a part takes quadratic time."""
    parts: dict[str, Any] = {}
    for name, value in node.args.items():
        if isinstance(value, exp.DataType | exp.Var):
            parts[name] = value.copy()
        elif isinstance(value, exp.Expr):
            parts[name] = change(value)
        else:
            parts[name] = [change(item) for item in value] if isinstance(value, list) else value
    found = type(node)(**parts)
    found.comments = node.comments and [*node.comments]
    found._meta = node._meta and {**node._meta}
    if node.type is not None:
        found.type = node.type
    return found


def _unit(node: exp.Expr) -> str:
    unit = node.this if isinstance(node, exp.Extract) else node.args.get("unit")
    return str(unit.name) if isinstance(unit, exp.Expr) else ""


def _column(node: exp.Column, columns: Mapping[str, str]) -> str:
    if node.name.lower() not in columns:
        close = difflib.get_close_matches(node.name.lower(), columns, n=1)
        meant = f" Did you mean {as_sql(columns[close[0]])}?" if close else ""
        raise UnknownColumn(node.name, columns.values(), meant)
    return columns[node.name.lower()]


def refuse(node: exp.Expr) -> NoReturn:
    """The refusal of an expression.

    Raises:
        DPError: always.
    """
    what, unit = brief(node.sql("duckdb")), _unit(node)
    named = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    if named in _NAMED_UNITS and node.expressions:
        unit = node.expressions[0].name if isinstance(node.expressions[0], exp.Literal) else ""
    of_units = isinstance(node, _OF_UNITS) or named in _NAMED_UNITS
    like = meant(sorted(one.lower() for one in UNITS), unit) if of_units and unit and unit.upper() not in UNITS else ""
    if like:  # where none is, it may be a column's name
        raise DPError(f"{what}: {as_sql(unit.lower())} is no part of a date or a time{like}.")
    raise DPError(
        f"{what} is not among what may be worked out of a row: columns, literals, arithmetic, comparisons, AND, OR, NOT, CASE, "
        f"casts, LIKE, and the usual functions of numbers, texts and dates, which docs/queries.md lists{_instead(node)}."
    )


def _instead(node: exp.Expr) -> str:
    """What to write in place of some functions that are often tried."""
    if isinstance(node, exp.Cast | exp.TryCast) and node.to.this.name == "TIMESTAMPTZ":
        return "; say in which zone a moment is read: ts AT TIME ZONE 'UTC' >= TIMESTAMP '2025-01-01'"
    if isinstance(node, exp.Tuple):
        return f"; {_ADVICE['row']}"
    name = (node.name if isinstance(node, exp.Anonymous) else node.sql("duckdb").partition("(")[0]).lower()
    return next((f"; {advice}" for names, advice in _ADVICE.items() if name.strip('"') in names.split()), "")


_OF_UNITS = (exp.TimestampTrunc, exp.DateTrunc, exp.Extract, exp.DateDiff)
_NAMED_UNITS = {"date_part", "datepart", "date_sub", "datesub", "datediff", "date_trunc", "datetrunc"}

_ADVICE = {
    "now current_date current_timestamp current_time localtimestamp localtime today get_current_timestamp transaction_timestamp": ""
    "for the time of today write a literal",
    "age": "for an age in whole years write date_sub('year', born, DATE '2025-01-01')",
    "levenshtein editdist3 damerau_levenshtein jaro_similarity jaro_winkler_similarity hamming mismatches": ""
    "it takes a time that a row decides; compare with LIKE, or with the first letters: left(x, 3) = 'abc'",
    "width_bucket equi_width_bins": "for bins write floor(x / 10) * 10",
    "row": "name each column: GROUP BY a, b; ON a = x AND b = y; in place of count(DISTINCT (a, b)) SELECT count(*) FROM (SELECT DISTINCT "
    "a, b FROM ...)",
    "random gen_random_uuid uuid": "the answer must be the same when it is asked again",
    "list_value array_agg unnest list": "ask of columns that hold one value in a row",
}
"""What to write instead, by the names of functions."""


@final
class Unbounded(DPError):  # noqa: N818  what it says of a number
    """Nothing bounds a number, so that one row may change a sum of it without a bound."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What bounds columns: their declarations, and the conditions that hold."""

    declared: Mapping[str, Attribute]
    limits: Mapping[str, Bounds]


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

    def note(name: str, low: float, high: float) -> None:
        before = found.get(name, (-math.inf, math.inf))
        found[name] = max(low, before[0]), min(high, before[1])

    for part in (part for condition in conditions for part in conjuncts(condition)):
        if isinstance(part, exp.Between) and isinstance(part.this, exp.Column):
            low, high = _number(part.args["low"]), _number(part.args["high"])
            note(part.this.name, -math.inf if low is None else low, math.inf if high is None else high)
        elif type(part) in _MIRRORED:
            kind, column, value = type(part), part.this.unnest(), _number(part.expression)
            if isinstance(part.expression, exp.Column):
                kind, column, value = _MIRRORED[type(part)], part.expression, _number(part.this)
            if value is not None and isinstance(column, exp.Column):
                low = value if kind in (exp.GT, exp.GTE, exp.EQ) else -math.inf
                note(column.name, low, value if kind in (exp.LT, exp.LTE, exp.EQ) else math.inf)
    return found


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


def between(node: exp.Expr, known: Mapping[str, Bounds], declared: Mapping[str, Attribute]) -> Bounds | None:
    """The same where it is known between which numbers columns lie."""
    found = _bounds(node, _Known(declared, known))
    return None if found is None or not all(map(math.isfinite, found)) else found


_BOUNDED = (
    exp.Nullif, exp.Neg, exp.Abs, exp.Floor, exp.Ceil, exp.Round, exp.Cast, exp.TryCast, exp.Sqrt, exp.Add, exp.Sub, exp.Mul,
    exp.Div,
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
        exact = node.to.this.name in ("DOUBLE", "DECIMAL", "FLOAT")
        return one if exact else (math.floor(one[0]), math.ceil(one[1]))
    if isinstance(node, exp.Sqrt) and one[0] >= 0:
        return math.sqrt(one[0]), math.sqrt(one[1])
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div):
        return _arithmetic(node, one, _bounds(node.expression, known))
    return None


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
        raise DPError(
            f"{as_sql(node.name)} is {attribute.type}, and only numbers have a sum or an average; ask count(*) and GROUP BY "
            f"{identifier(node.name)}, or make it a number by TRY_CAST."
        )
    if not (math.isfinite(low) and math.isfinite(high)):  # an interval that is written is meant, beyond the domain too
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
    attribute = known.declared.get(node.name) if isinstance(node, exp.Column) else None
    if attribute is None or not isinstance(attribute.dtype, Moment) or attribute.dtype.name == "TIME":
        return None
    years = [int(str(point)[:4]) for point in (attribute.points[0], attribute.points[-1])]
    return float(min(years)), float(max(years))
