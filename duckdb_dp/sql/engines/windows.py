"""Windows of the rows of one unit, as every engine has them: row_number, rank, lag, lead, first_value and aggregates.

The order of rows is that of ORDER BY, and where rows are equal in it that of all that is read, column by column: texts by their bytes,
numbers by their size. DuckDB orders doubles there by their texts; either is an order of the unit's own rows alone.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

from sqlglot import exp

from duckdb_dp.counting.engines.expressions import by_bytes
from duckdb_dp.sql.engines.aggregates import Aggregates
from duckdb_dp.sql.engines.values import Value

READ = (
    "row_number, rank, dense_rank, lag, lead, first_value, and count, min, max, sum and avg of whole numbers are; or copy the tables to "
    "DuckDB."
)
"""What is read."""

_PLACES: dict[type[exp.Expr], str] = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}
_OTHER_ROWS = (exp.Lag, exp.Lead, exp.FirstValue)


@final
class Windows:
    """The windows of one SELECT.

    Args:
        value: what reads an expression of a row.
        aggregates: what reads aggregates.
    """

    def __init__(self, value: Callable[[exp.Expr], Value], aggregates: Aggregates) -> None:
        self._value, self._aggregates = value, aggregates

    def read(self, node: exp.Window) -> Value | None:
        """A window; None of one that engines may work out in another way than DuckDB."""
        import ibis

        order = node.args.get("order")
        items = [] if order is None else [self._key(one) for one in order.expressions]
        by = [one for key in node.args.get("partition_by") or () for one in _told_apart(self._value(key).ibis)]
        if node.args.get("spec") is not None or any(item is None for item in items):
            return None
        # Each once: of two items of one expression Ibis keeps the last.
        sorted_by: dict[Any, Any] = {}
        for column, key in (pair for item in items for pair in item or ()):
            sorted_by.setdefault(column.op(), key)
        keys = list(sorted_by.values())
        window, function = ibis.window(group_by=by or None, order_by=keys or None), node.this
        if type(function) in _PLACES:
            place = getattr(ibis, _PLACES[type(function)])()
            return Value(ibis=place.over(window) + 1, type="BIGINT")
        if isinstance(function, _OTHER_ROWS):
            return self._other_row(function, window)
        found = self._aggregates.read(function)
        if found is None or isinstance(function, exp.Anonymous):
            return None
        if keys:  # up to the rows that are equal in the order
            window = ibis.range_window(following=0, group_by=by or None, order_by=keys)
        return replace(found, ibis=found.ibis.over(window))

    def _other_row(self, node: exp.Expr, window: Any) -> Value | None:
        """The value of another row."""
        import ibis

        value, further = self._value(node.this), node.args.get("offset")
        if not value.given or node.args.get("default") is not None:
            return None
        if isinstance(node, exp.FirstValue):
            held = ibis.struct({"value": value.ibis})  # as Ibis leaves out NULLs in Spark
            return replace(value, ibis=held.first().over(window)["value"])
        if further is not None and not (isinstance(further, exp.Literal) and further.name.isdecimal()):
            return None
        offset = 1 if further is None else int(further.name)
        found = value.ibis.lag(offset) if isinstance(node, exp.Lag) else value.ibis.lead(offset)
        return replace(value, ibis=found.over(window))

    def _key(self, item: exp.Expr) -> list[tuple[Any, Any]] | None:
        """An item of ORDER BY: columns, and these with their direction."""
        node = item.this if isinstance(item, exp.Ordered) else item
        if isinstance(node, exp.Encode):  # which tells values apart that are equal, or that no order is asked of
            node = node.this.this if isinstance(node.this, exp.Cast) else node.this
        value = self._value(node)
        if not value.given:
            return None
        down = isinstance(item, exp.Ordered) and bool(item.args.get("desc"))
        columns = _told_apart(value.ibis)
        return [(one, one.desc(nulls_first=False) if down else one.asc(nulls_first=False)) for one in columns]


def _told_apart(column: Any) -> list[Any]:
    """A column, and of texts what tells those apart that a collation of the engine makes equal."""
    return [column, by_bytes(column)] if column.type().is_string() else [column]
