"""SQL expressions over the columns of one row: which are allowed.

An expression may use the syntax and the functions listed here and nothing else: they depend on the row alone, and give the
same value each time. What can fail is evaluated inside DuckDB's TRY by the callers, so a private value never raises an error.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from sqlglot import exp

from duckdb_dp.domain.try_catches import UNITS, caught
from duckdb_dp.errors import DPError, UnknownColumn, as_sql, brief, meant

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
    "for the time of today write a literal, such as DATE '2025-01-01'",
    "age": "for an age in whole years write date_sub('year', born, DATE '2025-01-01'), and for seconds between moments epoch(b - a)",
    "levenshtein editdist3 damerau_levenshtein jaro_similarity jaro_winkler_similarity hamming mismatches": ""
    "it takes a time that a row decides; compare with LIKE, or with the first letters: left(x, 3) = 'abc'",
    "width_bucket equi_width_bins": "for bins write floor(x / 10) * 10",
    "row": "name each column: GROUP BY a, b; ON a = x AND b = y; in place of count(DISTINCT (a, b)) SELECT count(*) FROM (SELECT DISTINCT "
    "a, b FROM ...)",
    "random gen_random_uuid uuid": "the answer must be the same when it is asked again",
    "list_value array_agg unnest list": "ask of columns that hold one value in a row",
}
"""What to write instead, by the names of functions."""
