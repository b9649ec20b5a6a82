"""Expressions without columns, such as DATE '1994-01-01' + INTERVAL 1 YEAR, as the literals that they are worth.

A comparison with a literal of the column's own kind cannot fail, and DuckDB compares it where rows are read.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import duckdb
from sqlglot import exp, parse_one

from duckdb_dp.sql.typed import alone

COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In)
_PARTS = (exp.Literal, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Cast, exp.Interval, exp.DataType, exp.Var)
_OPERATIONS = (exp.Add, exp.Sub, exp.Mul, exp.Paren)
_EXACT = re.compile(r"DECIMAL\(\d+,\d+\)|(TINY|SMALL|BIG)?INT(EGER)?")
_DAY = re.compile(r"(\d{4}-\d{2}-\d{2})( 00:00:00)?")


def compared(node: exp.Expr, type_of: Callable[[exp.Column], str]) -> exp.Expr:
    """A comparison of a column with sides that are worked out; of a DATE with midnight as a date, which compares alike.

    Args:
        node: any expression; only comparisons change.
        type_of: the type of a column.
    """
    if not isinstance(node, COMPARED):
        return node
    columns = [side for side in _sides(node) if isinstance(side, exp.Column)]
    if not columns or not any(isinstance(side, _OPERATIONS) for side in _sides(node)):
        return node
    dates = all(type_of(column) == "DATE" for column in columns)
    found = node.copy()
    for side in _sides(found):
        if isinstance(side, _OPERATIONS) and all(isinstance(part, _PARTS) for part in side.walk()):
            value = _literal(side.sql("duckdb"), dates=dates)
            if value is not None:
                side.replace(parse_one(value, dialect="duckdb"))
    return found


def _sides(node: exp.Expr) -> list[exp.Expr]:
    found: list[Any] = []
    for word in ("this", "expression", "low", "high", "expressions"):
        part = node.args.get(word)
        found += part if isinstance(part, list) else [part]
    return [side for side in found if isinstance(side, exp.Expr)]


def worth(node: exp.Expr) -> float | None:
    """The number that an expression without columns is worth; None where it is none."""
    return _number(node.sql("duckdb")) if all(isinstance(part, (*_PARTS, exp.Div)) for part in node.walk()) else None


@lru_cache(maxsize=4096)
def _number(text: str) -> float | None:
    try:
        with alone() as connection:
            row = connection.execute(f"SELECT TRY_CAST(({text}) AS DOUBLE)").fetchone()
    except duckdb.Error:
        return None  # which is said where the expression is read
    return None if row is None else row[0]


@lru_cache(maxsize=4096)
def _literal(text: str, *, dates: bool) -> str | None:
    """SQL of its value, where that is an exact number, or a day where days are compared."""
    try:
        with alone() as connection:
            row = connection.execute(f"SELECT typeof(x), x::VARCHAR FROM (SELECT ({text}) AS x)").fetchone()
    except duckdb.Error:
        return None  # which is said where the expression is read
    if row is None or row[1] is None:
        return None
    type_, value = row
    day = _DAY.fullmatch(value)
    if dates and day is not None and type_ in ("DATE", "TIMESTAMP"):
        return f"CAST('{day[1]}' AS DATE)"
    return value if _EXACT.fullmatch(type_) and re.fullmatch(r"-?[\d.]+", value) else None
