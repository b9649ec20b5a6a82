"""Windows inside a statement, within the rows of one unit: row_number() OVER (PARTITION BY the unit ORDER BY a date)."""

from dataclasses import replace
from typing import TYPE_CHECKING, final

from sqlglot import exp

from duckdb_dp.sql.no_numbers import as_number, numeric
from duckdb_dp.sql.owned import names, numbered_rows
from duckdb_dp.sql.owned.equal_values import apart, bytes_of, extreme
from duckdb_dp.sql.owned.relations import Field, Relation, Scope, atom
from duckdb_dp.sql.owned.sets import cut
from duckdb_dp.sql.owned.syntax import check, conjuncts, outside_queries, refuse
from duckdb_dp.sql.owned.ties import determines, unit_alone
from duckdb_dp.sql.owned.totals import described, kind
from duckdb_dp.sql.same_conditions import form

if TYPE_CHECKING:
    from duckdb_dp.sql.owned.compiler import Compiler  # for types: it reads queries, which have windows

_PLACED = (exp.RowNumber, exp.Lag, exp.Lead, exp.FirstValue, exp.Ntile)
"""What depends on the order of rows that ORDER BY leaves open: all columns that are read follow there."""

_OTHER_ROW = (exp.Lag, exp.Lead, exp.FirstValue)
"""What is a value of its column in another row of the unit, or NULL."""

_RANKED = (exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist)
"""What is the same in any order of rows that are equal."""

_TAKEN = (exp.Column, exp.Identifier, exp.Literal, exp.Star)
"""What a window function may take, and no expression that may fail."""

_AGGREGATES = (exp.Count, exp.CountIf, exp.Min, exp.Max, exp.Sum, exp.Avg)
"""Aggregates of the rows up to those that are equal, or of all of them; sums and averages of exact numbers alone."""


def has_window(select: exp.Select) -> bool:
    """Whether a SELECT has a window in its list, or QUALIFY."""
    return select.args.get("qualify") is not None or any(
        isinstance(node, exp.Window) for item in select.expressions for node in outside_queries(item)
    )


def windowed(compiler: "Compiler", select: exp.Select, scope: Scope) -> Relation:
    """The relation of a SELECT with windows, each of which sees the rows of one unit.

    Raises:
        DPError: a window sees the rows of several units, or depends on an order that nothing says.
    """
    return _Windows(compiler, select, scope).relation()


@final
class _Windows:
    """One SELECT, in two steps: columns and windows, and expressions of these."""

    def __init__(self, compiler: "Compiler", select: exp.Select, scope: Scope) -> None:
        self._compiler, self._select, self._scope = compiler, select, scope
        self._read: list[exp.Expr] = []
        self._windows: list[exp.Window] = []
        self._numbers: set[str] = set()

    def relation(self) -> Relation:
        """The relation, with each output's type."""
        compiler, select, joined = self._compiler, self._select, self._scope.joined
        for word in ("group", "having", "distinct"):
            if select.args.get(word):
                refuse(select, f"has {word.upper()} beside a window; write the window in a subquery of its own")
        outputs = [
            (name, value if known else self._above(value))
            for name, value, known in names.starred(select.expressions, self._scope)
        ]
        qualify = select.args.get("qualify")
        if qualify is not None:
            check(qualify)
        kept = [] if qualify is None else [self._above(one) for one in conjuncts(qualify.this)]
        outputs = [(name, self._inside(value)) for name, value in outputs]
        kept = [self._inside(one) for one in kept]
        owner = tuple(f"o{i}" for i in range(len(joined.owner or ())))
        item = compiler.put(self._inner(owner))
        query = exp.Select().from_(
            exp.Subquery(
                this=item.relation.query, alias=exp.TableAlias(this=exp.to_identifier(item.alias, quoted=True))
            )
        )
        fields = []
        for place, (name, value) in enumerate(outputs):
            shown = _placed(value, item.alias)
            query = query.select(exp.alias_(compiler.emitted(shown), f"c{place}", quoted=True), copy=False)
            field = compiler.shown(shown, name, f"c{place}")
            fields.append(replace(field, numbers=isinstance(value, exp.Column) and value.name in self._numbers))
        for at in owner:
            query = query.select(exp.alias_(atom(item.alias, at), at, quoted=True), copy=False)
        for one in kept:
            query = query.where(compiler.condition(_placed(one, item.alias)), copy=False)
        single, most = joined.single, compiler.most(joined)
        first = numbered_rows.kept(kept, lambda column: column.name in self._numbers)
        found = Relation(
            query=query,
            fields=tuple(fields),
            owned=joined.owner is not None,
            owner=owner,
            single=single,
            most=None if most is None else most.first(first),
            fan=joined.fan,
        )
        return cut(found, select)

    def _above(self, node: exp.Expr) -> exp.Expr:
        """An expression with w<i> in place of windows."""

        def pick(inner: exp.Expr) -> exp.Expr | None:
            return exp.column(self._window(inner)) if isinstance(inner, exp.Window) else None

        return self._compiler.resolve(node, self._scope, pick).unnest()

    def _inside(self, node: exp.Expr) -> exp.Expr:
        """The expression over x<i> in place of columns."""

        def one(inner: exp.Expr) -> exp.Expr:
            if not isinstance(inner, exp.Column) or (inner.name.startswith("w") and not inner.table):
                return inner
            return exp.column(self._column(inner))

        return node.transform(one)

    def _column(self, column: exp.Expr) -> str:
        texts = [known.sql("duckdb") for known in self._read]
        if column.sql("duckdb") not in texts:
            self._read.append(column)
            texts.append(column.sql("duckdb"))
        return f"x{texts.index(column.sql('duckdb'))}"

    def _window(self, node: exp.Window) -> str:
        check(node)
        function, compiler = node.this, self._compiler
        if not isinstance(function, (*_PLACED, *_RANKED, *_AGGREGATES)):
            refuse(
                node,
                "is not read here; windows inside are row_number, rank, lag, lead, first_value, count, sum, min and max",
            )
        keys = [compiler.resolve(one, self._scope).unnest() for one in node.args.get("partition_by") or []]
        owner, known = self._scope.joined.owner, [compiler.shown(key, "", "") for key in keys]
        if owner is not None and not determines(known):
            unit = ", ".join(compiler.tables.family.unit)
            refuse(
                node,
                f"reads the rows of several units; add PARTITION BY the unit's key ({unit}), or a key of one of its tables"
                if unit
                else "reads the rows of several units, as each row is one",
            )
        order = node.args.get("order")
        sorted_by: list[exp.Expr] = []
        for one in [] if order is None else order.expressions:
            check(one)
            found = one.copy()
            found.set(
                "this", exp.column(self._column(compiler.resolve(one.this, self._scope)))
            )  # worked out below, inside TRY
            sorted_by += [found] if compiler.by_settings else _said(found)
        if isinstance(function, _PLACED) and not sorted_by:
            refuse(node, "depends on an order that nothing says; add ORDER BY")
        if any(not isinstance(one, (type(function), *_TAKEN)) for one in function.walk()):
            refuse(node, "takes more than a column; work it out in a subquery, and take the window above that")
        if any(not isinstance(one, exp.Literal) for one in _further(function)):
            refuse(
                node,
                "takes a number, or what stands for nothing, that a row says; write it out, as in lag(x, 2, 0) or ntile(4)",
            )
        taken = function.transform(self._argument)
        self._check_exact(node, taken)
        if isinstance(taken, exp.Min | exp.Max):
            taken = extreme(taken, self._compiler.totals.type(self._read[int(taken.this.name[1:])]))
        made = exp.Window(
            this=taken,
            partition_by=[
                *(exp.column(self._column(key)) for key in keys),
                *(exp.column(f"o{i}") for i in range(len(owner or ()))),
            ],
            order=exp.Order(expressions=sorted_by) if sorted_by else None,
            over="OVER",
        )
        texts = [one.sql("duckdb") for one in self._windows]
        if made.sql("duckdb") not in texts:
            self._windows.append(made)
            texts.append(made.sql("duckdb"))
        name = f"w{texts.index(made.sql('duckdb'))}"
        if isinstance(function, exp.RowNumber) and owner is not None and unit_alone(compiler.tables.family, known):
            self._numbers.add(name)
        return name

    def _argument(self, node: exp.Expr) -> exp.Expr:
        """The column x<i> in place of one that a window function takes."""
        return (
            exp.column(self._column(self._compiler.resolve(node, self._scope)))
            if isinstance(node, exp.Column)
            else node
        )

    def _check_exact(self, node: exp.Window, taken: exp.Expr) -> None:
        """Refuse sums of doubles, whose last digits depend on the order in which they are added, and DISTINCT."""
        if isinstance(taken, exp.Sum | exp.Avg):
            (column,) = taken.find_all(exp.Column)
            type_ = self._compiler.totals.type(self._read[int(column.name[1:])])
            if not numeric(type_):
                refuse(
                    node,
                    f"is of {type_}, and only numbers have a sum; in a subquery take "
                    f"CAST({as_number(node.this.this.sql('duckdb'), type_)} AS DECIMAL(18, 6)), and the window above that",
                )
            if kind(type_) not in ("whole", "exact"):
                refuse(
                    node, f"is of {type_}, whose sums depend on the order of rows; write CAST(... AS DECIMAL(18, 6))"
                )

    def _inner(self, owner: tuple[str, ...]) -> Relation:
        """SELECT x<i>, w<i>, o<i>: columns, windows and the owner."""
        compiler, joined = self._compiler, self._scope.joined
        first = compiler.select(joined)
        for i, one in enumerate(self._read):
            first = first.select(exp.alias_(compiler.emitted(one), f"x{i}"), copy=False)
        first = first.select(*compiler.tables.owned_by(joined.owner or (), owner) if owner else (), copy=False)
        if not first.expressions:
            first = first.select(exp.alias_(exp.Literal.number(1), "one"), copy=False)
        columns = [f"x{i}" for i in range(len(self._read))]
        second = exp.Select().from_(exp.Subquery(this=first, alias=exp.TableAlias(this=exp.to_identifier("r"))))
        for at in (*columns, *owner):
            second = second.select(exp.column(at), copy=False)
        for i, one in enumerate(self._windows):
            second = second.select(exp.alias_(self._ordered(one, columns), f"w{i}"), copy=False)
        fields = [compiler.shown(one, "", f"x{i}") for i, one in enumerate(self._read)]
        return Relation(query=second, fields=(*fields, *self._typed()), owned=joined.owner is not None, owner=owner)

    def _ordered(self, window: exp.Window, columns: list[str]) -> exp.Window:
        """The window with an order of all rows that differ in anything that is read."""
        if isinstance(window.this, _PLACED):
            window = window.copy()
            order, types = window.args["order"], [self._compiler.totals.type(one) for one in self._read]
            more = [
                exp.column(at) if apart(type_) else bytes_of(exp.column(at))
                for at, type_ in zip(columns, types, strict=True)
            ]
            desc = None if self._compiler.by_settings else False
            order.set("expressions", [*order.expressions, *(exp.Ordered(this=one, desc=desc) for one in more)])
        return window

    def _typed(self) -> list[Field]:
        """The columns of the windows."""
        if not self._windows:
            return []
        types = [self._compiler.totals.type(one) for one in self._read]
        row = [exp.alias_(exp.cast(exp.null(), type_, dialect="duckdb"), f"x{i}") for i, type_ in enumerate(types)]
        unit = self._compiler.tables.unit_types
        row += [exp.alias_(exp.cast(exp.null(), type_, dialect="duckdb"), f"o{i}") for i, type_ in enumerate(unit)]
        listed = [exp.alias_(one, f"w{i}") for i, one in enumerate(self._windows)]
        text = exp.select(*listed).from_(exp.Subquery(this=exp.select(*row))).sql("duckdb")
        fields = [Field(name="", at=at, type=type_) for at, type_ in described(text)]
        return [self._of_another_row(one, window) for one, window in zip(fields, self._windows, strict=True)]

    def _of_another_row(self, field: Field, window: exp.Window) -> Field:
        """What is known of a window's column: of lag, lead and first_value that it is a value of their column, or NULL."""
        function = window.this
        if not isinstance(function, _OTHER_ROW) or function.args.get("default") is not None or form() < 6:
            return field
        known = self._compiler.shown(self._read[int(function.this.name[1:])], "", field.at)
        if known.type != field.type:
            return field
        table, column = (known.table, known.column) if known.public else (None, "")
        return replace(known.optional, tags=frozenset(), maybe=frozenset(), numbers=False, table=table, column=column)


def _said(order: exp.Ordered) -> list[exp.Expr]:
    """An item of ORDER BY with its direction and its place of NULLs, whatever the connection's settings say of both."""
    nulls = exp.Is(this=order.this.copy(), expression=exp.null())
    return [
        exp.Ordered(this=nulls, desc=bool(order.args.get("nulls_first"))),
        exp.Ordered(this=order.this, desc=bool(order.args.get("desc"))),
    ]


def _further(function: exp.Expr) -> list[exp.Expr]:
    """What a window function takes beside its column: of a row it might make the function fail. The number of ntile is one."""
    first = () if isinstance(function, exp.Ntile) else ("this",)
    return [value for name, value in function.args.items() if name not in first and isinstance(value, exp.Expr)]


def _placed(node: exp.Expr, alias: str) -> exp.Expr:
    """The expression with x<i> and w<i> as columns of an item."""

    def one(inner: exp.Expr) -> exp.Expr:
        return atom(alias, inner.name) if isinstance(inner, exp.Column) and not inner.table else inner

    return node.transform(one)
