"""What TRY does not catch: DuckDB's internal errors, and what it has not implemented for a value. Expressions that have neither.

Found by trying all allowed expressions on extreme values of all types, as tests/privacy/test_what_try_catches.py does for each version.
"""

import re

from sqlglot import exp

UNITS = {
    "MILLENNIUM", "CENTURY", "DECADE", "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND",
    "MICROSECOND", "DOW", "ISODOW", "DOY", "DAYOFWEEK", "DAYOFYEAR", "ISOYEAR", "WEEKDAY", "YEARWEEK", "EPOCH", "ERA",
}  # fmt: skip
"""Parts of dates and times."""

_FIRST = {"3": "-9223372022400000", "6": "-9223372022400000000"}
"""The first moment, in so many digits of seconds: of earlier ones DuckDB makes timestamps, of which it cannot make a text."""

_BETWEEN = UNITS - {"ERA"}
"""Units in which DuckDB tells how far two moments are apart."""

_OF_DATES = {"WEEK", "DOW", "ISODOW", "DOY", "DAYOFWEEK", "DAYOFYEAR", "ISOYEAR", "WEEKDAY", "YEARWEEK", "ERA"}
"""Parts that only dates and moments have: no TIME, and no INTERVAL."""

_PARTS_OF_DATES = (exp.Week, exp.WeekOfYear, exp.DayOfWeek, exp.DayOfWeekIso, exp.DayOfYear)

_OF_TIMES = {"HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"}
"""Units in which DuckDB tells how far two TIMEs are apart."""


def caught(node: exp.Expr) -> exp.Expr | None:
    """An expression of which TRY catches all that a value may make fail: the same, or NULL where that would not be caught.

    None of one whose text alone would have to say what a row says here: a part of dates, or a width.
    """
    if isinstance(node, exp.Escape):
        return node if _escapes(node) else None
    if isinstance(node, exp.DateTrunc | exp.TimestampTrunc):
        return node if node.text("unit").upper() != "ERA" else None
    if isinstance(node, exp.UnixToTime):
        node.set("this", _from(node.this, _FIRST[node.args["scale"].name]))
    elif isinstance(node, exp.Anonymous) and node.name.lower() == "make_timestamp_ms":
        node.set("expressions", [_from(node.expressions[0], _FIRST["3"]), *node.expressions[1:]])
    elif isinstance(node, exp.DateBin):
        return node if _is_width(node.this) else None
    elif isinstance(node, exp.Extract):
        node.set("expression", _dated(node.name, node.expression))
    elif isinstance(node, _PARTS_OF_DATES):
        node.set("this", _dated("WEEK", node.this))
    elif isinstance(node, exp.Anonymous) and node.name.upper() in _OF_DATES:
        node.set("expressions", [_dated(node.name, one) for one in node.expressions])
    elif isinstance(node, exp.DateDiff):
        if not isinstance(node.args.get("unit"), exp.Var) or node.text("unit").upper() not in _BETWEEN:
            return None
        if node.text("unit").upper() not in _OF_TIMES:
            node.set("this", _moment(node.this))
            node.set("expression", _moment(node.expression))
    elif isinstance(node, exp.Anonymous) and node.name.lower() in ("date_sub", "datesub", "date_part", "datepart"):
        unit, *ends = node.expressions or [None]
        between = node.name.lower().endswith("sub")
        if not isinstance(unit, exp.Literal) or unit.name.upper() not in (_BETWEEN if between else UNITS):
            return None
        coarse = between and unit.name.upper() not in _OF_TIMES
        node.set("expressions", [unit, *(_moment(end) if coarse else _dated(unit.name, end) for end in ends)])
    return node


def dated(node: exp.Expr) -> exp.Expr | None:
    """What a node asks a part of that only dates and moments have: of an INTERVAL that fails, and TRY lets it through."""
    asked: exp.Expr | None = None
    if isinstance(node, exp.Extract) and node.name.upper() in _OF_DATES:
        asked = node.expression
    elif isinstance(node, _PARTS_OF_DATES):
        asked = node.this
    if isinstance(node, exp.Anonymous) and node.expressions:
        first = node.expressions[0]
        by_name = node.name.lower() in ("date_part", "datepart")
        if (first.name if by_name else node.name).upper() in _OF_DATES:
            asked = node.expressions[-1]
    return asked


def _escapes(node: exp.Escape) -> bool:
    """Whether a pattern and its sign of escape are written out, and fit: DuckDB's errors of them are of syntax, which TRY lets through."""
    pattern, sign = node.this.args.get("expression"), node.expression
    if not isinstance(node.this, exp.Like | exp.ILike):
        return False
    if not all(isinstance(one, exp.Literal) and one.is_string for one in (pattern, sign)) or len(sign.name) != 1:
        return False
    return not (re.sub(f"{re.escape(sign.name)}.", "", pattern.name, flags=re.DOTALL)).endswith(sign.name)


def _dated(part: str, value: exp.Expr) -> exp.Expr:
    """A value of which a part is asked: a date or moment where the part is one of these alone, and the value may be something else."""
    if part.upper() not in _OF_DATES:
        return value
    return _moment(value) if part.upper() in ("ISOYEAR", "ERA") or value.find(exp.Sub, exp.Interval) else value


def _from(value: exp.Expr, first: str) -> exp.Expr:
    """A number; NULL below the first one."""
    if isinstance(value, exp.Literal):
        return value
    low = exp.Neg(this=exp.Literal.number(first[1:]))
    return exp.Case(ifs=[exp.If(this=exp.GTE(this=exp.paren(value.copy()), expression=low), true=value)])


def _moment(value: exp.Expr) -> exp.Expr:
    """A date or timestamp, and no TIME."""
    if isinstance(value, exp.Cast | exp.TryCast) and value.to.this.name.startswith(("DATE", "TIMESTAMP")):
        return value
    return exp.cast(value, "TIMESTAMP", dialect="duckdb")


def _is_width(node: exp.Expr) -> bool:
    """Whether it is an interval that is written as a number above 0 and a unit."""
    amount = node.this if isinstance(node, exp.Interval) else None
    return (
        isinstance(amount, exp.Literal) and re.fullmatch(r"\d{1,6}", amount.name) is not None and int(amount.name) > 0
    )
