"""FROM and WHERE: which relations a SELECT joins, under which names, and by which conditions."""

from dataclasses import replace
from typing import TYPE_CHECKING, final

from sqlglot import exp, parse_one

from duckdb_dp.errors import DPError
from duckdb_dp.sql.owned import first_rows, names
from duckdb_dp.sql.owned.relations import Condition, Joined, Relation, Scope, Source, Written, atom, with_names
from duckdb_dp.sql.owned.syntax import check, conjuncts, plain, refuse
from duckdb_dp.sql.parsed import is_parentheses, itself
from duckdb_dp.sql.same_conditions import form

if TYPE_CHECKING:
    from duckdb_dp.sql.owned.compiler import Compiler  # for types: it reads queries, which have a FROM

_JOINS = {"", "INNER", "OUTER", "CROSS"}

Columns = dict[str, exp.Expr]
"""Columns by their names in small letters."""


@final
class Reading:
    """Reads the FROM of one SELECT into its scope.

    Args:
        compiler: compiles what it names.
        scope: of the SELECT.
    """

    def __init__(self, compiler: "Compiler", scope: Scope) -> None:
        self._compiler, self._scope = compiler, scope

    def read(self, select: exp.Select) -> None:
        """Add what FROM names to the scope, and the conditions of its inner joins and of WHERE."""
        scope = self._scope
        scope.aliases |= {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}
        source = select.args.get("from_")
        if source is None:
            refuse(select, "has no FROM; name a table")
        check(source)
        self._joins(source.this, select.args.get("joins") or [])
        where = select.args.get("where")
        if where is not None:
            check(where)
            scope.joined.conditions += [Condition(node=one, scope=scope) for one in conjuncts(where.this)]

    def _joins(self, first: exp.Expr, joins: list[exp.Join]) -> None:
        """Add a table and those that are joined with it, one after the other."""
        scope = self._scope
        outer_joins = any(join.side in ("RIGHT", "FULL") for join in joins)
        self._source(first, flat=not outer_joins)
        for place, join in enumerate(joins):
            check(join)
            side, kind, method = join.side, join.kind, join.method
            if kind in ("SEMI", "ANTI") and not method:
                scope.joined.conditions.append(Condition(node=self._exists(join), scope=scope))
                continue
            if kind not in _JOINS or method not in ("", "NATURAL") or (side in ("RIGHT", "FULL") and place):
                word = " ".join(filter(None, (method, side, kind)))
                refuse(
                    join, f"is a {word} JOIN, which is not read here; write INNER or LEFT JOIN, or EXISTS (SELECT ...)"
                )
            self._check_apart(join)
            before = len(scope.sources)
            left = {name.lower(): value for one in scope.sources for name, value in one.columns} | scope.merged
            merged = self._source(join.this, flat=not side and not outer_joins)
            own = {name.lower(): value for one in scope.sources[before:] for name, value in one.columns} | merged
            scope.merged |= {name: value for name, value in merged.items() if name not in left}
            on = [Condition(node=one, scope=scope) for one in conjuncts(join.args.get("on"))]
            on += self._using(join, left, own)
            if side:
                self._outer(side, on)
            else:
                scope.joined.conditions += on

    def _check_apart(self, join: exp.Join) -> None:
        """Refuse LATERAL, also where the word is left out."""
        node = join.this
        inner = node.this.unnest() if isinstance(node, exp.Lateral | exp.Subquery) else node
        around = [source.alias for source in self._scope.sources]
        if isinstance(node, exp.Lateral) or (isinstance(node, exp.Subquery) and first_rows.reads_around(inner, around)):
            alias = node.alias or "firsts"
            proposed, zeros = first_rows.of_each(inner, alias, join.side), first_rows.zeros(inner, alias)
            refuse(node, f"reads the row before it (LATERAL), and is not read here; write {proposed}{zeros}")

    def _exists(self, join: exp.Join) -> exp.Expr:
        """The condition that a SEMI JOIN is, or an ANTI JOIN: [NOT] EXISTS."""
        inner = exp.select(exp.Literal.number(1)).from_(join.this)
        if join.args.get("on") is not None:
            inner = inner.where(join.args["on"])
        alias = exp.to_identifier(join.this.alias_or_name)
        for one in join.args.get("using") or []:
            own = [
                source for source in self._scope.sources if one.name.lower() in {n.lower() for n, _ in source.columns}
            ]
            if not own:
                refuse(join, f"names '{one.name}', which is not a column of both sides")
            outer = exp.column(one.copy(), table=exp.to_identifier(own[0].alias, quoted=True))
            inner = inner.where(exp.EQ(this=exp.column(one.copy(), table=alias.copy()), expression=outer))
        found = exp.Exists(this=inner)
        return exp.Not(this=found) if join.kind == "ANTI" else found

    def _outer(self, side: str, on: list[Condition]) -> None:
        """The last source is that of an outer join; a RIGHT JOIN of two is the LEFT JOIN of them the other way round."""
        joined = self._scope.joined
        if side == "RIGHT":
            joined.items.reverse()
        joined.items[-1].join = "FULL" if side == "FULL" else "LEFT"
        joined.items[-1].on = on
        if side == "FULL":
            joined.items[0].join = "FULL"

    def _using(self, join: exp.Join, left: Columns, own: Columns) -> list[Condition]:
        """The equalities of USING and NATURAL, whose columns stand for both sides."""
        wanted = [one.name.lower() for one in join.args.get("using") or []]
        if join.method == "NATURAL":
            wanted = [name for name in own if name in left]
        elif wanted and join.side == "FULL":
            refuse(
                join,
                "keeps rows that belong to nobody; write a LEFT JOIN from the protected side, or two with UNION ALL",
            )
        found = []
        for name in wanted:
            if name not in left or name not in own:
                refuse(join, f"names '{name}', which is not a column of both sides")
            found.append(Condition(node=exp.EQ(this=left[name].copy(), expression=own[name].copy())))
            self._scope.merged[name] = self._merged(join, left[name], own[name])
        return found

    def _merged(self, join: exp.Join, left: exp.Expr, right: exp.Expr) -> exp.Expr:
        """The column that stands for both: of an inner join the one of which more is known, whichever table is named first."""
        fields = [self._compiler.field(one) for one in (left, right)]
        if join.side or self._compiler.as_written or None in fields:
            return right if join.side == "RIGHT" else left
        ranks = [
            (one.attribute is None, not one.public, one.table or (), one.column) for one in fields if one is not None
        ]
        return right if ranks[1] < ranks[0] else left

    def _source(self, node: exp.Expr, *, flat: bool) -> Columns:
        """One table or subquery of FROM, or joins in parentheses; of these the columns that stand for both sides."""
        if isinstance(node, exp.Subquery) and is_parentheses(node):
            return self._parenthesised(node, flat=flat)
        check(node)
        alias = node.args.get("alias")
        if alias is not None:
            check(alias)
        given = [] if alias is None else [one.name for one in alias.columns]
        parts: tuple[str, ...] = ()
        name = (node.alias or node.name).lower()
        own = itself(node) if isinstance(node, exp.Subquery) and not self._compiler.as_written else None
        if own is not None:
            relation, _ = self._table(own)
        elif isinstance(node, exp.Subquery):
            inner = node.this
            if flat and _by_row(inner):
                self._flat(inner, node.alias, given, self._scope.ctes)
                return {}
            relation = self._compiler.query(inner, self._scope.ctes)
        elif isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            relation, parts = self._table(node)
        else:
            refuse(node, "is not read here; FROM takes tables and subqueries")
        if (
            flat and (written := self._compiler.written.get(id(relation))) is not None
        ):  # of WITH, as the subquery itself
            self._flat(written.select, name, [*given, *written.columns[len(given) :]], written.ctes)
            return {}
        item = self._compiler.put(relation)
        self._scope.joined.items.append(item)
        columns: list[tuple[str, exp.Expr]] = [(field.name, atom(item.alias, field.at)) for field in relation.fields]
        self._name(Source(alias=name, columns=names.renamed(columns, given, name), table=parts))
        return {}

    def _parenthesised(self, node: exp.Subquery, *, flat: bool) -> Columns:
        """Joins in parentheses, whose tables keep their names where the whole has none.

        Inner joins take them as a part of the FROM; outer joins as a subquery, of which all columns are selected.
        """
        check(node)
        first = node.this.copy()
        joins = first.args.pop("joins", None) or []
        alias = node.args.get("alias")
        if not joins and alias is None:
            return self._source(first, flat=flat)
        if alias is not None:
            select = exp.Select(expressions=[exp.Star()], from_=exp.From(this=first), joins=joins)
            return self._source(exp.Subquery(this=select, alias=alias.copy()), flat=flat)
        flat = flat and not any(join.side in ("RIGHT", "FULL") for join in joins)
        inner = Scope(outer=self._scope.outer, ctes=self._scope.ctes, joined=self._scope.joined if flat else Joined())
        Reading(self._compiler, inner)._joins(first, joins)
        if flat:
            for source in inner.sources:
                self._name(source)
            return inner.merged
        places = [(source, name, value) for source in inner.sources for name, value in source.columns]
        listed = [
            exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(source.alias, quoted=True)).as_(
                f"x{i}"
            )
            for i, (source, name, _) in enumerate(places)
        ]
        relation = self._compiler.query(
            exp.Select(expressions=listed, from_=exp.From(this=first), joins=joins), self._scope.ctes
        )
        item = self._compiler.put(relation)
        self._scope.joined.items.append(item)
        found: list[exp.Expr] = [atom(item.alias, field.at) for field in relation.fields]
        for source in inner.sources:
            columns = [(name, found[i]) for i, (one, name, _) in enumerate(places) if one is source]
            self._name(Source(alias=source.alias, columns=columns, table=source.table))
        values = [value for _, _, value in places]
        return {name: found[values.index(value)] for name, value in inner.merged.items()}

    def _table(self, node: exp.Table) -> tuple[Relation, tuple[str, ...]]:
        if len(node.parts) == 1 and node.name.lower() in self._scope.ctes:
            return self._scope.ctes[node.name.lower()], ()
        view = self._compiler.tables.view(node)
        if view is not None:
            text, most = view
            relation = replace(self._compiler.query(parse_one(text, dialect="duckdb"), {}), most=most)
            if form() >= 7 and not self._compiler.as_written:
                relation = self._compiler.tables.declared(relation, node)
            return relation, tuple(part.name.lower() for part in node.parts)
        relation = self._compiler.tables.find(node)
        table = relation.query.find(exp.Table)
        return relation, () if table is None else tuple(part.name.lower() for part in table.parts)

    def _flat(self, select: exp.Select, alias: str, given: list[str], ctes: dict[str, Relation]) -> None:
        """A subquery that works row by row, as a part of the FROM that it stands in: its columns stay expressions."""
        check(select)
        inner = Scope(outer=None, ctes=ctes, joined=self._scope.joined)
        Reading(self._compiler, inner).read(select)
        columns = names.renamed(self._compiler.columns(select, inner), given, alias)
        self._name(Source(alias=alias.lower(), columns=columns))

    def _name(self, source: Source) -> None:
        if source.alias and any(source.alias == other.alias for other in self._scope.sources):
            raise DPError(f"FROM names two tables '{source.alias}'; give one of them an alias.")
        self._scope.sources.append(source)
        for name, value in source.columns:
            if source.alias and self._compiler.field(value) is not None:
                self._compiler.item(value.args["table"].name).words[value.name] = source.alias, name


def defined(compiler: "Compiler", cte: exp.CTE, before: dict[str, Relation]) -> Relation:
    """The relation of a query of WITH, of which it is noted how it was written where it works row by row.

    Args:
        compiler: compiles it.
        cte: the query.
        before: those that it may read.
    """
    check(cte)
    columns = [column.name for column in cte.args["alias"].columns]
    relation = with_names(compiler.query(cte.this, before), columns, cte.alias)
    if _by_row(cte.this) and not compiler.as_written:
        compiler.written[id(relation)] = Written(cte.this, columns, dict(before), relation)
    return relation


def _by_row(query: exp.Expr) -> bool:
    """Whether a subquery works row by row, so that it may be a part of the FROM that it stands in."""
    return isinstance(query, exp.Select) and plain(query) and not _nested(query) and not _turned(query)


def _turned(select: exp.Select) -> bool:
    """Whether it has a join that keeps rows of its second side: beside other tables of FROM that side would be another."""
    return any(join.side in ("RIGHT", "FULL") for join in select.args.get("joins") or [])


def _nested(select: exp.Select) -> bool:
    """Whether a subquery stands in its list, which is read when it is known whose rows are around it."""
    return any(item.find(exp.Query) for item in select.expressions)
