"""Between which ends a value lies where conditions hold, whatever is declared: the honest ends of the cells of its quantiles."""

import math
from collections.abc import Iterator, Sequence

import duckdb
from sqlglot import exp

from duckdb_dp.domain.expression_bounds import Bounds, between, bounds, conjuncts
from duckdb_dp.domain.types import ColumnType
from duckdb_dp.errors import DPError
from duckdb_dp.sql.typed import alone
from duckdb_dp.sql.worked_out import parts, range_of, with_x

_TURNED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.EQ: exp.EQ,
}  # fmt: skip


def numbers(value: exp.Expr, conditions: Sequence[exp.Expr]) -> Bounds:
    """Between which numbers an expression lies, as conditions on it, on a part of it that has all its columns, or on its columns say.

    Args:
        value: a checked expression of numbers.
        conditions: checked conditions, all of which hold.
    """
    low, high = -math.inf, math.inf
    for part in parts(value):
        ends = range_of(part, conditions)
        least, most = float(ends[0]), float(ends[1])
        shown = with_x(part, value)
        if isinstance(shown, exp.Column):
            found: Bounds | None = (least, most)
        elif shown is None or not (math.isfinite(least) and math.isfinite(most)):
            continue
        else:
            found = _worked_out(shown, {"x": (min(least, most), max(least, most))})
        if found is not None:
            low, high = max(low, found[0]), min(high, found[1])
    try:
        columns = bounds(value, {}, conditions)
    except DPError:
        columns = None  # nothing bounds one of them
    return (low, high) if columns is None else (max(low, columns[0]), min(high, columns[1]))


def _worked_out(shown: exp.Expr, known: dict[str, Bounds]) -> Bounds | None:
    try:
        return between(shown, known, {})
    except DPError:
        return None


def moments(value: exp.Expr, dtype: ColumnType, conditions: Sequence[exp.Expr]) -> tuple[str | None, str | None]:
    """Between which dates or times an expression lies, as far as conditions compare that very expression with literals.

    Args:
        value: a checked expression of dates or times.
        dtype: its type.
        conditions: checked conditions, all of which hold.
    """
    compared = [*_compared(value.unnest().sql("duckdb"), conditions)]
    lows = [text for kind, text in compared if kind in (exp.GT, exp.GTE, exp.EQ)]
    highs = [text for kind, text in compared if kind in (exp.LT, exp.LTE, exp.EQ)]
    first, last = ("greatest", lows), ("least", highs)
    return _moment(*first, dtype), _moment(*last, dtype)


def _moment(chosen: str, texts: Sequence[str], dtype: ColumnType) -> str | None:
    if not texts:
        return None
    cast = ", ".join(f"TRY_CAST({text} AS {dtype.name})" for text in texts)
    try:
        with alone() as connection:
            found = connection.execute(f"SELECT CAST({chosen}({cast}) AS VARCHAR)").fetchall()[0][0]
    except duckdb.Error:
        return None
    return found if found is not None and dtype.fits(found, edge=True) else None


def _compared(text: str, conditions: Sequence[exp.Expr]) -> Iterator[tuple[type[exp.Expr], str]]:
    """How, and with which literal, conditions compare an expression."""
    for node in (part for condition in conditions for part in conjuncts(condition)):
        if (
            isinstance(node, exp.Between)
            and not node.args.get("symmetric")
            and node.this.unnest().sql("duckdb") == text
        ):
            pairs: list[tuple[type[exp.Expr], exp.Expr]] = [(exp.GTE, node.args["low"]), (exp.LTE, node.args["high"])]
        elif type(node) in _TURNED and node.this.unnest().sql("duckdb") == text:
            pairs = [(type(node), node.expression)]
        elif type(node) in _TURNED and node.expression.unnest().sql("duckdb") == text:
            pairs = [(_TURNED[type(node)], node.this)]
        else:
            continue
        for kind, end in pairs:
            inner = end.unnest()
            literal = inner.this if isinstance(inner, exp.Cast) else inner
            if isinstance(literal, exp.Literal) and literal.is_string:
                yield kind, inner.sql("duckdb")
