"""Joins of attached tables: what the compiler of owned relations has written, as one Ibis expression of their engine.

The SQL is read step by step, and each step is written such that every engine has the rows that DuckDB would have: conditions and
columns as ``rows`` reads them, joins on these, EXISTS as semi-joins, numbers of rows, and the smallest and the largest value. Whose
a row is has been settled in that SQL already, so nothing of the ownership rule is decided here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NoReturn, final

from sqlglot import exp, parse_one

from duckdb_dp.counting.engines.expressions import by_bytes
from duckdb_dp.counting.engines.source import SCHEMA, Source, check_together
from duckdb_dp.domain import types
from duckdb_dp.errors import DPError, brief, identifier
from duckdb_dp.sql.engines.aggregates import READ, Aggregates, of_list
from duckdb_dp.sql.engines.rows import Rows
from duckdb_dp.sql.engines.values import TOTAL, Value
from duckdb_dp.sql.engines.windows import READ as WINDOWS
from duckdb_dp.sql.engines.windows import Windows

Table = Any
"""An Ibis table."""

_PLAIN = {TOTAL, "NULL"}
"""Types that no column is declared with, and all engines have."""

Find = Callable[[tuple[str, str, str]], Source]
"""The attached table of a full name."""


def source(sql: str, name: str, find: Find) -> Source:
    """The relation of some SQL as a table of the engine.

    Args:
        sql: a SELECT of attached tables by their full names, as ``owned`` and ``owners`` write it.
        name: what the relation is called in messages.
        find: the tables.

    Raises:
        DPError: a table is on another connection, or an engine may have other rows than DuckDB.

    Privacy: an expression of private rows; nothing is read.
    """
    query = parse_one(sql, dialect="duckdb")
    own = next(find((one.catalog, one.db, one.name)) for one in query.find_all(exp.Table) if one.db == SCHEMA)
    relation = _Reading(own, find).query(query)
    return replace(own, name=name, table=relation.table, columns=dict(relation.types))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Relation:
    """Rows, with names and DuckDB types of their columns, in order."""

    table: Table
    types: Mapping[str, str]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """Rows of a FROM: one Ibis table, whose columns have names of their own.

    Attributes:
        table: it.
        columns: (alias, column) in small letters -> (name in the table, DuckDB type), in order.
    """

    table: Table
    columns: Mapping[tuple[str, str], tuple[str, str]]


@final
class _Reading:
    def __init__(self, own: Source, find: Find) -> None:
        self._own, self._find, self._number = own, find, count()

    def query(self, node: exp.Expr) -> _Relation:
        """The rows of a query."""
        if isinstance(node, exp.Subquery):
            return self.query(node.this)
        if isinstance(node, exp.Union) and node.args.get("distinct") is False:
            return self._union(node)
        if not isinstance(node, exp.Select):
            self._refuse(node)
        return self._select(node)

    def _union(self, node: exp.Union) -> _Relation:
        import ibis

        one, other = self.query(node.this), self.query(node.expression)
        if list(one.types.values()) != list(other.types.values()):
            self._refuse(node, "give the columns of both sides one type.")
        unknown = [type_ for type_ in one.types.values() if types.find(type_) is None and type_ not in _PLAIN]
        if unknown:  # Ibis may call two types by one name, between which the engine casts, and fails on some row
            raise DPError(
                f"a column of type {brief(unknown[0])} in UNION ALL is not read in {self._own.engine}; leave it out, or make it a "
                "number, a date or a text where the table is attached."
            )
        renamed = other.table.select(**dict(zip(one.types, (other.table[name] for name in other.types), strict=True)))
        return replace(one, table=ibis.union(one.table, renamed, distinct=False))

    def _select(self, select: exp.Select) -> _Relation:
        known = {"expressions", "from_", "joins", "where", "group", "distinct"}
        if any(value for word, value in select.args.items() if word not in known):
            self._refuse(select)
        placed = self._from(select)
        for condition in _conjuncts(select.args.get("where")):
            placed = self._kept(placed, condition)
        group = select.args.get("group")
        found = self._projected(placed, select) if group is None else self._grouped(placed, select, group)
        return self._distinct(found) if select.args.get("distinct") else found

    def _distinct(self, relation: _Relation) -> _Relation:
        """Each row once."""
        names = list(relation.types)
        held = {name: relation.table[name] for name in names}
        table = relation.table.group_by(**held, **_apart(held)).aggregate(n=relation.table.count())
        return replace(relation, table=table.select(*names))

    # FROM

    def _from(self, select: exp.Select) -> _Placed:
        start = select.args.get("from_")
        if start is None:
            self._refuse(select)
        placed = self._item(start.this)
        for join in select.args.get("joins") or ():
            item, on = self._item(join.this), join.args.get("on")
            kind = " ".join(filter(None, (join.side, join.kind)))
            both = self._both(placed, item)
            if kind == "CROSS":
                placed = _Placed(table=placed.table.cross_join(item.table), columns=both)
            elif kind in ("", "LEFT", "SEMI") and on is not None:
                how = {"": "inner", "LEFT": "left", "SEMI": "semi"}[kind]
                placed = self._joined(placed, item, _conjuncts(on), how)
            else:
                self._refuse(join)
        return placed

    def _item(self, node: exp.Expr) -> _Placed:
        alias = node.alias_or_name.lower()
        if isinstance(node, exp.Table):
            if node.db != SCHEMA:
                raise DPError(
                    f"'{node.name}' is a table of DuckDB and '{self._own.name}' is in {self._own.engine}; attach '{node.name}' from "
                    "there too."
                )
            attached = self._find((node.catalog, node.db, node.name))
            check_together([self._own, attached])
            found = _Relation(table=attached.table, types=attached.columns)
        else:
            found = self.query(node)
        names = {name: f"x{next(self._number)}" for name in found.types}
        table = found.table.select(**{new: found.table[name] for name, new in names.items()})
        return _Placed(table=table, columns={(alias, n.lower()): (names[n], type_) for n, type_ in found.types.items()})

    def _both(self, one: _Placed, other: _Placed) -> dict[tuple[str, str], tuple[str, str]]:
        """The columns of two parts of a FROM, whose aliases differ."""
        assert not one.columns.keys() & other.columns.keys()
        return {**one.columns, **other.columns}

    def _joined(self, left: _Placed, right: _Placed, conditions: Sequence[exp.Expr], how: str) -> _Placed:
        columns = self._both(left, right)
        held = {name: right.table[name] for name, _ in right.columns.values()}
        held |= {name: left.table[name] for name, _ in left.columns.values()}
        predicates = [self._condition(one, columns, held) for one in conditions]
        table = left.table.join(right.table, predicates, how=how)
        return _Placed(table=table, columns=left.columns if how in ("semi", "anti") else columns)

    # WHERE

    def _kept(self, placed: _Placed, condition: exp.Expr) -> _Placed:
        inner = condition.unnest()
        negated = isinstance(inner, exp.Not)
        exists = inner.this.unnest() if negated else inner
        if isinstance(exists, exp.Exists):
            return self._existing(placed, exists, "anti" if negated else "semi")
        held = {name: placed.table[name] for name, _ in placed.columns.values()}
        return replace(placed, table=placed.table.filter(self._condition(condition, placed.columns, held)))

    def _existing(self, placed: _Placed, exists: exp.Exists, how: str) -> _Placed:
        inner = exists.this.unnest()
        if not isinstance(inner, exp.Select) or any(inner.args.get(w) for w in ("group", "having", "limit", "qualify")):
            self._refuse(exists)
        return self._joined(placed, self._from(inner), _conjuncts(inner.args.get("where")), how)

    def _condition(
        self, node: exp.Expr, columns: Mapping[tuple[str, str], tuple[str, str]], held: Mapping[str, Any]
    ) -> Any:
        rows, own = self._rows(columns, held)
        return rows.condition(own(node)).ibis

    # SELECT

    def _projected(self, placed: _Placed, select: exp.Select) -> _Relation:
        held = {name: placed.table[name] for name, _ in placed.columns.values()}
        if select.is_star:
            if len(select.expressions) > 1 or len({column for _, column in placed.columns}) < len(placed.columns):
                self._refuse(select)
            chosen = {column: placed.columns[alias, column] for alias, column in placed.columns}
            table = placed.table.select(**{name: held[at] for name, (at, _) in chosen.items()})
            return _Relation(table=table, types={name: type_ for name, (_, type_) in chosen.items()})
        rows, own = self._rows(placed.columns, held)
        aggregates = self._aggregates(rows, own, placed)
        windows = Windows(lambda one: rows.read(own(one)), aggregates)
        values = {}
        for item in select.expressions:
            if window := item.find(exp.Window):
                found = windows.read(item.unalias()) if window is item.unalias() else None
                value = self._refuse(window, f"of windows {WINDOWS}") if found is None else found
            else:
                value = self._stored(rows.read(own(item.unalias())), item)
            values[item.alias_or_name] = value
        table = placed.table.select(**{name: value.ibis for name, value in values.items()})
        return _Relation(table=table, types={name: value.type for name, value in values.items()})

    def _grouped(self, placed: _Placed, select: exp.Select, group: exp.Group) -> _Relation:
        held = {name: placed.table[name] for name, _ in placed.columns.values()}
        rows, own = self._rows(placed.columns, held)
        keys = [self._key(_of_bytes(node), own) for node in group.expressions]
        at = {key: f"k{i}" for i, key in enumerate(keys)}
        by = {at[key]: rows.read(exp.column(exp.to_identifier(key, quoted=True))).ibis for key in keys}
        chosen = [(item.alias_or_name, _of_group(item.unalias())) for item in select.expressions]
        aggregates = self._aggregates(rows, own, placed)
        sums = {name: self._aggregate(node, aggregates) for name, node in chosen if not isinstance(node, exp.Column)}
        shown = {name: self._key(node, own) for name, node in chosen if name not in sums}
        if not at.keys() >= set(shown.values()):
            self._refuse(select)
        values = {name: value.ibis for name, value in sums.items()}
        table = placed.table.group_by(**by, **_apart(by)).aggregate(**values)
        table = table.select(**{name: table[name if name in sums else at[shown[name]]] for name, _ in chosen})
        kept = {name: rows.read(own(node)) for name, node in chosen if name not in sums} | sums
        return _Relation(table=table, types={name: kept[name].type for name, _ in chosen})

    def _key(self, node: exp.Expr, own: Callable[[exp.Expr], exp.Expr]) -> str:
        key = own(node)
        if not isinstance(key, exp.Column):
            self._refuse(node)
        return str(key.name)

    def _aggregate(self, node: exp.Expr, aggregates: Aggregates) -> Value:
        """An aggregate of the rows of a group."""
        found = aggregates.read(node)
        return self._refuse(node, f"in a subquery {READ}") if found is None else found

    def _aggregates(self, rows: Rows, own: Callable[[exp.Expr], exp.Expr], placed: _Placed) -> Aggregates:
        """What reads aggregates of some rows."""

        def number(kept: Any) -> Any:
            return placed.table.count() if kept is None else kept.sum().fill_null(0)

        return Aggregates(number, lambda one: rows.read(own(one)), lambda one: rows.condition(own(one)))

    # Expressions

    def _rows(
        self, columns: Mapping[tuple[str, str], tuple[str, str]], held: Mapping[str, Any]
    ) -> tuple[Rows, Callable[[exp.Expr], exp.Expr]]:
        """The expressions over some columns, and what writes one with names that only one of them has."""
        named: dict[tuple[str, str], str] = {}
        for alias, column in columns:
            name, number = column, count(2)
            while name in named.values():
                name = f"{column}_{next(number)}"
            named[alias, column] = name
        known = {named[key]: (held[at], type_) for key, (at, type_) in columns.items()}

        def own(node: exp.Expr) -> exp.Expr:
            def one(inner: exp.Expr) -> exp.Expr:
                if not isinstance(inner, exp.Column):
                    return inner
                name = self._named(inner, named)
                return exp.column(exp.to_identifier(name, quoted=not name.isidentifier()))

            return node.transform(one)

        return Rows(self._own.engine, known), own

    def _named(self, column: exp.Column, named: Mapping[tuple[str, str], str]) -> str:
        table, name = column.table.lower(), column.name.lower()
        found = [new for (alias, own), new in named.items() if own == name and table in ("", alias)]
        if len(found) != 1:
            raise DPError(
                f"a subquery that reads {identifier(column.name)} of the row around it is not read in {self._own.engine} in this place; "
                "write WHERE EXISTS (SELECT ... WHERE a = b), or a join; or copy the tables to DuckDB."
            )
        return found[0]

    def _stored(self, value: Value, node: exp.Expr) -> Value:
        """A value as a column: of its DuckDB type in the engine too."""
        if value.given:
            return value
        if value.type == "DOUBLE" and value.exact:
            return replace(value, given=True, fallible=False)
        if value.whole:
            return replace(value, ibis=value.ibis.cast("int64"), given=True, fallible=False)
        self._refuse(node.unalias(), "make numbers DOUBLE first: CAST(x AS DOUBLE).")

    def _refuse(self, node: exp.Expr, advice: str = "") -> NoReturn:
        raise DPError(
            f"{_shown(node)} is not read in {self._own.engine}; "
            + (
                advice
                or "join tables there on columns that are equal, with EXISTS and UNION ALL; or copy them to DuckDB."
            )
        )


def _of_bytes(key: exp.Expr) -> exp.Expr:
    """The text of a key by whose bytes rows are grouped; any other key as it is."""
    inner = key.this.unnest() if isinstance(key, exp.Encode) else key
    return inner.this if isinstance(inner, exp.Cast) and isinstance(key, exp.Encode) else inner


def _of_group(node: exp.Expr) -> exp.Expr:
    """The text of a group that was made by its bytes, of which all texts in it are the same; anything else as it is."""
    return node.this if isinstance(node, exp.ArgMin) and node.this == _of_bytes(node.expression) else node


def _apart(keys: Mapping[str, Any]) -> dict[str, Any]:
    """What groups by the bytes of texts: under a collation of the engine two people could be one."""
    return {f"b{i}": by_bytes(key) for i, key in enumerate(keys.values()) if key.type().is_string()}


def _conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """The parts of a condition that are joined by AND, without those that are always true."""
    if node is None:
        return []
    inner = (node.this if isinstance(node, exp.Where) else node).unnest()
    if isinstance(inner, exp.And):
        return [*_conjuncts(inner.this), *_conjuncts(inner.expression)]
    return [] if isinstance(inner, exp.Boolean) and inner.this else [inner]


def _shown(node: exp.Expr) -> str:
    """An expression in a message, without the names that the compiler gave to tables; of a function its name alone."""
    if isinstance(node, exp.Window):
        return f"{_shown(node.this)} OVER (...)"
    if isinstance(node, exp.Filter):
        return f"{_shown(node.this)} FILTER (...)"
    if isinstance(node, exp.Anonymous):
        return f"{of_list(node) or node.name.lower()}(...)"
    if isinstance(node, exp.Func):
        return f"{node.sql_name().lower()}(...)"

    def one(inner: exp.Expr) -> exp.Expr:
        return exp.column(inner.this.copy()) if isinstance(inner, exp.Column) else inner

    return brief(node.copy().transform(one).sql("duckdb"))
