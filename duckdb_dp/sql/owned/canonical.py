"""One text for all ways to write a relation: the order of its tables and conditions, the sides of =, and names of tables do not count.

Two SELECTs have one text only where they have the same rows whatever the tables hold. Inner joins may be taken in any order, as their
conditions stand in WHERE; AND and OR take what they join in any order, as none of it fails; a column may stand for another one of
its type that is equal to it in all rows; and conditions that are one in three-valued logic and in DuckDB's order of all values, NaN
among them, have the form that ``simple`` gives them. Nothing else is changed: not what stands inside TRY, where the order may say what
fails; of the ON of an outer join its own order alone; and not the order of columns, by which a UNION is read.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, permutations, product

from sqlglot import exp

from duckdb_dp.sql.owned.relations import Item
from duckdb_dp.sql.owned.ties import PLAIN
from duckdb_dp.sql.same_conditions import bare, by_types, conjunction, parts

TypeOf = Callable[[str, str], str | None]
"""The type of a column of an item, by the item's alias and the column's name; None of others."""

ORDERS = 24
"""Orders of a table that is joined with itself that are tried; of more copies the order is that in which they were written."""

_TEMPORARY = re.compile(r"t\d+")
"""Aliases of items, which the compiler numbers in the order that it meets them."""


def in_order(items: Sequence[Item]) -> list[Item]:
    """The items of a FROM with those of each run of inner joins by their text, so that all that depends on their order is alike."""
    found: list[Item] = []
    for inner, run in groupby(items, lambda item: not item.join):
        listed = list(run)
        found += sorted(listed, key=lambda item: item.relation.query.sql("duckdb")) if inner else listed
    return found


def canonical(query: exp.Expr, type_of: TypeOf) -> exp.Expr:
    """A relation in the form that it shares with all others of the same rows; relations inside FROM have theirs already.

    Args:
        query: the relation as it was emitted.
        type_of: the types of the columns of its items.
    """
    return _query(by_types(query.copy(), lambda one: type_of(one.table, one.name)), type_of, 0)


def _query(query: exp.Expr, type_of: TypeOf, before: int) -> exp.Expr:
    """The same, in place.

    Args:
        query, type_of: as ever.
        before: how many items the SELECTs around it have.
    """
    if isinstance(query, exp.Subquery):
        query.set("this", _query(query.this, type_of, before))
    elif isinstance(query, exp.SetOperation):
        for word in ("this", "expression"):
            query.set(word, _query(query.args[word], type_of, before))
    elif isinstance(query, exp.Select) and query.args.get("from_") is not None:
        return _select(query, type_of, before)
    return query


def _select(select: exp.Select, type_of: TypeOf, before: int) -> exp.Select:
    joins = select.args.get("joins") or []
    items = [select.args["from_"].this, *(join.this for join in joins)]
    for item in items:
        if isinstance(item, exp.Subquery):
            item.set("this", _query(item.this, type_of, before))
    if not all(_TEMPORARY.fullmatch(item.alias) for item in items) or any(
        not (join.side or join.kind) for join in joins
    ):
        return select  # what has other names has them everywhere
    if len(items) == 1:
        return _written(select, [0], type_of, before)
    # Of copies of one table each may be the first.
    tried = (_written(select.copy(), order, type_of, before) for order in _orders(items, joins))
    return min(tried, key=lambda one: one.sql("duckdb"))


def _orders(items: Sequence[exp.Expr], joins: Sequence[exp.Join]) -> Iterator[list[int]]:
    """The orders of items that differ only in copies of one table that inner joins take."""
    texts = [_unnamed(item) for item in items]
    optional = [bool(joins and joins[0].side == "FULL"), *(bool(join.side) for join in joins)]
    runs = [list(run) for place, run in groupby(range(len(items)), lambda i: (texts[i], i if optional[i] else -1))]
    if math.prod(math.factorial(len(run)) for run in runs) > ORDERS:
        yield list(range(len(items)))
        return
    for orders in product(*(permutations(run) for run in runs)):
        yield [place for order in orders for place in order]


def _unnamed(item: exp.Expr) -> str:
    copy = item.copy()
    copy.set("alias", None)
    return copy.sql("duckdb")


def _written(select: exp.Select, order: Sequence[int], type_of: TypeOf, before: int) -> exp.Select:
    """A SELECT with its items in an order, under the names that this gives them."""
    source, joins = select.args["from_"], select.args.get("joins") or []
    items = [source.this, *(join.this for join in joins)]
    names = {items[place].alias: f"u{before + i}" for i, place in enumerate(order)}
    inner = {item.alias for item, join in zip(items, [None, *joins], strict=True) if join is None or not join.side}
    if joins and joins[0].side == "FULL":
        inner.clear()
    where = select.args.get("where")
    conditions = [] if where is None else parts(where.this, exp.And)
    alike = _Alike(conditions, {alias: names[alias] for alias in inner}, type_of)
    for place, node in enumerate([items[i] for i in order]):
        node = node.copy()
        node.args["alias"].set("this", exp.to_identifier(names[node.alias], quoted=True))
        (source if place == 0 else joins[place - 1]).set("this", node)
    for join in joins:
        if join.args.get("on") is not None:
            join.set(
                "on", conjunction([_named(one, names, type_of, before) for one in parts(join.args["on"], exp.And)])
            )
    select.set("expressions", [_named(alike.replaced(one), names, type_of, before) for one in select.expressions])
    kept = [_named(one, names, type_of, before) for one in [*alike.equalities(), *map(alike.replaced, alike.others)]]
    kept = [one for one in kept if not (isinstance(one, exp.Boolean) and one.this)]
    select.set("where", exp.Where(this=conjunction(kept)) if kept else None)
    qualify = select.args.get("qualify")
    if qualify is not None:
        qualify.set("this", _named(qualify.this, names, type_of, before))
    return select


def _named(node: exp.Expr, names: Mapping[str, str], type_of: TypeOf, before: int) -> exp.Expr:
    """An expression with other names of items, and the queries in it in their own form."""
    for column in node.find_all(exp.Column):
        if column.table in names:
            column.set("table", exp.to_identifier(names[column.table], quoted=True))
    queries = [one for one in node.walk(prune=lambda one: isinstance(one, exp.Query)) if isinstance(one, exp.Query)]
    for query in queries:
        made = _query(query.copy(), type_of, before + len(names))
        if query is node:
            return made
        query.replace(made)
    return node


class _Alike:
    """Columns that are the same in all rows, by the conditions of inner joins."""

    def __init__(self, conditions: Sequence[exp.Expr], names: Mapping[str, str], type_of: TypeOf) -> None:
        self._names, self._type_of = names, type_of
        self._parents: dict[tuple[str, str], tuple[str, str]] = {}
        self.others: list[exp.Expr] = []
        """Conditions that are more than that."""
        bytes_ = [pair for one in conditions if (pair := self._pair(one, encoded=True)) is not None]
        for one in conditions:
            pair = self._pair(one, encoded=False)
            texts = pair is not None and self._type(pair[0]) == "VARCHAR"
            if pair is None or (texts and not {pair, pair[::-1]} & set(bytes_)):
                self.others.append(one)
                continue
            if texts:  # which are more than alike under a collation only by the other condition
                self.others.append(one)
            roots = sorted(map(self._root, pair), key=self._place)
            if roots[0] != roots[1]:
                self._parents[roots[1]] = roots[0]

    def _place(self, one: tuple[str, str]) -> tuple[int, str]:
        return int(self._names[one[0]][1:]), one[1]

    def _type(self, one: tuple[str, str]) -> str | None:
        return self._type_of(*one)

    def _pair(self, node: exp.Expr, *, encoded: bool) -> tuple[tuple[str, str], tuple[str, str]] | None:
        """Two columns of one type that a condition equates; with ``encoded`` their bytes."""
        if not isinstance(node, exp.EQ):
            return None
        sides = [bare(node.this), bare(node.expression)]
        if encoded:
            if not all(isinstance(side, exp.Anonymous) and side.name.lower() == "encode" for side in sides):
                return None
            sides = [bare(side.expressions[0]) for side in sides]
        found = [
            (side.table, side.name) for side in sides if isinstance(side, exp.Column) and side.table in self._names
        ]
        if len(found) < len(sides):
            return None
        one, two = found
        types = {self._type(one), self._type(two)}
        return (one, two) if one != two and len(types) == 1 and types <= PLAIN | {"VARCHAR"} else None

    def _root(self, one: tuple[str, str]) -> tuple[str, str]:
        while one in self._parents:
            one = self._parents[one]
        return one

    def equalities(self) -> list[exp.Expr]:
        """That each of them is the first of its kind; of texts the conditions stay as they are."""
        return [
            exp.EQ(this=_column(*self._root(one)), expression=_column(*one))
            for one in self._parents
            if self._type(one) != "VARCHAR"
        ]

    def replaced(self, node: exp.Expr) -> exp.Expr:
        """An expression over the first columns of their kind; inside its queries all stays as it is."""
        if isinstance(node, exp.Query):
            return node
        columns = [
            one
            for one in node.walk(prune=lambda one: isinstance(one, exp.Query))
            if isinstance(one, exp.Column) and (one.table, one.name) in self._parents
        ]
        if self._pair(node, encoded=False) or self._pair(node, encoded=True):
            return node  # of texts, which say that they are the same
        for column in columns:
            made = _column(*self._root((column.table, column.name)))
            if column is node:
                return made
            column.replace(made)
        return node


def _column(alias: str, name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))
