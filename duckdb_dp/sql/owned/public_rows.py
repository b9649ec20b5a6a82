"""Public rows that a LEFT JOIN keeps, though no protected row is joined with them: whether they change anything that is asked."""

from collections.abc import Iterable
from dataclasses import replace

from sqlglot import exp

from duckdb_dp.sql.owned import names
from duckdb_dp.sql.owned.relations import Item, Scope
from duckdb_dp.sql.owned.syntax import has_aggregate, outside_queries

STRICT = (
    exp.Column, exp.Identifier, exp.Literal, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Cast,
    exp.DataType,
)  # fmt: skip
"""What is NULL where a column in it is."""

COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In, exp.Like)
"""Conditions that do not hold where their first operand is NULL, or, of comparisons, their second one."""


def operands(node: exp.Expr) -> list[exp.Expr]:
    """What a condition does not hold for where it is NULL; nothing of others than comparisons."""
    if not isinstance(node, COMPARED):
        return []
    return [node.this, node.expression] if isinstance(node, exp.Binary) else [node.this]


def join(scope: Scope, select: exp.Select, keys: Iterable[exp.Expr]) -> None:
    """Read a LEFT JOIN from public rows to protected ones as an inner one, where that answers the same.

    A public row without a protected one would be there or not because of many units. It does not matter where conditions leave it
    out, or where no aggregate has a value of it, as `count(r.rating)` by columns of the public tables: groups without rows are
    returned anyway.

    Args:
        scope: of the SELECT, whose FROM has been read.
        select: it.
        keys: what it groups by, as it is written.
    """
    items = scope.joined.items
    for place, item in enumerate(items):
        if item.relation.owned:
            missing, before = {one.alias for one in items[place:] if one.join}, {one.alias for one in items[:place]}
            if item.join == "LEFT" and (
                _left_out(scope, item) or (_by_columns_of(before, scope, keys) and _nothing_of(missing, scope, select))
            ):
                scope.joined.conditions += item.on
                item.join, item.on = "", []
            return


def _left_out(scope: Scope, item: Item) -> bool:
    """Whether the conditions of inner joins and of WHERE leave out rows in which a table's columns are NULL."""
    return any(
        _of({item.alias}, side) for one in scope.joined.conditions for side in operands(_resolved(one.node, one.scope))
    )


def _by_columns_of(tables: set[str], scope: Scope, keys: Iterable[exp.Expr]) -> bool:
    """Whether groups are of columns of some tables."""
    columns = (column for key in keys for column in _resolved(key, scope).find_all(exp.Column))
    return all(column.table in tables for column in columns)


def _nothing_of(missing: set[str], scope: Scope, select: exp.Select) -> bool:
    """Whether no aggregate has a value of a row in which the columns of some tables are NULL."""
    parts = [one for word in ("having", "order") if (one := select.args.get(word)) is not None]
    found = [one for part in (*select.expressions, *parts) for one in outside_queries(part)]
    aggregates = [_resolved(one, scope) for one in found if isinstance(one, exp.AggFunc)]
    return bool(aggregates) and all(_skips(missing, one) for one in aggregates)


def _skips(missing: set[str], aggregate: exp.Expr) -> bool:
    value = aggregate.this
    if isinstance(value, exp.Distinct):
        return bool(value.expressions) and all(_of(missing, one) for one in value.expressions)
    if isinstance(aggregate, exp.CountIf):
        return any(_of(missing, side) for side in operands(value.unnest()))
    if isinstance(aggregate, exp.Sum) and isinstance(inner := value.unnest(), exp.Case | exp.Coalesce):
        return _adds_nothing(missing, inner)
    return isinstance(value, exp.Expr) and not aggregate.expressions and _of(missing, value)


def _adds_nothing(missing: set[str], value: exp.Case | exp.Coalesce) -> bool:
    """Whether what is summed is NULL or 0 where the columns of some tables are NULL."""
    if isinstance(value, exp.Coalesce):
        return _of(missing, value.this) and all(map(_is_0, value.expressions))
    ifs, other = value.args["ifs"], value.args.get("default")
    never = value.this is None and all(any(_of(missing, side) for side in operands(one.this.unnest())) for one in ifs)
    return never and (other is None or _is_0(other))


def _is_0(node: exp.Expr) -> bool:
    inner = node.unnest()
    number = isinstance(inner, exp.Literal) and not inner.is_string
    return isinstance(inner, exp.Null) or (number and float(inner.name) == 0)


def _of(missing: set[str], value: exp.Expr) -> bool:
    """Whether a resolved expression is NULL where the columns of some tables are."""
    strict = all(isinstance(one, STRICT) for one in value.walk())
    return strict and any(column.table in missing for column in value.find_all(exp.Column))


def _resolved(node: exp.Expr, scope: Scope | None) -> exp.Expr:
    """An expression over the columns of items, where no subquery is in it; it is one already without a scope."""
    if scope is None or node.find(exp.Query):
        return node.unnest()

    def alias(name: str) -> exp.Expr | None:
        found = None if has_aggregate(scope.aliases.get(name, exp.Null())) else scope.aliases.get(name)
        return None if found is None else exp.paren(_resolved(found, replace(scope, aliases={})))

    def one(inner: exp.Expr) -> exp.Expr:
        return names.column(inner, scope, alias) if isinstance(inner, exp.Column) else inner

    return node.transform(one).unnest()
