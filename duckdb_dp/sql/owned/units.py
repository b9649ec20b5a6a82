"""Groups of one unit's rows inside a statement: GROUP BY, DISTINCT and UNION that keep apart what belongs to two units."""

import re
from dataclasses import replace
from typing import TYPE_CHECKING, final

from sqlglot import exp, parse_one

from duckdb_dp.errors import DPError, brief
from duckdb_dp.sql.no_numbers import as_number
from duckdb_dp.sql.owned import fan_out, names
from duckdb_dp.sql.owned.equal_values import extreme, shown
from duckdb_dp.sql.owned.first_rows import FIRST, of_extreme
from duckdb_dp.sql.owned.joins import Settling
from duckdb_dp.sql.owned.literals import told
from duckdb_dp.sql.owned.relations import Fan, Field, Joined, Most, Relation, Scope, atom
from duckdb_dp.sql.owned.sets import cut
from duckdb_dp.sql.owned.syntax import check, conjuncts, has_aggregate, refuse
from duckdb_dp.sql.owned.ties import Equalities, determines, key, unit_alone
from duckdb_dp.sql.owned.totals import WIDE, described, kind
from duckdb_dp.sql.same_conditions import form

if TYPE_CHECKING:
    from duckdb_dp.sql.owned.compiler import Compiler  # for types: it reads queries, which have groups

_LISTED: dict[type[exp.Expr], str] = {
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Variance: "var_samp",
    exp.VariancePop: "var_pop",
    exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp",
    exp.StddevPop: "stddev_pop",
    exp.Median: "median",
}
"""Aggregates of numbers, worked out on the sorted list of a unit's doubles: the order of the rows, which other units may change, would
change the last digits of a sum."""

_FINITE = (
    "CASE WHEN CAST(x AS DOUBLE) = 0 THEN CAST(0 AS DOUBLE) "
    "WHEN isfinite(CAST(x AS DOUBLE)) THEN greatest(least(CAST(x AS DOUBLE), 1e100), -1e100) END"
)
"""A number of which no sum and no variance fails: as NULL where it is infinite or NaN, and cut where its square would be. Of 0 and -0,
which are equal, a median would be either."""

_ANY_ORDER = (exp.Count, exp.CountIf, exp.Min, exp.Max, exp.LogicalAnd, exp.LogicalOr)
"""Aggregates that are the same in any order of the rows."""

_EXACT = {"whole", "exact"}


def grouped(compiler: "Compiler", select: exp.Select, scope: Scope) -> Relation:
    """The relation of a SELECT with groups: of protected rows each group is one unit's.

    Raises:
        DPError: a group may hold rows of several units.
    """
    return _Groups(compiler, select, scope).relation()


def single_value(compiler: "Compiler", select: exp.Select, scope: Scope) -> exp.Expr:
    """The value of a SELECT of one aggregate, which reads the rows of one owner, or public ones."""
    return _Groups(compiler, select, scope).value()


@final
class _Groups:
    """One SELECT with groups, in three steps: keys and what aggregates take, aggregates, and expressions of these."""

    def __init__(self, compiler: "Compiler", select: exp.Select, scope: Scope) -> None:
        self._compiler, self._select, self._scope = compiler, select, scope
        self._keys: list[exp.Expr] = []
        self._taken: list[exp.Expr] = []
        self._aggregates: list[exp.Expr] = []

    def relation(self) -> Relation:
        """The relation, with each output's type."""
        select, joined, compiler = self._select, self._scope.joined, self._compiler
        if select.args.get("distinct"):
            refuse(select, "has DISTINCT beside groups, which are distinct already; leave it out")
        listed = names.starred(select.expressions, self._scope)
        self._read_keys(listed)
        if not (compiler.as_written or form() == 1):
            self._keys.sort(key=_nameless)  # any order makes the same groups
        owned = joined.owner is not None
        fields = [replace(compiler.shown(key, "", f"g{i}"), numbers=False) for i, key in enumerate(self._keys)]
        if owned:
            self._check_owner(fields)
        outputs = [(name, value if known else self._above(value)) for name, value, known in listed]
        having = (
            [self._above(one) for one in conjuncts(select.args["having"].this)] if select.args.get("having") else []
        )
        owner = tuple(f"o{i}" for i in range(len(joined.owner or ())))
        item = compiler.put(self._grouped(joined, fields, owner))
        result = self._finished(item.alias, outputs, having, owner)
        shown = [self._field(item.alias, name, value, f"c{i}", fields) for i, (name, value) in enumerate(outputs)]
        held = {field.at for field in fields}
        keys = {value.name: f.at for f, (_, value) in zip(shown, outputs, strict=True) if value.name in held}
        whole = (frozenset(keys.values()),) if set(keys) == held else ()
        single = owned and (joined.single or unit_alone(compiler.tables.family, fields))
        most = Most() if single else compiler.most(joined, self._keys)
        relation = Relation(
            query=result,
            fields=tuple(shown),
            owned=owned,
            owner=owner,
            single=single,
            keys=whole,
            most=most,
            fan=Fan() if single else joined.fan,
        )
        return cut(relation, select)

    def value(self) -> exp.Expr:
        """What stands for the value of a SELECT of one aggregate without groups."""
        compiler, joined = self._compiler, self._scope.joined
        output = self._above(self._select.expressions[0].unalias())
        own = {item.alias for item in joined.items}
        if any(column.table not in own for one in self._taken for column in one.find_all(exp.Column)):
            fan_out.limit(compiler, joined, Settling(compiler, joined).joining, around=True)
        item = compiler.put(Relation(query=exp.Select(), fields=tuple(self._typed()), owned=False))
        type_ = compiler.totals.type(_plain(output, item.alias))
        value, select = compiler.emitted(_plain(output, item.alias)), compiler.select(joined)
        if isinstance(value, exp.Column):
            select = select.select(value.transform(self._inlined), copy=False)
        else:  # by itself, as TRY takes no aggregates
            for place in range(len(self._aggregates)):
                column = exp.column(f"a{place}")
                select = select.select(
                    exp.alias_(column.transform(self._inlined), column.name, quoted=True), copy=False
                )
            named = exp.TableAlias(this=exp.to_identifier(item.alias, quoted=True))
            select = exp.Select().from_(exp.Subquery(this=select, alias=named)).select(value, copy=False)
        return compiler.value(exp.Subquery(this=select), type_)

    def _inlined(self, node: exp.Expr) -> exp.Expr:
        """The aggregate itself in place of its column."""
        if not isinstance(node, exp.Column) or not re.fullmatch(r"a\d+", node.name):
            return node
        found = self._aggregates[int(node.name[1:])]

        def taken(inner: exp.Expr) -> exp.Expr:
            return self._compiler.emitted(self._taken[int(inner.name[1:])]) if isinstance(inner, exp.Column) else inner

        return found.transform(taken)

    def _read_keys(self, listed: list[tuple[str, exp.Expr, bool]]) -> None:
        group = self._select.args.get("group")
        if group is None:
            if self._scope.joined.owner is not None:
                refuse(
                    self._select,
                    "has one group of all units inside; GROUP BY the unit's key, or ask it in a SELECT of its own first",
                )
            return
        check(group)
        if group.args.get("all"):
            self._keys = [v if known else self._row(v) for _, v, known in listed if known or not has_aggregate(v)]
            return
        for node in group.expressions:
            inner = node.unnest()
            if isinstance(inner, exp.Literal) and not inner.is_string:
                place = int(inner.name) if inner.name.isdigit() else 0
                if not 1 <= place <= len(listed):
                    refuse(self._select, f"groups by {inner.name}, but selects {len(listed)} columns")
                _, value, known = listed[place - 1]
                self._keys.append(value if known else self._row(value))
            else:
                self._keys.append(self._row(inner))

    def _row(self, node: exp.Expr) -> exp.Expr:
        return self._compiler.resolve(node, self._scope).unnest()

    def _check_owner(self, fields: list[Field]) -> None:
        if not determines(fields):
            family = self._compiler.tables.family
            unit = ", ".join(family.unit)
            if not family.unit:
                refuse(self._select, "groups rows inside, where every row is a unit; aggregate once, at the top")
            refuse(
                self._select,
                f"has groups inside that may hold rows of several units; GROUP BY the unit's key ({unit}) or a key of one of its tables, "
                "or ask it in a SELECT of its own first",
            )

    def _above(self, node: exp.Expr) -> exp.Expr:
        """An expression over keys, g<i>, and aggregates, a<i>."""
        texts = [key.sql("duckdb") for key in self._keys]

        def pick(inner: exp.Expr) -> exp.Expr | None:
            if isinstance(inner, exp.Filter | exp.AggFunc | exp.IgnoreNulls):
                return exp.column(self._aggregate(inner))
            if isinstance(inner, exp.Window):
                refuse(inner, "reads the rows of several units; use GROUP BY the unit in a subquery")
            if has_aggregate(inner) or isinstance(inner, exp.Query | exp.Exists):
                return None
            if isinstance(inner, exp.Column) or any(True for _ in inner.find_all(exp.Column)):
                if isinstance(inner, exp.Column) and self._is_alias(inner):
                    return None
                text = self._row(inner).sql("duckdb")
                if text in texts:
                    return exp.column(f"g{texts.index(text)}")
                if isinstance(inner, exp.Column):
                    raise DPError(
                        f"{brief(inner.sql('duckdb'))} is neither grouped by nor in an aggregate; add it to GROUP BY."
                    )
            return None

        return self._compiler.resolve(node, self._scope, pick).unnest()

    def _is_alias(self, node: exp.Column) -> bool:
        """Whether a name is an alias of an aggregate, and no column."""
        found = self._scope.aliases.get(node.name.lower())
        columns = {name.lower() for source in self._scope.sources for name, _ in source.columns}
        return not node.table and found is not None and has_aggregate(found) and node.name.lower() not in columns

    def _aggregate(self, node: exp.Expr) -> str:
        inner = node.this if isinstance(node, exp.Filter) else node
        inner = inner.this if isinstance(inner, exp.IgnoreNulls) else inner
        if isinstance(inner, exp.AnyValue) and isinstance(inner.this, exp.Column) and self._is_one(inner.this):
            inner = exp.Min(this=inner.this)
        where = self._take(node.expression.this, condition=True) if isinstance(node, exp.Filter) else None
        extra = {name for name, value in inner.args.items() if value} - {"this", "big_int"}
        if extra or not isinstance(inner, exp.AggFunc) or not isinstance(inner, (*_ANY_ORDER, *_LISTED)):
            if isinstance(inner, exp.ArgMin | exp.ArgMax):
                refuse(node, f"is not read here; take the row that has it: {of_extreme(inner, self._select)}")
            refuse(
                node,
                "depends on the order of the rows, or is not read here; ask count, sum, avg, min, max or median, or take the first row of "
                f"each unit in a subquery of its own: {FIRST}",
            )
        value = inner.this
        if isinstance(inner, exp.Count) and isinstance(value, exp.Star):
            made: exp.Expr = exp.Count(this=exp.Star(), big_int=True)
        elif isinstance(value, exp.Distinct):
            if not isinstance(inner, exp.Count | exp.Min | exp.Max) or len(value.expressions) != 1:
                refuse(node, "is not read here; of DISTINCT values only one column is counted")
            column = self._take(value.expressions[0])
            made = self._extreme(inner, column)
            if isinstance(inner, exp.Count):
                made = exp.Count(this=exp.Distinct(expressions=[column]))
        elif isinstance(value, exp.Order) or value is None:
            refuse(node, "is not read here; ask count, sum, avg, min, max or median")
        else:
            made = self._of(inner, value, where)
            where = None if type(inner) in _LISTED else where
        if where is not None:
            made = exp.Filter(this=made, expression=exp.Where(this=where))
        texts = [one.sql("duckdb") for one in self._aggregates]
        if made.sql("duckdb") not in texts:
            self._aggregates.append(made)
            texts.append(made.sql("duckdb"))
        return f"a{texts.index(made.sql('duckdb'))}"

    def _is_one(self, column: exp.Column) -> bool:
        """Whether a column has one value in each group, as a key of its table is grouped by."""
        compiler, joined, found = self._compiler, self._scope.joined, self._row(column)
        if not isinstance(found, exp.Column) or compiler.field(found) is None:
            return False
        nodes = [one.node for one in joined.conditions if one.scope is None]
        equal, item = Equalities(nodes, compiler.field), compiler.item(found.args["table"].name)
        grouped = {equal.of(key(one)) for one in self._keys if isinstance(one, exp.Column)}
        return any({equal.of((item.alias, at)) for at in one} <= grouped for one in item.relation.keys)

    def _of(self, inner: exp.Expr, value: exp.Expr, where: exp.Expr | None) -> exp.Expr:
        """An aggregate of a value. Doubles are added in the order of their size, so that no other row can change their sum."""
        taken = self._take(value, condition=isinstance(inner, exp.CountIf | exp.LogicalAnd | exp.LogicalOr))
        if type(inner) not in _LISTED:
            return self._extreme(inner, taken)
        name = _LISTED[type(inner)]
        found = self._compiler.totals.type(self._taken[int(taken.name[1:])])

        def filtered(one: exp.Expr) -> exp.Expr:
            return one if where is None else exp.Filter(this=one, expression=exp.Where(this=where))

        if kind(found) in _EXACT and name in ("sum", "avg"):
            return filtered(type(inner)(this=taken))
        if kind(found) not in {*_EXACT, *WIDE, "double", "BOOLEAN"} and not found.startswith("DECIMAL"):
            refuse(
                inner,
                f"is of {found}, and only numbers have a sum, an average or a median; take {as_number(value.sql('duckdb'), found)}",
            )
        number = parse_one(_FINITE.replace("(x ", f"({taken.name} "), dialect="duckdb")
        listed = exp.func("list_sort", filtered(exp.Anonymous(this="list", expressions=[number])))
        return exp.Anonymous(this="list_aggregate", expressions=[listed, exp.Literal.string(name)])

    def _extreme(self, inner: exp.Expr, taken: exp.Column) -> exp.Expr:
        """An aggregate that is the same in any order of the rows, of a column x<i>."""
        made = type(inner)(this=taken)
        if not isinstance(inner, exp.Min | exp.Max):
            return made
        return extreme(made, self._compiler.totals.type(self._taken[int(taken.name[1:])]))

    def _take(self, node: exp.Expr, *, condition: bool = False) -> exp.Column:
        """The column of what an aggregate takes of each row."""
        found = self._row(node)
        if condition and self._compiler.totals.type(found) not in ("BOOLEAN", '"NULL"'):
            found = exp.TryCast(this=found, to=exp.DataType.build("BOOLEAN"))
        texts = [one.sql("duckdb") for one in self._taken]
        if found.sql("duckdb") not in texts:
            self._taken.append(found)
            texts.append(found.sql("duckdb"))
        return exp.column(f"x{texts.index(found.sql('duckdb'))}")

    def _grouped(self, joined: Joined, fields: list[Field], owner: tuple[str, ...]) -> Relation:
        """SELECT g<i>, a<i>, o<i>: keys, aggregates and the owner, which is one of the keys."""
        compiler = self._compiler
        first = compiler.select(joined)
        named = [
            *((f"g{i}", key) for i, key in enumerate(self._keys)),
            *((f"x{i}", one) for i, one in enumerate(self._taken)),
        ]
        for at, value in named:
            first = first.select(exp.alias_(compiler.emitted(value), at, quoted=True), copy=False)
        first = first.select(*compiler.tables.owned_by(joined.owner or (), owner) if owner else (), copy=False)
        if not named and not owner:
            first = first.select(exp.alias_(exp.Literal.number(1), "one"), copy=False)
        second = exp.Select().from_(exp.Subquery(this=first, alias=exp.TableAlias(this=exp.to_identifier("r"))))
        keys = [*(f"g{i}" for i in range(len(self._keys))), *owner]
        for field, one in zip(fields, shown({field.at: field.type for field in fields}), strict=True):
            second = second.select(exp.alias_(one, field.at), copy=False)
        for at in owner:
            second = second.select(exp.column(at), copy=False)
        for i, one in enumerate(self._aggregates):
            second = second.select(exp.alias_(one, f"a{i}"), copy=False)
        if not keys and not self._aggregates:
            second = second.select(exp.alias_(exp.Literal.number(1), "one"), copy=False)
        if keys:
            second = second.group_by(*(exp.column(at, table="r") for at in keys), copy=False)
        return Relation(query=second, fields=(*fields, *self._typed()), owned=joined.owner is not None, owner=owner)

    def _typed(self) -> list[Field]:
        """The columns of the aggregates."""
        row = [
            exp.alias_(exp.cast(exp.null(), self._compiler.totals.type(x), dialect="duckdb"), f"x{i}")
            for i, x in enumerate(self._taken)
        ]
        listed = [exp.alias_(one, f"a{i}") for i, one in enumerate(self._aggregates)]
        if not listed:
            return []
        inner = exp.Subquery(this=exp.select(*(row or [exp.Literal.number(1)])))
        return [
            Field(name="", at=at, type=type_) for at, type_ in described(exp.select(*listed).from_(inner).sql("duckdb"))
        ]

    def _finished(
        self, alias: str, outputs: list[tuple[str, exp.Expr]], having: list[exp.Expr], owner: tuple[str, ...]
    ) -> exp.Select:
        compiler = self._compiler
        query = compiler.item(alias).relation.query
        found = exp.Select().from_(
            exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        )
        for place, (_, value) in enumerate(outputs):
            found = found.select(
                exp.alias_(compiler.emitted(_plain(value, alias)), f"c{place}", quoted=True), copy=False
            )
        for at in owner:
            found = found.select(exp.alias_(atom(alias, at), at, quoted=True), copy=False)
        for one in having:
            found = found.where(compiler.condition(_plain(one, alias)), copy=False)
        return found

    def _field(self, alias: str, name: str, value: exp.Expr, at: str, keys: list[Field]) -> Field:
        plain, public = _plain(value, alias), self._scope.joined.owner is None
        own = next((field for field in keys if isinstance(value, exp.Column) and field.at == value.name), None)
        if own is not None:
            return replace(own, name=name, at=at, public=own.public or public)
        type_ = self._compiler.totals.type(plain)
        return Field(name=name, at=at, type=type_, public=public, told=told(plain, type_))


def _plain(node: exp.Expr, alias: str) -> exp.Expr:
    """The expression with g<i> and a<i> as columns of an item."""

    def one(inner: exp.Expr) -> exp.Expr:
        return (
            atom(alias, inner.name)
            if isinstance(inner, exp.Column) and not inner.table and inner.name[0] in "ga"
            else inner
        )

    return node.transform(one)


def _nameless(key: exp.Expr) -> str:
    """A key without the names of its tables, which are numbered as FROM is read."""
    found = key.copy()
    for column in found.find_all(exp.Column):
        column.set("table", None)
    return found.sql("duckdb")
