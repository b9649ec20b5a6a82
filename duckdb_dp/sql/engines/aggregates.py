"""Aggregates in subqueries by unit, as every engine has them: in any order of the rows, and of doubles in the order of their size."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

from sqlglot import exp

from duckdb_dp.counting.engines.expressions import by_bytes, is_null
from duckdb_dp.sql.engines.values import SMALL, TOTAL, Value

READ = (
    "count(*), count(x), count(DISTINCT x) of no doubles, min and max of whole numbers and dates, sums and averages of INTEGER and DOUBLE, "
    "and sums of DECIMAL are: write CAST(x AS INTEGER), or AS DOUBLE; or copy the tables to DuckDB."
)
"""What is read."""

_ORDERED = SMALL | {"BIGINT", "DATE"}
"""Types of which all engines have the same smallest value."""

LARGEST = 1.7976931348623157e308
"""The largest DOUBLE that is finite."""

_EXACT = 18
"""Decimals of so many digits have sums that no number of rows overflows."""


@final
class Aggregates:
    """The aggregates of the rows of one GROUP BY.

    Args:
        rows: how many there are, as an expression of a group.
        value: what reads an expression of a row.
        condition: what reads a condition of a row.
    """

    def __init__(
        self, rows: Callable[[Any], Any], value: Callable[[exp.Expr], Value], condition: Callable[[exp.Expr], Value]
    ) -> None:
        self._rows, self._value, self._condition = rows, value, condition

    def read(self, node: exp.Expr) -> Value | None:
        """An aggregate; None of one that engines may work out in another way than DuckDB."""
        import ibis

        kept = None
        if isinstance(node, exp.Filter):
            kept = ibis.coalesce(self._condition(node.expression.this).ibis, ibis.literal(False))
            node = node.this
        if isinstance(node, exp.Anonymous):
            return self._of_doubles(node)
        if getattr(node, "expressions", None) or not isinstance(
            node, exp.Count | exp.Min | exp.Max | exp.Sum | exp.Avg
        ):
            return None
        if isinstance(node, exp.Count):
            return self._count(node.this, kept)
        if isinstance(node.this, exp.Distinct):
            return None
        value = self._value(node.this)
        if not value.given:
            return None
        x = value.ibis if kept is None else ibis.ifelse(kept, value.ibis, ibis.null(value.ibis.type()))
        if isinstance(node, exp.Min | exp.Max):
            found = x.min() if isinstance(node, exp.Min) else x.max()
            return replace(value, ibis=found) if value.type in _ORDERED else None
        if isinstance(node, exp.Sum) and 0 < value.digits <= _EXACT:
            return Value(ibis=x.sum(), type=f"DECIMAL(38,{value.type.partition(',')[2].strip(' )')})")
        if value.type not in SMALL:
            return None
        total = x.cast("int64").sum()
        if isinstance(node, exp.Sum):
            return Value(ibis=total, type=TOTAL)
        return Value(ibis=total.cast("float64") / x.count().nullif(0).cast("float64"), type="DOUBLE")

    def _count(self, of: exp.Expr, kept: Any) -> Value | None:
        if isinstance(of, exp.Star):
            return Value(ibis=self._rows(kept), type="BIGINT")
        distinct = isinstance(of, exp.Distinct)
        if distinct and len(of.expressions) != 1:
            return None
        value = self._value(of.expressions[0] if distinct else of)
        if not distinct:
            known = ~is_null(value.ibis)
            return Value(ibis=self._rows(known if kept is None else kept & known), type="BIGINT")
        if not value.given or value.type in ("FLOAT", "DOUBLE"):
            return None
        import ibis

        x = by_bytes(value.ibis) if value.type == "VARCHAR" else value.ibis
        x = x if kept is None else ibis.ifelse(kept, x, ibis.null(x.type()))
        return Value(ibis=x.nunique(), type="BIGINT")

    def _of_doubles(self, node: exp.Anonymous) -> Value | None:
        """A sum or an average of finite numbers, within +-1e100, added in the order of their size."""
        import ibis

        name, case = of_list(node), node.find(exp.Case)
        column = None if case is None else case.find(exp.Column)
        if name not in ("sum", "avg") or column is None:
            return None
        kept, value = node.find(exp.Filter), self._value(column)
        if not value.number or value.rounded:
            return None
        x, none = value.real, ibis.null("float64")
        finite = ~is_null(x) & ibis.coalesce(~x.isnan() & (x.abs() <= LARGEST), ibis.literal(False))
        if kept is not None:
            finite = finite & ibis.coalesce(self._condition(kept.expression.this).ibis, ibis.literal(False))
        held = ibis.greatest(ibis.least(x, ibis.literal(1e100)), ibis.literal(-1e100))
        x = ibis.ifelse(finite, ibis.ifelse(x == 0, ibis.literal(0.0), held), none)  # of 0 and -0 one
        rows, total = x.count(), x.collect().sort().sums()
        found = total if name == "sum" else total / rows.nullif(0).cast("float64")
        return Value(ibis=ibis.ifelse(rows > 0, found, none), type="DOUBLE")


def of_list(node: exp.Anonymous) -> str:
    """The aggregate of a sorted list that ``owned`` writes for one of numbers; '' of another function."""
    last = node.expressions[-1] if node.name.lower() == "list_aggregate" else None
    return str(last.this) if isinstance(last, exp.Literal) else ""
