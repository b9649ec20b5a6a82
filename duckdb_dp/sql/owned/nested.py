"""Subqueries in expressions: EXISTS, IN, and single values; of protected rows they read those of the same owner only."""

from typing import TYPE_CHECKING

from sqlglot import exp

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.sql import computed_groups
from duckdb_dp.sql.any_row import counted_instead
from duckdb_dp.sql.owned.first_rows import of_each
from duckdb_dp.sql.owned.joins import Settling
from duckdb_dp.sql.owned.relations import Condition, Joined, Scope, atom
from duckdb_dp.sql.owned.syntax import has_aggregate, plain, refuse
from duckdb_dp.sql.owned.totals import comparable, kind

if TYPE_CHECKING:
    from duckdb_dp.sql.owned.compiler import Compiler  # for types: it reads expressions, which have subqueries


def value(compiler: "Compiler", node: exp.Expr, scope: Scope, *, condition: bool) -> exp.Expr | None:
    """What stands for a subquery; None for a node that is none.

    Args:
        compiler: compiles what the subquery reads.
        node: the node, in the expression that it is a part of.
        scope: where it stands.
        condition: whether the whole expression is a condition, of which NULL is false.

    Raises:
        DPError: it reads rows of other owners, or is not understood.
    """
    if isinstance(node, exp.Exists):
        return _exists(compiler, node.this, scope)
    if isinstance(node, exp.In) and node.args.get("query") is not None:
        return _in(compiler, node, scope, positive=condition and _positive(node))
    if isinstance(node, exp.Any | exp.All) and node.find(exp.Query):
        refuse(node, "compares with many rows; write EXISTS, or IN (SELECT ...)")
    if isinstance(node, exp.Subquery | exp.Query):
        return _single(compiler, node, scope)
    return None


def without_null(compiler: "Compiler", value: exp.Expr, values: Attribute) -> Attribute:
    """The values of an expression with subqueries, without NULL where none of them is ever NULL: EXISTS, and counts."""

    def never(column: exp.Column) -> bool:
        if column.table:
            return not _nullable(compiler, column)
        found = compiler.values[column.name][0]
        select = found.unnest()
        counted = isinstance(select, exp.Select) and isinstance(
            select.expressions[0].unalias(), exp.Count | exp.CountIf
        )
        return isinstance(found, exp.Exists) or counted

    known = all(map(never, value.find_all(exp.Column)))
    return (computed_groups.without_null(value, values, []) if known else None) or values


def _exists(compiler: "Compiler", query: exp.Expr, scope: Scope) -> exp.Expr:
    select = query.unnest()
    if not isinstance(select, exp.Select) or not _rowwise(select):
        refuse(query, "is not read in EXISTS; write EXISTS (SELECT 1 FROM ... WHERE ...)")
    inner = compiler.scope(select, scope, scope.ctes)
    _check_owner(inner.joined, query)
    return _existing(compiler, inner.joined)


def _existing(compiler: "Compiler", joined: Joined) -> exp.Expr:
    select = compiler.select(joined).select(exp.Literal.number(1), copy=False)
    return compiler.value(exp.Exists(this=select), "BOOLEAN")


def _in(compiler: "Compiler", node: exp.In, scope: Scope, *, positive: bool) -> exp.Expr:
    """x IN (SELECT y ...): EXISTS of a row with y = x, where NULL and false mean the same or nothing is NULL; else as it is."""
    select, asked = node.args["query"].unnest(), node.this.unnest()
    wanted = [compiler.resolve(one, scope) for one in (asked.expressions if isinstance(asked, exp.Tuple) else [asked])]
    found: list[exp.Expr] = []

    def pairs(joined: Joined) -> list[Condition]:
        if len(found) != len(wanted):
            refuse(node, f"compares {len(wanted)} columns with {len(found)}")
        if not any(item.relation.owned for item in joined.items) and len(wanted) == 1:
            return []  # public rows take SQL's own IN
        sides = [*((one, scope.joined) for one in wanted), *((one, joined) for one in found)]
        if not positive and any(_nullable(compiler, one) and not _said(compiler, one, around) for one, around in sides):
            refuse(
                node,
                "may be NULL where it is negated, so that one NULL would decide for all rows; say of both sides that they are NOT NULL, or "
                "write NOT EXISTS (SELECT 1 ...)",
            )
        both = zip(found, wanted, strict=True)
        return [Condition(node=exp.EQ(this=one.copy(), expression=two.copy())) for one, two in both]

    def more(inner: Scope) -> list[Condition]:
        found.extend(value for _, value in compiler.columns(select, inner))
        return pairs(inner.joined)

    if isinstance(select, exp.Select) and _rowwise(select):
        joined = compiler.scope(select, scope, scope.ctes, more).joined
    else:
        relation = compiler.query(select, scope.ctes)
        joined = Joined(outer=scope.joined)
        item = compiler.put(relation)
        joined.items.append(item)
        found.extend(atom(item.alias, field.at) for field in relation.fields)
        joined.conditions += pairs(joined)
        Settling(compiler, joined).settle()
    _check_owner(joined, node)
    if not any(item.relation.owned for item in joined.items) and len(wanted) == 1:
        return _as_it_is(compiler, node, wanted[0], found[0], joined)
    return _existing(compiler, joined)


def _as_it_is(compiler: "Compiler", node: exp.In, wanted: exp.Expr, found: exp.Expr, joined: Joined) -> exp.Expr:
    """IN of public rows, with SQL's own NULLs."""
    totals = compiler.totals
    if not comparable(kind(totals.type(wanted)), kind(totals.type(found))):
        refuse(node, "compares values of different types; write a CAST")
    select = compiler.select(joined).select(compiler.emitted(found), copy=False)
    return compiler.value(exp.In(this=compiler.emitted(wanted), query=exp.Subquery(this=select)), "BOOLEAN")


def _single(compiler: "Compiler", query: exp.Expr, scope: Scope) -> exp.Expr:
    """The value of (SELECT aggregate FROM ...), of public rows or of the rows of the same owner."""
    select = query.unnest()
    if (
        not isinstance(select, exp.Select)
        or len(select.expressions) != 1
        or not has_aggregate(select.expressions[0])
        or any(select.args.get(word) for word in ("group", "having", "order", "limit", "distinct"))
    ):
        if isinstance(select, exp.Select) and select.args.get("limit"):
            refuse(query, f"is not read here; for the first row of each write {of_each(select, 'firsts')}")
        refuse(
            query,
            "is no single value for sure; select one aggregate, without GROUP BY, such as (SELECT max(x) FROM ...)",
        )
    inner = compiler.scope(select, scope, scope.ctes)
    _check_owner(inner.joined, query)
    from duckdb_dp.sql.owned.units import (
        single_value,
    )  # for the compiler's sake, which reads the aggregates of units too

    return single_value(compiler, select, inner)


def _rowwise(select: exp.Select) -> bool:
    """Whether it has no groups and no aggregates; a WITH of its own is read."""
    copy = select.copy()
    copy.set("with_", None)
    return plain(copy)


def _check_owner(joined: Joined, node: exp.Expr) -> None:
    """Refuse protected rows in a subquery around which there are none: whether a public row stays would depend on many units."""
    around, owned = joined.outer, False
    while around is not None:
        owned |= around.owner is not None
        around = around.outer
    if not owned and any(item.relation.owned for item in joined.items):
        said = not isinstance(node, exp.Subquery)
        refuse(
            node,
            counted_instead(node)
            if said
            else "reads protected rows for a public row, which would depend on many units; ask it in a SELECT of its own first",
        )


def _positive(node: exp.Expr) -> bool:
    """Whether only AND and OR are around a node."""
    parent = node.parent
    while isinstance(parent, exp.And | exp.Or | exp.Paren):
        parent = parent.parent
    return parent is None


def _nullable(compiler: "Compiler", node: exp.Expr) -> bool:
    field = compiler.field(node.unnest())
    return field is None or field.nullable or bool(compiler.item(node.unnest().args["table"].name).join)


def _said(compiler: "Compiler", value: exp.Expr, joined: Joined) -> bool:
    """Whether one of the conditions of a WHERE is that a value IS NOT NULL."""
    for condition in joined.conditions:
        node = condition.node.unnest()
        inner = node.this.unnest() if isinstance(node, exp.Not) else None
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
            known = inner.this if condition.scope is None else compiler.resolve(inner.this.copy(), condition.scope)
            if known.unnest() == value.unnest():
                return True
    return False
