"""The SELECT at the top: it aggregates one relation whose rows have one owner each, as if that were a table."""

from collections.abc import Collection
from dataclasses import replace
from typing import final

from sqlglot import exp

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.grouped_sums import Source
from duckdb_dp.sql import unlisted
from duckdb_dp.sql.owned import (
    condition_values,
    determined,
    different_values,
    names,
    nested,
    once_in_groups,
    public_groups,
    public_ranges,
    public_references,
    public_rows,
)
from duckdb_dp.sql.owned.aggregated import Top as Top
from duckdb_dp.sql.owned.compiler import Compiler, key_alias
from duckdb_dp.sql.owned.fan_out import check_single, check_work
from duckdb_dp.sql.owned.lookups import lookup
from duckdb_dp.sql.owned.on_keys import on_keys
from duckdb_dp.sql.owned.relations import Condition, Most, Scope, Tag, atom
from duckdb_dp.sql.owned.syntax import GROUPED, has_aggregate, refuse
from duckdb_dp.sql.owned.tables import Read, Tables
from duckdb_dp.sql.owned.ties import determines, same_unit, unit_tags
from duckdb_dp.sql.same_conditions import conjunction, form
from duckdb_dp.sql.typed import check_literals, check_texts
from duckdb_dp.synthesis.database import Name

RELATION = "joined"
"""What the relation is called in the SELECT at the top."""


def top(
    tables: Tables,
    select: exp.Select,
    taken: dict[str, object],
    read: Read,
    *,
    finds: bool = False,
    as_written: bool = False,
    by_keys: Collection[str] = (),
) -> Top:
    """The relation that a SELECT aggregates, and the SELECT over it.

    Args:
        tables: those that it may read.
        select: the SELECT.
        taken: names of columns of other SELECTs of the call, with their declarations; those of this one are added.
        finds: whether values that nobody has declared are found: what is grouped by is then a column of the relation.
        by_keys: columns in place of which the keys of public tables to which they refer are grouped by.
        read, as_written: as ever.

    Raises:
        DPError: it mixes units, or is not understood.
    """
    compiler = Compiler(tables, as_written=as_written, by_settings=as_written)
    return _Top(compiler, select, taken, read, finds, by_keys).compiled()


@final
class _Top:
    """One SELECT."""

    def __init__(
        self,
        compiler: Compiler,
        select: exp.Select,
        taken: dict[str, object],
        read: Read,
        finds: bool,
        by_keys: Collection[str],
    ):
        self._compiler, self._select, self._taken, self._read = compiler, select, taken, read
        self._keys, self._parents = names.keys_of(select), public_references.Keys(compiler, select, by_keys, read)
        self._finds, self._sought = finds, dict[str, str]()
        self._outputs: dict[str, tuple[str, exp.Expr]] = {}
        self._words: dict[str, str] = {}
        self._listed: dict[str, Attribute] = {}
        self._queries: dict[str, exp.Expr] = {}
        self._together: list[public_groups.Together] = []
        self._owner: tuple[exp.Expr, ...] = ()
        self._conditions: list[exp.Expr] = []

    def compiled(self) -> Top:
        """All of it."""
        compiler, select = self._compiler, self._select
        for word in ("distinct", "qualify", "sample", "offset"):
            if select.args.get(word):
                refuse(
                    select, f"has {word.upper()} beside the aggregates of joined tables; GROUP BY gives each group once"
                )
        inner = select.copy()
        for word in ("group", "having", "order", "limit"):
            inner.set(word, None)
        scope = compiler.scope(inner, None, {}, self._join)
        joined, select = scope.joined, self._select
        if joined.owner is None:
            refuse(select, "reads public tables alone: run it as it is, at no cost")
        self._owner = joined.owner
        self._conditions = [condition.node for condition in joined.conditions]
        check_literals(self._conditions, compiler.totals.type, named=compiler.as_asked)
        check_texts(self._conditions, {}, compiler.totals.type, compiler.as_asked)
        select = self._grouped(scope)
        self._groups(scope)
        found = exp.Select(expressions=[self._item(item, scope) for item in select.expressions])
        for word in ("group", "having", "order", "limit"):
            node = select.args.get(word)
            if node is not None:
                found.set(word, self._rewritten(node, scope, word))
        found.set("from_", exp.From(this=exp.to_table(RELATION)))
        beside = on_keys(compiler, self._conditions, [value for _, value in self._outputs.values()], self._parents.of)
        kept = [self._columns(node) for node in [*filter(self._known, self._conditions), *beside]]
        if kept:
            found.set("where", exp.Where(this=exp.and_(*kept) if compiler.as_written else conjunction(kept)))
        declared, columns = self._declared(found, scope), dict(self._outputs.values())
        held = public_ranges.held(compiler, joined, found, columns, declared, self._read)
        check_single(compiler, joined)
        check_work(select, compiler.copies)
        return Top(
            select=found,
            source=self._source(scope),
            columns={name: compiler.totals.type(value) for name, value in self._outputs.values()},
            unit=self._unit(scope),
            declared=declared,
            origins=self._origins(),
            refers=public_references.of_columns(compiler, columns),
            never=self._never(),
            unlisted=unlisted.told(self._conditions, lambda column: self._attribute(column, "")),
            words=self._words,
            held=held,
            different=different_values.most(compiler, joined, found, columns),
            once=once_in_groups.holds(compiler, joined, found, self._outputs, declared, self._same_unit),
        )

    def _join(self, scope: Scope) -> list[Condition]:
        """Read the joins of FROM as they matter here, and join public tables for their keys."""
        self._select = names.by_place(self._select, scope)
        self._keys = names.keys_of(self._select)
        public_rows.join(scope, self._select, [key for _, key in self._keys])
        return self._parents.join(scope, self._keys)

    # Columns of the relation

    def _output(self, value: exp.Expr, shown: str = "") -> exp.Expr:
        """The column of the relation that holds a value; it is added where it is new."""
        text = value.sql("duckdb")
        if text not in self._outputs:
            field = self._compiler.field(value)
            wanted = shown or ("subquery" if field is None else self._compiler.called(field))
            attribute: object = self._attribute(value, "")
            used = {name.lower() for name, _ in self._outputs.values()}
            if text in self._sought:  # what is found under one name is one thing, and no owner's column
                attribute = text if field is None or field.table is None else (field.table, field.column)
                used |= {name.lower() for name in self._compiler.tables.family.unit}
            table = "" if field is None or field.table is None else f"{field.table[2]}."
            options = [wanted, f"{table}{wanted}", *(f"{table}{wanted} {i}" for i in range(2, 1000))]
            name = next(
                o for o in options if o.lower() not in used and self._taken.get(o.lower(), attribute) == attribute
            )
            self._taken[name.lower()] = attribute
            self._outputs[text] = (name, value)
        return exp.column(exp.to_identifier(self._outputs[text][0], quoted=True))

    def _attribute(self, value: exp.Expr, name: str) -> Attribute | None:
        """The declaration of a column as it is; one that an outer join may leave out is NULL there."""
        field = self._compiler.field(value)
        if field is None or field.attribute is None:
            return None
        left = field.left or bool(self._compiler.item(key_alias(value)).join)
        return replace(field.attribute, name=name or field.attribute.name, nulls=field.attribute.nulls or left)

    def _columns(self, node: exp.Expr) -> exp.Expr:
        """A resolved expression over the columns of the relation."""

        def one(inner: exp.Expr) -> exp.Expr:
            if not isinstance(inner, exp.Column):
                return inner
            field = self._compiler.field(inner)
            return self._output(self._same_unit(inner), "" if field is None else self._compiler.called(field))

        return node.transform(one)

    def _same_unit(self, column: exp.Column) -> exp.Column:
        """The owner's column in place of another one that holds the unit's key too."""
        compiler = self._compiler
        if compiler.field(column) is None or compiler.item(key_alias(column)).join:
            return column
        return same_unit(column, self._owner, self._unit_tags(), compiler.field)

    def _unit_or_null(self, written: exp.Expr, column: exp.Column) -> exp.Expr | None:
        """The owner's column, or NULL, in place of one of which distinct values are counted and that is one of the two."""
        compiler, owner = self._compiler, self._owner
        tags, own = self._unit_tags(), owner[0] if owner else None
        counted = written.find_ancestor(exp.Distinct) is not None
        if len(tags) != 1 or not isinstance(own, exp.Column) or not counted or self._same_unit(column) == own:
            return None
        found, known = compiler.field(column), compiler.field(own)
        if found is None or known is None or known.type != found.type or tags[0] not in found.tags | found.maybe:
            return None
        there = exp.Not(this=exp.Is(this=self._columns(column), expression=exp.Null()))
        return exp.Case(ifs=[exp.If(this=there, true=self._output(own, found.name))])

    def _unit_tags(self) -> list[Tag]:
        return unit_tags(self._compiler.tables.family)

    def _known(self, node: exp.Expr) -> bool:
        """Whether a condition only reads columns that are read anyway: they say between which bounds values lie."""
        columns = list(node.find_all(exp.Column))
        if isinstance(node, exp.EQ) and len(columns) > 1:
            return False  # of a join
        return bool(columns) and all(self._same_unit(c).sql("duckdb") in self._outputs for c in columns)

    # The SELECT

    def _item(self, item: exp.Expr, scope: Scope) -> exp.Expr:
        inner = item.unalias()
        found = self._rewritten(inner, scope)
        named = (
            names.of_from(inner, scope) if isinstance(inner, exp.Column) else inner.sql("duckdb")
        )  # as DuckDB calls it
        name = item.alias or (named if isinstance(found, exp.Column) or isinstance(inner, exp.Column) else "")
        return exp.alias_(found, name, quoted=True) if name and (item.alias or found.name != name) else found

    def _rewritten(self, node: exp.Expr, scope: Scope, word: str = "") -> exp.Expr:
        """A part of the SELECT with columns of the relation in place of what it reads of a row."""
        compiler = self._compiler

        def one(inner: exp.Expr) -> exp.Expr:
            if isinstance(inner, exp.Column):
                if word == "order" and not inner.table and inner.name.lower() in scope.aliases:
                    return inner
                found = self._parents.of(names.column(inner, scope, lambda name: self._alias(name, scope)))
                if found.args.get("table") is not None and found.args["table"].name == _ALIAS:
                    return exp.column(inner.name, quoted=True)
                unit = self._unit_or_null(inner, found) if isinstance(found, exp.Column) else None
                read = self._key(found) or unit or self._columns(found)
                read = read if isinstance(read, exp.Column) else exp.paren(read, copy=False)
                self._words.setdefault(read.sql("duckdb"), inner.sql("duckdb"))
                return read
            if isinstance(inner, GROUPED) and (self._listed or self._sought):
                apart = has_aggregate(inner) or names.of_aggregate(inner, scope)
                made = None if apart else self._made(inner, scope)
                if made is not None:
                    self._words.setdefault(made.sql("duckdb"), inner.sql("duckdb"))
                    return made
            value = nested.value(compiler, inner, scope, condition=False)
            return inner if value is None else self._columns(value)

        return node.transform(one)

    def _made(self, node: exp.Expr, scope: Scope) -> exp.Expr | None:
        """The column of what is grouped by; a subquery, which is resolved to another one each time, is known by what it says."""
        if node.find(exp.Query):
            value = self._queries.get(node.unnest().sql("duckdb"))
            return None if value is None else self._key(value)
        return self._key(self._parents.of(self._compiler.resolve(node, scope)))

    def _alias(self, name: str, scope: Scope) -> exp.Expr | None:
        """What an alias of the SELECT stands for: a mark where it is an aggregate's, which is not of a row."""
        node = scope.aliases.get(name)
        if node is None:
            return None
        if has_aggregate(node):
            return atom(_ALIAS, name)
        known = self._queries.get(node.unnest().sql("duckdb"))
        return exp.paren(known.copy() if known else self._compiler.resolve(node, scope, within=name), copy=False)

    # Groups

    def _grouped(self, scope: Scope) -> exp.Select:
        """The SELECT, which groups by what its groups determine too."""
        keys = [self._resolved_key(scope, *key) for key in self._keys if not key[1].find(exp.Query)]
        select = determined.grouped(self._compiler, scope, self._select, keys, self._read)
        self._keys = names.keys_of(select)
        return select

    def _resolved_key(self, scope: Scope, shown: str, node: exp.Expr) -> exp.Expr:
        return self._parents.of(public_references.resolved(self._compiler, scope, shown, node))

    def _groups(self, scope: Scope) -> None:
        """Note what is grouped by whose values the conditions list, and columns of public tables that are grouped by together."""
        public: dict[str, exp.Expr] = {}
        for shown, node in self._keys:
            value = self._resolved_key(scope, shown, node)
            if node.find(exp.Query):
                if form() < 9:
                    continue
                self._queries[node.unnest().sql("duckdb")] = value
            own = self._compiler.field(value)
            if own is not None and own.attribute is None and determines([own]):
                refuse(
                    self._select,
                    f"groups by {shown}, so that each group is of one unit and would show it; leave it out, or aggregate once more: "
                    "SELECT ... FROM (SELECT ...)",
                )
            if own is not None and self._compiler.is_public(value):
                item = self._compiler.item(key_alias(value))
                if not item.relation.owned and (
                    not item.join or public_groups.is_hard_left(self._compiler, scope.joined, value, self._read)
                ):
                    public[value.sql("duckdb")] = value
            columns = [*value.find_all(exp.Column)]
            fields = [(self._compiler.field(column), self._compiler.is_public(column)) for column in columns]
            if all(f is not None and (public or condition_values.decides(f.attribute, value)) for f, public in fields):
                if fields and all(f is not None and public and f.attribute is None for f, public in fields):
                    known = public_groups.whole(self._compiler, scope.joined, value, shown, self._read)
                    self._listed |= {} if known is None else {value.sql("duckdb"): known}
                elif own is None:
                    known = condition_values.beyond(
                        value, self._compiler.totals.type, self._attribute, shown, self._conditions
                    )
                    self._listed |= {} if known is None else {value.sql("duckdb"): known}
                continue
            found = condition_values.known(value, self._compiler.totals.type, self._attribute, shown, self._conditions)
            found = found or public_groups.told(self._compiler, value, shown, self._attribute, self._conditions)
            if found is not None:
                asks = found.nulls and node.find(exp.Query) is not None
                self._listed[value.sql("duckdb")] = nested.without_null(self._compiler, value, found) if asks else found
            elif self._finds:
                self._sought[value.sql("duckdb")] = shown
        self._together = public_groups.together(self._compiler, scope.joined, list(public.values()), self._read)

    def _key(self, value: exp.Expr) -> exp.Expr | None:
        """The column of something grouped by whose values the conditions list, or are found."""
        text = value.unnest().sql("duckdb")
        for one in self._together:
            if text in one.columns:
                return one.part(text, self._output(one.value, one.attribute.name))
        if text in self._sought:
            return self._output(value.unnest(), self._sought[text])
        found = self._listed.get(text)
        return None if found is None else self._output(value.unnest(), found.name)

    def _declared(self, select: exp.Select, scope: Scope) -> dict[str, Attribute]:
        """The declarations of the relation's columns, with values of public ones that are grouped by."""
        group = select.args.get("group")
        keyed = [] if group is None else [group, *(item for item in select.expressions if not has_aggregate(item))]
        read = {column.name for node in keyed for column in node.find_all(exp.Column)}
        found = {}
        together = {one.value.sql("duckdb"): one.attribute for one in self._together}
        for text, (name, value) in self._outputs.items():
            if text in together:
                found[name] = replace(together[text], name=name)
            elif text in self._listed:
                found[name] = replace(self._listed[text], name=name)
            elif (attribute := self._attribute(value, name)) is not None:
                found[name] = attribute
            elif self._compiler.is_public(value) and name in read:
                found[name] = public_groups.values(self._compiler, scope.joined, value, name, self._read)
        return found

    def _origins(self) -> dict[str, tuple[Name, str]]:
        fields = ((name, self._compiler.field(value)) for name, value in self._outputs.values())
        return {name: (one.table, one.column) for name, one in fields if one is not None and one.table is not None}

    def _never(self) -> frozenset[str]:
        columns = ((name, value, self._compiler.field(value)) for name, value in self._outputs.values())
        known = ((name, value) for name, value, field in columns if field is not None and not field.nullable)
        return frozenset(name for name, value in known if not self._compiler.item(key_alias(value)).join)

    def _unit(self, scope: Scope) -> tuple[str, ...]:
        owner = [one.sql("duckdb") for one in scope.joined.owner or ()]
        known = [self._outputs[text][0] for text in owner if text in self._outputs]
        return tuple(known) if len(known) == len(owner) else ()

    def _source(self, scope: Scope) -> Source:
        """The relation's SQL, bound on empty tables, before anything is charged."""
        compiler, joined = self._compiler, scope.joined
        select = compiler.select(joined)
        for name, value in self._outputs.values():
            select = select.select(exp.alias_(compiler.emitted(value), name, quoted=True), copy=False)
        late = lookup(select, joined)
        owner = tuple(f"_dp_owner{i}" for i in range(len(joined.owner or ())))
        for name, one in zip(owner, joined.owner or (), strict=True):
            select = select.select(exp.alias_(one.copy(), name, quoted=True), copy=False)
        if not select.expressions:
            select = select.select(exp.alias_(exp.Literal.number(1), "_dp_row"), copy=False)
        most = Most() if joined.single else compiler.most(joined)
        return Source(
            sql=compiler.in_form(select).sql("duckdb"),
            owner=owner,
            types=tuple(type_ for name, type_ in compiler.columns_of(select) if name in owner),
            single=joined.single,
            rows=None if most is None else most.rows,
            bound="" if most is None else str(most),
            further=", ".join(f"{rows} of {name}" for name, rows in compiler.further.items()),
            lookup=late,
        )


_ALIAS = "@alias"
"""The table of a column that stands for the alias of an aggregate."""
