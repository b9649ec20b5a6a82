"""From a SELECT to a relation whose rows are public or have one owner each; what mixes owners is refused.

The SQL that comes out is written anew from what was understood: all tables in full, all columns with the alias of their table,
and nothing of the text that was not read.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import final

from sqlglot import exp

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.row_expressions import checked
from duckdb_dp.errors import identifier
from duckdb_dp.sql import epochs, overflows
from duckdb_dp.sql.distinct_units import one_or_null
from duckdb_dp.sql.owned import canonical, left_joins, literals, names, nested, outer_rows, sets, units, windows
from duckdb_dp.sql.owned.equal_values import settled
from duckdb_dp.sql.owned.joins import Settling
from duckdb_dp.sql.owned.relations import Condition, Field, Item, Joined, Most, Relation, Scope, Tag, Written, as_item
from duckdb_dp.sql.owned.sources import Reading, defined
from duckdb_dp.sql.owned.syntax import check, has_aggregate, refuse
from duckdb_dp.sql.owned.tables import Tables
from duckdb_dp.sql.owned.ties import of_row
from duckdb_dp.sql.owned.totals import Totals, described
from duckdb_dp.sql.zones import check_zoned

Pick = Callable[[exp.Expr], exp.Expr | None]
"""What stands for a node of an expression; None for those that nothing stands for."""

TABLES = 100
"""Tables that a SELECT reads at most: a WITH is written out wherever it is used, so that each use may double the text."""


@final
class Compiler:
    """The relations of one SELECT.

    Args:
        tables: those that it may read.
        as_written: whether relations keep the order in which they were written, as in releases of earlier versions, and views.
        by_settings: whether ORDER BY is left to the connection's settings where it does not say all, as in those releases.
    """

    def __init__(self, tables: Tables, *, as_written: bool = False, by_settings: bool = False) -> None:
        self.tables, self.as_written, self.by_settings = tables, as_written, by_settings
        self.written = dict[int, Written]()
        """The queries of WITH that work row by row, by the id of their relations."""
        self.totals = Totals(self.type_of, self.as_asked)
        self._fields, self._placed = dict[tuple[str, str], Field](), dict[str, Item]()
        self.values: dict[str, tuple[exp.Expr, str]] = {}
        """What stands for a subquery -> its SQL and its type."""
        self.copies = 1
        """The most rows that one of its joins makes of one row."""
        self.further: dict[str, int] = {}
        """Tables of which joins take some rows alone -> how many."""

    # Columns

    def field(self, node: exp.Expr) -> Field | None:
        """The column of an item that an expression is; None of other expressions."""
        return self._fields.get((node.table, node.name)) if isinstance(node, exp.Column) else None

    def _declared(self, column: exp.Column) -> Attribute | None:
        field = self.field(column)
        return None if field is None else field.attribute

    def is_public(self, column: exp.Expr) -> bool:
        """Whether public tables say which values a column has: where it stands beside protected rows, one whose table is known."""
        field = self.field(column)
        if field is None or not field.public:
            return False
        return field.table is not None or not self.item(key_alias(column)).relation.owned

    def item(self, alias: str) -> Item:
        """The item of an alias."""
        return self._placed[alias]

    def type_of(self, column: exp.Column) -> str:
        """The type of a column of an item, or of a subquery's value."""
        return self.values[column.name][1] if not column.table else self._fields[column.table, column.name].type

    def _known_type(self, node: exp.Expr) -> str:
        """The same; '' of what is none, and of what stands for an aggregate before it has a type."""
        if not isinstance(node, exp.Column):
            return ""
        known = self.field(node) is not None if node.table else node.name in self.values
        return self.type_of(node) if known else ""

    def _name_of(self, column: exp.Column) -> str:
        """What a column is called in the statement."""
        field = self.field(column)
        return identifier(field.name) if field is not None and field.name else "an aggregate"

    def as_asked(self, node: exp.Expr) -> exp.Expr:
        """A resolved expression in the words of the statement, for errors."""
        return names.as_asked(node, self.field)

    def called(self, field: Field) -> str:
        """What a column of the relation at the top is called: as in its table, and small letters where it is worked out."""
        if self.as_written:
            return field.name
        return field.column if field.table is not None else field.name.lower()

    def put(self, relation: Relation, join: str = "") -> Item:
        """An item of FROM, under an alias of its own."""
        alias, family = f"t{len(self._placed)}", self.tables.family
        relation = replace(relation, query=self.in_form(relation.query))
        unit = family.unit_table, tuple(sorted(family.unit))
        fields = tuple([of_row(field, alias, unit) for field in relation.fields])
        item = Item(alias=alias, relation=replace(relation, fields=fields), join=join)
        self._placed[item.alias] = item
        self._fields |= {(item.alias, field.at): field for field in fields}
        self.note_owner(item)
        return item

    def in_form(self, query: exp.Expr) -> exp.Expr:
        """A relation in the form that all ways to write it share."""
        if self.as_written or isinstance(query, exp.Table):
            return query

        def type_of(alias: str, at: str) -> str | None:
            field = self._fields.get((alias, at))
            return None if field is None else field.type

        return canonical.canonical(query, type_of)

    def note_owner(self, item: Item) -> None:
        """Note the columns of an item that name the owner and have no other name."""
        unit = self.tables.unit_types
        for at, type_ in zip(item.relation.owner, unit, strict=True) if item.relation.owner else ():
            self._fields.setdefault((item.alias, at), Field(name="", at=at, type=type_))

    def value(self, sql: exp.Expr, type_: str) -> exp.Column:
        """What stands for a subquery in an expression."""
        name = f"v{len(self.values)}"
        self.values[name] = (settled(sql, self._around(sql)), type_)
        return exp.column(exp.to_identifier(name, quoted=True))

    def _around(self, query: exp.Expr) -> Callable[[exp.Column], str | None]:
        """The types of columns that a subquery reads of the rows around it; None of its own columns."""
        own = {alias.name for alias in query.find_all(exp.TableAlias)}

        def type_of(column: exp.Column) -> str | None:
            field = self._fields.get((column.table, column.name))
            return None if field is None or column.table in own else field.type

        return type_of

    def emitted(self, node: exp.Expr) -> exp.Expr:
        """A resolved expression as SQL that never fails."""
        check_zoned(node, self._known_type, self._name_of)  # once more, as the types of aggregates are known now
        overflows.check(node, self.totals.type, self._declared)
        total = self.totals.value(node)

        def one(inner: exp.Expr) -> exp.Expr:
            if isinstance(inner, exp.Column) and not inner.table:
                return self.values[inner.name][0].copy()
            return inner

        return total.transform(one)

    def condition(self, node: exp.Expr) -> exp.Expr:
        """A resolved condition as SQL that never fails, also where it is no truth value by itself."""
        type_ = self.totals.type(node)
        found = self.emitted(node)
        return found if type_ in ("BOOLEAN", '"NULL"') else exp.TryCast(this=found, to=exp.DataType.build("BOOLEAN"))

    # Expressions

    def resolve(
        self, node: exp.Expr, scope: Scope, pick: Pick | None = None, *, condition: bool = False, within: str = ""
    ) -> exp.Expr:
        """An expression of a row over the columns of items, with a column for each subquery.

        Args:
            node: the expression.
            scope: where its columns are looked for.
            pick: what stands for a node, before its columns are looked for; None of those that nothing stands for.
            condition: whether it is a condition, of which NULL is false.
            within: the alias that it defines, which does not stand for itself.

        Raises:
            DPError: it uses something that is not allowed.
        """
        tokens: dict[str, exp.Expr] = {}

        def token(found: exp.Expr, asked: exp.Expr) -> exp.Expr:
            # As it was written, since errors show it.
            name = asked.sql("duckdb") if isinstance(asked, exp.Column) and asked.table else asked.name or "subquery"
            while name in tokens and tokens[name] != found:
                name += "_"
            tokens[name] = found
            return exp.column(exp.to_identifier(name, quoted=True))

        def alias(name: str) -> exp.Expr | None:
            found = scope.aliases.get(name) if name != within else None
            return None if found is None else self.resolve(found, scope, pick, within=name)

        def one(inner: exp.Expr) -> exp.Expr:
            found = None if pick is None else pick(inner)
            if found is None and isinstance(inner, exp.Column):
                found = names.column(inner, scope, alias)
            if found is None:
                found = nested.value(self, inner, scope, condition=condition)
            return inner if found is None else token(found, inner)

        def back(inner: exp.Expr) -> exp.Expr:
            if not isinstance(inner, exp.Column):
                return inner
            found = tokens[inner.name].copy()
            return found if isinstance(found, exp.Column | exp.Literal | exp.Paren) else exp.paren(found, copy=False)

        def type_of(column: exp.Column) -> str:
            return self._known_type(tokens[column.name].unnest()) if column.name in tokens else ""

        plain = exp.paren(node.transform(one), copy=False)  # whose inner node may be replaced
        allowed = checked(epochs.of_moments(plain, type_of).this, {name.lower(): name for name in tokens})
        if all(map(type_of, allowed.find_all(exp.Column))):
            check_zoned(allowed, type_of)
        return allowed.transform(back)

    # Queries

    def query(self, node: exp.Expr, ctes: dict[str, Relation]) -> Relation:
        """The relation of a query that reads no columns of another.

        Raises:
            DPError: it mixes owners, is not understood, or reads too many tables.
        """
        relation = self._query(node, ctes)
        read = sum(1 for _ in relation.query.find_all(exp.Table))
        if read > TABLES:
            refuse(
                node,
                f"reads {read} tables where each WITH that is used again counts again, and at most {TABLES} are read",
            )
        return relation

    def _query(self, node: exp.Expr, ctes: dict[str, Relation]) -> Relation:
        if isinstance(node, exp.Subquery):
            check(node)
            return self.query(node.this, ctes)
        if isinstance(node, exp.SetOperation):
            return sets.union(self, node, self._with(node, ctes))
        if not isinstance(node, exp.Select):
            refuse(node, "is not read here; write SELECT ... FROM ...")
        scope = self.scope(node, None, ctes)
        if windows.has_window(node):
            return windows.windowed(self, node, scope)
        if any(map(has_aggregate, node.expressions)) or any(node.args.get(word) for word in ("group", "having")):
            return units.grouped(self, node, scope)
        joined = scope.joined
        columns = self.columns(node, scope)
        relation = self.projected(joined, columns, scope)
        if node.args.get("distinct"):
            relation = sets.distinct(relation, node)
        return sets.cut(relation, node)

    def columns(self, select: exp.Select, scope: Scope) -> list[tuple[str, exp.Expr]]:
        """Names and resolved expressions of a SELECT's list."""
        return [
            (name, value if known else self.resolve(value, scope, within=name.lower()))
            for name, value, known in names.starred(select.expressions, scope)
        ]

    def projected(self, joined: Joined, columns: list[tuple[str, exp.Expr]], scope: Scope) -> Relation:
        """The relation of a SELECT of resolved expressions."""
        # In a join several rows of a unit may have one number.
        select, fields, alone = self.select(joined), list[Field](), len(joined.items) == 1
        for place, (name, value) in enumerate(columns):
            at = f"c{place}"
            select = select.select(exp.alias_(self.emitted(value), at, quoted=True), copy=False)
            field = self.shown(value, name, at)
            fields.append(replace(field, public=field.public or joined.owner is None, numbers=field.numbers and alone))
        owner = tuple(f"o{i}" for i in range(len(joined.owner or ())))
        select = select.select(*self.tables.owned_by(joined.owner or (), owner) if owner else (), copy=False)
        return Relation(
            query=select,
            fields=tuple(fields),
            owned=joined.owner is not None,
            owner=owner,
            single=joined.single,
            keys=self._keys(joined, fields, columns, [item.relation.keys for item in joined.items]),
            declared=self._keys(joined, fields, columns, [item.relation.declared for item in joined.items]),
            expected=self._keys(joined, fields, columns, [item.relation.expected for item in joined.items]),
            most=self.most(joined),
            fan=joined.fan,
        )

    def most(self, joined: Joined, values: list[exp.Expr] | None = None) -> Most | None:
        """How many rows of a FROM one unit has at most, or how many different values of some expressions of these."""
        if joined.owner is None or not self.tables.bounded:
            return None
        columns = None if values is None else [column for value in values for column in value.find_all(exp.Column)]
        settled = Settling(self, joined)
        wanted = None if columns is None or any(not c.table for c in columns) else settled.determining(columns)
        return outer_rows.most(settled.joining, wanted, self.tables.counted)

    def _keys(
        self,
        joined: Joined,
        fields: list[Field],
        columns: list[tuple[str, exp.Expr]],
        keys: list[tuple[frozenset[str], ...]],
    ) -> tuple[frozenset[str], ...]:
        """Of one item alone, those of its keys whose columns are all there."""
        if len(joined.items) != 1:
            return ()
        held = {value.name: field.at for field, (_, value) in zip(fields, columns, strict=True) if self.field(value)}
        return tuple(frozenset(held[c] for c in key) for key in keys[0] if key <= set(held))

    def shown(self, value: exp.Expr, name: str, at: str) -> Field:
        """The column of a SELECT of an expression."""
        field = self.field(value.unnest())
        if field is None:
            type_ = self.totals.type(value)
            return Field(name=name, at=at, type=type_, maybe=self._maybe(value), told=literals.told(value, type_))
        left = self._placed[key_alias(value.unnest())].join
        return replace(field.optional if left else field, name=name, at=at)

    def _maybe(self, value: exp.Expr) -> frozenset[Tag]:
        """What an expression says about the owner where it is not NULL."""
        found: frozenset[Tag] | None = None
        for column in one_or_null(value):
            field = self.field(column)
            known = frozenset[Tag]() if field is None else field.tags | field.maybe
            found = known if found is None else found & known
        return found or frozenset()

    def select(self, joined: Joined) -> exp.Select:
        """FROM and WHERE."""
        select = exp.Select()
        for place, item in enumerate(joined.items):
            named = as_item(item)
            if place == 0:
                select = select.from_(named, copy=False)
            elif item.join:
                on = exp.and_(*(self.condition(one.node) for one in item.on)) if item.on else exp.true()
                select = select.join(named, join_type=item.join, on=on, copy=False)
            else:
                select = select.join(named, join_type="CROSS", copy=False)
        for condition in joined.conditions:
            select = select.where(self.condition(condition.node), copy=False)
        return select

    # FROM

    def scope(
        self,
        select: exp.Select,
        outer: Scope | None,
        ctes: dict[str, Relation],
        more: Callable[[Scope], list[Condition]] | None = None,
    ) -> Scope:
        """What a SELECT reads: its FROM and WHERE, with the owner of each row.

        Args:
            select: the SELECT.
            outer: what is around it, whose columns it may read.
            ctes: those that it may read beside its own.
            more: further conditions, once it is known what FROM names.

        Raises:
            DPError: rows of several owners are joined.
        """
        check(select)
        joined = Joined(outer=None if outer is None else outer.joined)
        scope = Scope(outer=outer, ctes=self._with(select, ctes), joined=joined)
        Reading(self, scope).read(select)
        left_joins.as_inner(self, joined)
        if more is not None:
            joined.conditions += more(scope)
        if not self.as_written:
            joined.items = canonical.in_order(joined.items)
        Settling(self, joined).settle()
        return scope

    def _with(self, query: exp.Expr, ctes: dict[str, Relation]) -> dict[str, Relation]:
        found = dict(ctes)
        words = query.args.get("with_")
        if words is not None:
            check(words)
            for cte in words.expressions:
                found[cte.alias.lower()] = defined(self, cte, found)
        return found

    def columns_of(self, query: exp.Expr) -> tuple[tuple[str, str], ...]:
        """Names and types of the columns of emitted SQL, as DuckDB gives them on empty tables.

        Raises:
            DPError: DuckDB cannot bind it.
        """
        return described(self.tables.emptied(query).sql("duckdb"))


def key_alias(node: exp.Expr) -> str:
    """The alias of a column of an item."""
    return str(node.args["table"].name)
