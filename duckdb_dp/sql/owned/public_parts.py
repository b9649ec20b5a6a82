"""The public rows that rows of a FROM may have beside them: those of the tables that conditions tie to one another, as conditions say."""

from dataclasses import replace
from typing import final

from sqlglot import exp

from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.sql.owned import left_joins
from duckdb_dp.sql.owned.compiler import Compiler
from duckdb_dp.sql.owned.relations import Condition, Item, Joined, atom
from duckdb_dp.sql.owned.ties import Equalities, key
from duckdb_dp.sql.same_conditions import form


def part(compiler: Compiler, joined: Joined, start: Item) -> Joined:
    """The public tables that conditions tie to one, and what they satisfy.

    Of an item that an outer join may leave out, what is there is said of the rows in which it is there.

    Args:
        compiler: knows the columns.
        joined: FROM and WHERE, whose conditions are resolved.
        start: an item of public rows.
    """
    latest = form() >= 8 and not compiler.as_written
    if start.join and not latest:
        return Joined(items=[Item(alias=start.alias, relation=start.relation)])
    joined = left_joins.there(compiler, joined, start) if start.join else joined
    public = {item.alias for item in joined.items if not item.relation.owned and not item.join} | {start.alias}
    if latest:
        tied = _Moved(compiler, joined, public).conditions()
    else:
        each = ((one.node, {_alias(column) for column in _columns(one.node)}) for one in joined.conditions)
        tied = [(node, names) for node, names in each if names <= public]
    aliases = {start.alias}
    while grown := [names for _, names in tied if names & aliases and not names <= aliases]:
        aliases = aliases.union(*grown)
    return Joined(
        items=[replace(item, join="", on=[]) for item in joined.items if item.alias in aliases],
        conditions=[Condition(node=node) for node, names in tied if names and names <= aliases],
    )


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
