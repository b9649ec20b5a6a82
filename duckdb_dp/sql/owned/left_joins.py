"""LEFT JOINs of which conditions leave out the rows that have none of the table: they are inner joins, whose rows are the same."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import duckdb
from sqlglot import exp

from duckdb_dp.errors import DPError
from duckdb_dp.sql.owned.public_rows import STRICT, operands
from duckdb_dp.sql.owned.relations import Condition, Item, Joined
from duckdb_dp.sql.same_conditions import form
from duckdb_dp.sql.typed import alone, nulls

if TYPE_CHECKING:
    from duckdb_dp.sql.owned.compiler import Compiler  # for types: it reads joins


def as_inner(compiler: "Compiler", joined: Joined) -> None:
    """Read such LEFT JOINs as inner ones.

    Args:
        compiler: knows columns.
        joined: FROM, and WHERE as it is written.
    """
    if form() < 8 or compiler.as_written or not any(item.join for item in joined.items):
        return
    if any(item.join == "FULL" for item in joined.items):
        return
    from duckdb_dp.sql.owned.joins import Settling  # for import time: it counts rows by the module beside this one

    settling = Settling(compiler, joined)
    settling.resolve_plain()
    while (item := _left_out(compiler, joined.items, joined.conditions)) is not None:
        joined.conditions += item.on
        item.join, item.on, item.left = "", [], True
        settling.resolve_plain()


def there(compiler: "Compiler", joined: Joined, item: Item) -> Joined:
    """The rows of a FROM, whose conditions are resolved, that have one of an item's table, by inner joins where they are such."""
    items, conditions = [*joined.items], [*joined.conditions]
    found: Item | None = item
    while found is not None and not any(one.join == "FULL" for one in items):
        conditions += found.on
        items = [replace(one, join="", on=[]) if one.alias == found.alias else one for one in items]
        found = _left_out(compiler, items, conditions)
    return replace(joined, items=items, conditions=conditions)


def _left_out(compiler: "Compiler", items: Sequence[Item], conditions: Sequence[Condition]) -> Item | None:
    """A table of a LEFT JOIN whose columns conditions do not allow to be NULL in all of a row."""
    nodes = [one.node for one in conditions if one.scope is None]
    left = (item for item in items if item.join == "LEFT")
    return next((item for item in left if any(_rejects(compiler, node.unnest(), item.alias) for node in nodes)), None)


def _rejects(compiler: "Compiler", node: exp.Expr, alias: str) -> bool:
    """Whether a condition does not hold where all columns of a table are NULL."""
    columns = [*node.find_all(exp.Column)]
    if all(column.table != alias for column in columns):
        return False
    if isinstance(node, exp.And):
        return any(_rejects(compiler, side.unnest(), alias) for side in (node.this, node.expression))
    if isinstance(node, exp.Or):
        return all(_rejects(compiler, side.unnest(), alias) for side in (node.this, node.expression))
    if all(column.table == alias for column in columns):
        return _is_false_of_nulls(compiler, node)
    inner = node.this.unnest() if isinstance(node, exp.Not) else node
    return any(_is_null(side, alias) for side in operands(inner))


def _is_null(value: exp.Expr, alias: str) -> bool:
    """Whether a value is NULL where all columns of a table are."""
    strict = all(isinstance(one, STRICT) for one in value.walk())
    return strict and any(column.table == alias for column in value.find_all(exp.Column))


def _is_false_of_nulls(compiler: "Compiler", node: exp.Expr) -> bool:
    """The same of a condition that reads nothing else, by what DuckDB says of it as it is emitted."""
    columns = [*dict.fromkeys(column for column in node.find_all(exp.Column))]
    names = {column.sql("duckdb"): f"x{i}" for i, column in enumerate(columns)}
    row = nulls({f"x{i}": compiler.type_of(column) for i, column in enumerate(columns)})

    def one(inner: exp.Expr) -> exp.Expr:
        return exp.column(names[inner.sql("duckdb")]) if isinstance(inner, exp.Column) else inner

    try:
        sql = compiler.condition(node.copy()).transform(one)
        with alone() as connection:
            return connection.execute(f"SELECT ({sql.sql('duckdb')}) IS NOT TRUE {row}").fetchall() == [(True,)]
    except (duckdb.Error, DPError):  # which is said where the condition is emitted
        return False
