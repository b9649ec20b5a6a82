"""The public rows that rows of a FROM may have beside them: those of the tables that conditions tie to one another, as conditions say."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import final

from sqlglot import exp

from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.sql.owned import left_joins
from duckdb_dp.sql.owned.compiler import Compiler
from duckdb_dp.sql.owned.relations import Condition, Item, Joined, atom
from duckdb_dp.sql.owned.ties import Equalities, key
from duckdb_dp.sql.same_conditions import form

PAIRS = 10_000_000
"""Pairs of public rows that are looked at: of more of them, tables are tied only as they were up to form 7, as that takes its time."""


def part(compiler: Compiler, joined: Joined, start: Item, *, small: bool = False) -> Joined:
    """The public tables that conditions tie to one, and what they satisfy; of many rows fewer conditions, which leave more rows.

    Of an item that an outer join may leave out, what is there is said of the rows in which it is there.

    Args:
        compiler: knows the columns.
        joined: FROM and WHERE, whose conditions are resolved.
        start: an item of public rows.
        small: whether of many rows those of this item alone will do.
    """
    latest = form() >= 8 and not compiler.as_written
    if start.join and not latest:
        return Joined(items=[Item(alias=start.alias, relation=start.relation)])
    before = set[exp.Expr]() if small or start.join else _before(joined)
    joined = left_joins.there(compiler, joined, start) if start.join else joined
    public = {item.alias for item in joined.items if not item.relation.owned and not item.join} | {start.alias}
    if latest:
        moved, named = _Moved(compiler, joined, public).conditions(), {item.alias: item for item in joined.items}
        tied = [(node, names) for node, names in moved if _rows_of_subqueries(compiler, node, names, named) <= PAIRS]
    else:
        each = ((one.node, {_alias(column) for column in _columns(one.node)}) for one in joined.conditions)
        tied = [(node, names) for node, names in each if names <= public]
    found = _tied(joined, start, tied)
    if latest and _pairs(compiler, found) > PAIRS:
        found = _tied(joined, start, [(node, names) for node, names in tied if len(names) == 1 or node in before])
    return found


def _tied(joined: Joined, start: Item, tied: Sequence[tuple[exp.Expr, set[str]]]) -> Joined:
    """Those that some conditions tie to one, with the conditions on them."""
    aliases = {start.alias}
    while grown := [names for _, names in tied if names & aliases and not names <= aliases]:
        aliases = aliases.union(*grown)
    return Joined(
        items=[replace(item, join="", on=[]) for item in joined.items if item.alias in aliases],
        conditions=[Condition(node=node) for node, names in tied if names and names <= aliases],
    )


def _before(joined: Joined) -> set[exp.Expr]:
    """The conditions that tied tables up to form 7: those on tables of joins that were written as inner ones."""
    inner = {item.alias for item in joined.items if not item.relation.owned and not item.join and not item.left}
    return {one.node for one in joined.conditions if {_alias(column) for column in _columns(one.node)} <= inner}


def _pairs(compiler: Compiler, part: Joined) -> int:
    """How many rows of its tables are looked at together, at most: a row whose key columns of others are equal to is looked up."""
    if len(part.items) == 1:
        return 0
    own = {item.alias: [one for one in part.conditions if _of(one.node) == {item.alias}] for item in part.items}
    rows = {
        item.alias: compiler.tables.counted(
            compiler.select(Joined(items=[item], conditions=own[item.alias])).select("count(*)", copy=False)
        )
        for item in part.items
    }
    return min(_pairs_from(first, part, rows) for first in part.items)


def _pairs_from(first: Item, part: Joined, rows: Mapping[str, int]) -> int:
    """The same where the rows of one table are gone through, and those of others are found beside them."""
    found, left = rows[first.alias], [item for item in part.items if item is not first]
    while left:
        seen = {item.alias for item in part.items if item not in left}
        known = next((item for item in left if _is_found(item, seen, part)), None)
        item = known or left[0]
        found *= 1 if known else max(1, rows[item.alias])
        left.remove(item)
    return found


def _is_found(item: Item, seen: set[str], part: Joined) -> bool:
    """Whether columns of other tables say the key of a row."""
    sides = [(one.node.this, one.node.expression) for one in part.conditions if isinstance(one.node, exp.EQ)]
    equal = {
        one.name
        for side in sides
        for one, other in (side, side[::-1])
        if isinstance(one, exp.Column) and isinstance(other, exp.Column)
        if _alias(one) == item.alias and _alias(other) in seen
    }
    return any(key <= equal for key in item.relation.keys)


def _rows_of_subqueries(compiler: Compiler, node: exp.Expr, names: set[str], items: Mapping[str, Item]) -> int:
    """Pairs of rows of subqueries in a condition and of those around them, of which each is looked at; 0 where equal values find them."""
    most = 0
    for column in (one for one in _columns(node) if not _alias(one)):
        sql = compiler.values[column.name][0]
        if not _is_looked_up(sql):
            inner = [exp.select("count(*)").from_(table.copy()) for table in sql.find_all(exp.Table)]
            around = [compiler.select(Joined(items=[replace(items[name], join="", on=[])])) for name in names]
            counts = [*inner, *(one.select("count(*)", copy=False) for one in around)]
            most = max(most, math.prod(max(1, compiler.tables.counted(one)) for one in counts))
    return most


def _is_looked_up(sql: exp.Expr) -> bool:
    """Whether the rows of a subquery are the same for all rows around it, or found by columns that are equal to theirs."""
    own = {one.name for one in sql.find_all(exp.TableAlias)}
    for column in (one for one in _columns(sql) if _alias(one) not in own):
        if isinstance(sql, exp.In) and column is sql.this:
            continue
        equal, where = column.parent, column.find_ancestor(exp.Where)
        if not isinstance(equal, exp.EQ) or where is None:
            return False
        other = equal.expression if equal.this is column else equal.this
        if not isinstance(other, exp.Column) or _alias(other) not in own:
            return False
        around = equal.parent
        while isinstance(around, exp.And | exp.Paren):
            around = around.parent
        if around is not where:
            return False
    return True


def _of(node: exp.Expr) -> set[str]:
    return {_alias(column) for column in _columns(node)}


def _columns(node: exp.Expr) -> list[exp.Column]:
    return [*node.find_all(exp.Column)]


def _alias(column: exp.Column) -> str:
    """Of which item a column is; '' of what stands for a subquery."""
    return column.args["table"].name if column.args.get("table") is not None else ""


@final
class _Moved:
    """Conditions of all rows as conditions of the public rows beside them, where they say nothing of other columns.

    A column that is equal to a public one in all rows is that one, and a subquery of public rows is worked out for public rows.

    Args:
        compiler, joined: as ever.
        public: the aliases of the public items.
    """

    def __init__(self, compiler: Compiler, joined: Joined, public: set[str]) -> None:
        self._compiler, self._public = compiler, public
        self._nodes = [one.node for one in joined.conditions if one.scope is None]
        self._equal = Equalities(self._nodes, compiler.field)
        self._around: dict[str, set[str]] = {}
        self._at = [atom(one.alias, at) for one in joined.items if one.alias in public for at in one.relation.types]

    def conditions(self) -> list[tuple[exp.Expr, set[str]]]:
        """Those that are such, each once, with the items that they read."""
        moved = (self._moved(node) for node in self._nodes)
        found = dict.fromkeys(node for node in moved if node is not None and not _says_nothing(node))
        return [(node, set().union(*map(self._aliases, _columns(node)))) for node in found]

    def _aliases(self, column: exp.Column) -> set[str]:
        return {_alias(column)} if _alias(column) else self._around[column.name]

    def _moved(self, node: exp.Expr) -> exp.Expr | None:
        found = {column.sql("duckdb"): self._column(column) for column in _columns(node)}
        if None in found.values():
            return None

        def one(inner: exp.Expr) -> exp.Expr:
            known = found[inner.sql("duckdb")] if isinstance(inner, exp.Column) else None
            return inner if known is None else known.copy()

        return node.transform(one)

    def _column(self, column: exp.Column) -> exp.Expr | None:
        """What a column is in public rows."""
        alias = _alias(column)
        if alias in self._public:
            return column
        if not alias:
            return self._subquery(column.name)
        field = self._compiler.field(column)
        if field is None or (
            self._compiler.tables.collated and field.type == "VARCHAR"
        ):  # which may equate other texts
            return None
        alike = (one for one in self._at if self._equal.equal(key(one), key(column)))
        return next((one for one in alike if self._compiler.type_of(one) == field.type), None)

    def _subquery(self, name: str) -> exp.Expr | None:
        """One that reads public tables alone, beside columns of the rows around it."""
        sql, type_ = self._compiler.values[name]
        family, own = self._compiler.tables.family, {one.name for one in sql.find_all(exp.TableAlias)}
        read = [tuple(part.name for part in table.parts) for table in sql.find_all(exp.Table)]
        if not all(name in family.public and name[1] != SCHEMA for name in read):
            return None
        outside = [one for one in _columns(sql) if _alias(one) not in own]
        moved = {one.sql("duckdb"): self._column(one) if _alias(one) else None for one in outside}
        if not all(isinstance(one, exp.Column) and _alias(one) for one in moved.values()):
            return None

        def one(inner: exp.Expr) -> exp.Expr:
            known = moved.get(inner.sql("duckdb")) if isinstance(inner, exp.Column) else None
            return inner if known is None else known.copy()

        compiler, value = self._compiler, f"v{len(self._compiler.values)}"
        compiler.values[value] = (sql.transform(one), type_)
        self._around[value] = {_alias(one) for one in moved.values() if isinstance(one, exp.Column)}
        return exp.column(exp.to_identifier(value, quoted=True))


def _says_nothing(node: exp.Expr) -> bool:
    return isinstance(node, exp.EQ) and node.this == node.expression
