"""What to write for the first row of each unit: row_number() = 1, in place of DISTINCT ON, arg_min, LATERAL and LIMIT."""

from collections.abc import Sequence

from sqlglot import exp

from duckdb_dp.errors import identifier
from duckdb_dp.sql.clamped_sums import column_name
from duckdb_dp.sql.owned.syntax import conjuncts, has_aggregate, outside_queries

MOST = 400
"""Most characters of a proposal, which is to be run as it is."""

FIRST = "QUALIFY row_number() OVER (PARTITION BY the unit's key ORDER BY ...) = 1"
"""The same where the statement does not say how it goes on."""


def of_distinct_on(select: exp.Select) -> str:
    """In place of SELECT DISTINCT ON (keys) ... ORDER BY."""
    given = select.args["distinct"].args["on"]
    keys = given.expressions if isinstance(given, exp.Tuple) else [given]
    order = [one for one in _order(select) if one.this not in keys]
    return _written(_ranked(select, select.expressions, keys, order, 1)) if order else FIRST


def of_extreme(node: exp.Expr, select: exp.Select) -> str:
    """In place of arg_min(value, place), or arg_max, beside GROUP BY."""
    group = select.args.get("group")
    keys = [] if group is None else group.expressions
    if not keys or not all(isinstance(key, exp.Column) for key in keys):
        return FIRST
    order = [exp.Ordered(this=node.expression.copy(), desc=isinstance(node, exp.ArgMax))]
    ranked = _ranked(select, [*keys, node.this], keys, order, 1)
    for one in (node.this, node.expression):  # rows of which one is NULL are left out of both aggregates
        ranked = ranked.where(one.copy().is_(exp.null()).not_())
    return _written(ranked)


def of_each(select: exp.Expr, alias: str, side: str = "") -> str:
    """In place of a subquery that reads a row around it, (SELECT ... FROM visits v WHERE v.person = u.id ORDER BY day LIMIT 1): a join.

    Args:
        select: the subquery.
        alias: what it is called.
        side: LEFT where it is on the second side of such a join.
    """
    pairs = _tied(select) if isinstance(select, exp.Select) else []
    if not isinstance(select, exp.Select) or not pairs:
        return f"JOIN (SELECT ... FROM ... {FIRST}) AS {alias}"
    keys, (limit, order) = [own for own, _ in pairs], (select.args.get("limit"), _order(select))
    listed = [*keys, *(one for one in select.expressions if one not in keys)]
    inner = select.copy()
    tied = {(own, other) for own, other in pairs}
    where = [one for one in conjuncts(_condition(select)) if _sides(one, _aliases(select)) not in tied]
    inner.set("where", exp.Where(this=exp.and_(*where)) if where else None)
    if limit is None or not isinstance(limit.expression, exp.Literal) or not limit.expression.is_int:
        inner.set("expressions", [one.copy() for one in listed])
        if any(map(has_aggregate, select.expressions)):
            inner.set("group", exp.Group(expressions=[one.copy() for one in keys]))
            side = "LEFT"  # the value of no rows is a row too
    else:
        inner = _ranked(inner, listed, keys, order, int(limit.expression.name))
    on = " AND ".join(f"{alias}.{own.this.sql('duckdb')} = {other.sql('duckdb')}" for own, other in pairs)
    return _written(inner, f"{side} JOIN ({{}}) AS {alias} ON {on}".strip())


def zeros(select: exp.Expr, alias: str) -> str:
    """What to write in place of counts of such a join, which are NULL where a row has none; '' where there are none."""
    found = []
    for item in select.expressions if isinstance(select, exp.Select) else ():
        inner = item.unalias()
        aggregates = [node for node in outside_queries(inner) if isinstance(node, exp.AggFunc)]
        if aggregates and all(isinstance(node, exp.Count | exp.CountIf) for node in aggregates):
            column = f"{alias}.{identifier(item.alias or column_name(inner))}"
            none = inner.transform(
                lambda node: exp.Literal.number(0) if isinstance(node, exp.Count | exp.CountIf | exp.Filter) else node
            )
            found.append(f"coalesce({column}, {none.sql('duckdb')}) in place of {column}")
    return f", and {' and '.join(found)}" if found else ""


def reads_around(select: exp.Expr, around: Sequence[str]) -> bool:
    """Whether a subquery in FROM reads columns of what stands before it, which is LATERAL too.

    Args:
        select: the subquery.
        around: the names of what stands before it.
    """
    if not isinstance(select, exp.Select):
        return False
    own = {one.alias_or_name.lower() for one in select.find_all(exp.Table, exp.Subquery)}
    read = {column.table.lower() for column in select.find_all(exp.Column)} - own - {""}
    return not read.isdisjoint(around)


def _ranked(
    select: exp.Select, listed: Sequence[exp.Expr], keys: Sequence[exp.Expr], order: Sequence[exp.Expr], most: int
) -> exp.Select:
    """The rows of a SELECT's FROM and WHERE that are the first ones of each key."""
    found = select.copy()
    for word in ("group", "having", "distinct", "order", "limit"):
        found.set(word, None)
    found.set("expressions", [one.copy() for one in listed])
    rank = exp.Window(
        this=exp.RowNumber(),
        partition_by=[key.copy() for key in keys],
        order=exp.Order(expressions=[one.copy() for one in order]) if order else None,
        over="OVER",
    )
    kind = exp.EQ if most == 1 else exp.LTE
    found.set("qualify", exp.Qualify(this=kind(this=rank, expression=exp.Literal.number(most))))
    return found


def _written(select: exp.Select, around: str = "{}") -> str:
    text = around.format(select.sql("duckdb"))
    return text if len(text) <= MOST else FIRST


def _order(select: exp.Select) -> list[exp.Expr]:
    order = select.args.get("order")
    return [] if order is None else list(order.expressions)


def _condition(select: exp.Select) -> exp.Expr | None:
    where = select.args.get("where")
    return None if where is None else where.this


def _aliases(select: exp.Select) -> set[str]:
    """The names of what a SELECT reads itself."""
    items = [select.args.get("from_"), *(select.args.get("joins") or [])]
    return {item.this.alias_or_name.lower() for item in items if item is not None}


def _tied(select: exp.Select) -> list[tuple[exp.Column, exp.Column]]:
    """The columns that a subquery's conditions say are equal to those around it; none where it reads these otherwise too."""
    own = _aliases(select)
    pairs = [pair for one in conjuncts(_condition(select)) if (pair := _sides(one, own)) is not None]
    outer = [c for c in select.find_all(exp.Column) if c.table and c.table.lower() not in own]
    return pairs if len(outer) == len(pairs) else []


def _sides(node: exp.Expr, own: set[str]) -> tuple[exp.Column, exp.Column] | None:
    """(own, other) of own = other."""
    if not isinstance(node, exp.EQ):
        return None
    for one, two in ((node.this, node.expression), (node.expression, node.this)):
        if isinstance(one, exp.Column) and isinstance(two, exp.Column):
            inside = not one.table or one.table.lower() in own
            if inside and two.table and two.table.lower() not in own:
                return one, two
    return None
