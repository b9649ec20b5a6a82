"""any_value(m.title) beside GROUP BY m.movie_id: public columns that groups of public columns determine are grouped by too."""

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from duckdb_dp.errors import DPError
from duckdb_dp.sql.clamped_sums import column_name
from duckdb_dp.sql.owned import names, public_parts
from duckdb_dp.sql.owned.compiler import Compiler, key_alias
from duckdb_dp.sql.owned.relations import Joined, Scope
from duckdb_dp.sql.owned.syntax import has_aggregate

_ONE = (exp.AnyValue, exp.First, exp.Last, exp.Min, exp.Max)
"""Aggregates that are the value itself where a group has one alone."""

_AROUND = (exp.IgnoreNulls, exp.Filter, exp.Window)
"""What makes another one of an aggregate."""


def grouped(
    compiler: Compiler,
    scope: Scope,
    select: exp.Select,
    keys: Sequence[exp.Expr],
    read: Callable[[str], list[tuple[Any, ...]]],
) -> exp.Select:
    """The SELECT with these columns in GROUP BY, in place of what takes one value of them.

    Args:
        compiler: resolves its columns.
        scope: what it reads.
        select: it.
        keys: what it groups by, resolved.
        read: the rows of a SELECT of public tables.
    """
    group = select.args.get("group")
    if group is None or group.find(exp.Cube, exp.Rollup, exp.GroupingSets) or not select.find(*_ONE):
        return select
    public = [key for key in keys if isinstance(key, exp.Column) and _beside(compiler, key)]
    more: dict[str, exp.Expr] = {}

    def one(node: exp.Expr) -> exp.Expr:
        inner = node.this if isinstance(node, exp.IgnoreNulls) else node
        if not _takes_one(inner) or isinstance(node.parent, _AROUND) or node.find_ancestor(exp.Query):
            return node
        named = _named(inner.this, scope)
        if (
            named is None
            or not _beside(compiler, named)
            or not _determined(compiler, scope.joined, public, named, read)
        ):
            return node
        more[named.sql("duckdb")] = inner.this
        column: exp.Expr = inner.this
        return column.copy()

    found = select.copy()
    for item in found.expressions:
        own = item.unalias()
        changed = own.transform(one)
        if changed != own:
            name = item.alias or column_name(own.this if isinstance(own, exp.IgnoreNulls) else own)
            item.replace(exp.alias_(changed, name, quoted=True))
    for word in ("having", "order"):
        if (node := found.args.get(word)) is not None:
            found.set(word, node.transform(one))
    if not more:
        return select
    written = [one.unalias() for one, own in zip(found.expressions, select.expressions, strict=True) if one == own]
    listed = [one for one in written if not has_aggregate(one)] if group.args.get("all") else group.expressions
    found.set("group", exp.Group(expressions=[*(one.copy() for one in listed), *(one.copy() for one in more.values())]))
    return found


def _takes_one(node: exp.Expr) -> bool:
    """Whether it is such an aggregate of a column, and nothing more is asked of it."""
    more = any(value for name, value in node.args.items() if name != "this")
    return type(node) in _ONE and isinstance(node.this, exp.Column) and not more


def _named(column: exp.Column, scope: Scope) -> exp.Column | None:
    """The column of an item that a name means; None of others, as of aliases."""
    try:
        found = names.column(column, scope, lambda _: None)
    except DPError:
        return None
    return found if isinstance(found, exp.Column) else None


def _beside(compiler: Compiler, column: exp.Column) -> bool:
    """Whether it is a column of a public table that stands in FROM, and of which no row is left out."""
    item = compiler.item(key_alias(column))
    return not item.relation.owned and not item.join and compiler.is_public(column)


def _determined(
    compiler: Compiler,
    joined: Joined,
    keys: Sequence[exp.Column],
    value: exp.Column,
    read: Callable[[str], list[tuple[Any, ...]]],
) -> bool:
    """Whether the rows of the public tables that agree in the keys have one value of a column."""
    part = public_parts.part(compiler, joined, compiler.item(key_alias(value)))
    own = [key for key in keys if key_alias(key) in {item.alias for item in part.items}]
    if not own:
        return False
    select = compiler.select(part)
    for place, column in enumerate((*own, value)):
        select = select.select(exp.alias_(column.copy(), f"k{place}"), copy=False)
    columns = ", ".join(f"k{place}" for place in range(len(own)))
    ((several,),) = read(
        f"SELECT count(*) FROM (SELECT {columns} FROM (SELECT DISTINCT * FROM ({select.sql('duckdb')}) AS d) AS e "
        f"GROUP BY {columns} HAVING count(*) > 1) AS f"
    )
    return bool(several == 0)
