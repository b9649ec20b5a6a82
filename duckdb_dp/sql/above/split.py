"""From a statement to the SELECTs that aggregate rows of people, and what works on their answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import final

from sqlglot import exp

from duckdb_dp.errors import DPError, brief, identifier
from duckdb_dp.sql import qualifiers
from duckdb_dp.sql.above.kinds import Kind, Kinds, Names, Relation, ctes, group_keys, sources, subqueries
from duckdb_dp.sql.above.lift import below, lift, must_lift
from duckdb_dp.sql.above.quotients import Quotients, Reader
from duckdb_dp.sql.any_row import check_qualify, counted_instead, of_rows

ANSWER, PUBLIC, CTE = "_dp_answer", "_dp_public", "_dp_with"
"""What the answers, the public tables and the CTEs of a statement are called, with a number."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Statements whose private part is a batch of SELECTs.

    Attributes:
        selects: those SELECTs, each on its own.
        bodies: the statements on ``_dp_answer<i>``, the answers of the i-th, and ``_dp_public<i>``, the i-th public table.
        publics: the public tables, by name as they were asked for.
    """

    selects: tuple[exp.Select, ...]
    bodies: tuple[exp.Query, ...]
    publics: tuple[str, ...]


def answers_of(number: int) -> Split:
    """That of so many SELECTs that aggregate, with nothing above them."""
    bodies = tuple(exp.select("*").from_(exp.to_table(f"{ANSWER}{place}")) for place in range(number))
    return Split(selects=(), bodies=bodies, publics=())


def split(
    statements: Sequence[exp.Query], table: Callable[[exp.Table], Relation], planned: Callable[[exp.Select], bool]
) -> Split | None:
    """The parts of statements; None where each of them is one SELECT that aggregates, or nothing in them does.

    Args:
        statements: as parsed; they are not changed.
        table: what a table stands for that is no CTE.
        planned: whether a SELECT can be planned over declared cells as it is. Then it is the same request however it is sorted and cut.

    Raises:
        DPError: a table's name is one that is used here.
    """
    for node in (node for statement in statements for node in statement.find_all(exp.Table, exp.CTE)):
        if (node.alias_or_name or node.name).lower().startswith("_dp_"):
            raise DPError(
                f"{brief(node.sql('duckdb'))}: names that start with _dp_ are used by dp_sql; take another one."
            )
    kinds = Kinds(table)
    statements = [_grouped(statement, kinds) for statement in statements]
    found = _Splitter(kinds, planned, Quotients(kinds, planned))
    if all(found.is_plain(statement) for statement in statements):
        return None
    copies = [statement.copy() for statement in statements]
    for one in copies:
        found.quotients.of_statement(one)
    bodies = tuple(found.above(one, {}) for one in copies)
    return Split(selects=tuple(found.selects), bodies=bodies, publics=tuple(found.publics)) if found.selects else None


def _grouped(statement: exp.Query, kinds: Kinds) -> exp.Query:
    """The statement without GROUP BY ALL where that has subqueries in it that are answers of their own, or public: they are no groups.

    It is not changed.
    """

    def positions(select: exp.Select) -> list[int] | None:
        """The places of the items that are grouped by; None where all of them are."""
        group = select.args.get("group")
        if group is None or not group.args.get("all") or select.find(exp.Subquery) is None:
            return None
        names: Names = {}
        for around in reversed([select, *_around(select)]):
            names = kinds.scope(around, names)
        if kinds.of(select, names).kind is not Kind.ANSWER:
            return None
        keys = group_keys(select)
        kept = [key for key in keys if not _apart(key, select, kinds, names)]
        items = [item.unalias() for item in select.expressions]
        return [items.index(key) + 1 for key in kept] if len(kept) < len(keys) else None

    if not any(positions(select) is not None for select in statement.find_all(exp.Select)):
        return statement
    found = statement.copy()
    for select in [*found.find_all(exp.Select)]:
        if (places := positions(select)) is not None:
            numbers = [exp.Literal.number(place) for place in places]
            select.set("group", exp.Group(expressions=numbers) if numbers else None)
    return found


def _around(node: exp.Expr) -> list[exp.Query]:
    found, parent = [], node.parent
    while parent is not None:
        found += [parent] if isinstance(parent, exp.Query) else []
        parent = parent.parent
    return found


def _apart(item: exp.Expr, around: exp.Select, kinds: Kinds, names: Names) -> bool:
    """Whether an item is SELECTs to be released, or of public rows, that surely read nothing of the row around it, or is made of such."""
    inside = list(item.walk(prune=lambda node: isinstance(node, exp.Query)))
    queries = [node for node in inside if isinstance(node, exp.Query)]
    if not queries or any(isinstance(node, exp.Column) for node in inside):
        return False
    return all(_is_apart(one, around, kinds, names) for one in queries)


def _is_apart(query: exp.Query, around: exp.Select, kinds: Kinds, names: Names) -> bool:
    inner = query.unnest()
    if not isinstance(query, exp.Subquery) or not isinstance(inner, exp.Select):
        return False
    if kinds.of(inner, names).kind is Kind.ROWS or _outer_column(inner, around, kinds, names) is not None:
        return False
    named = all(column.table for column in inner.find_all(exp.Column))
    return named or all(kinds.source(source, names).columns() for source in sources(inner))


def _outer_column(inner: exp.Select, around: exp.Select, kinds: Kinds, names: Names) -> exp.Column | None:
    """A column of the row around it that a SELECT reads."""
    own, outer = list(sources(inner)), {source.alias_or_name.lower(): source for source in sources(around)}
    aliases = {source.alias_or_name.lower() for source in own}
    held = [kinds.source(source, names).columns() for source in own]
    for column in inner.find_all(exp.Column):
        table, name = column.table.lower(), column.name.lower()
        other = any(name in kinds.source(source, names).columns() for source in outer.values())
        known = all(held) and not any(name in columns for columns in held)
        if (table in outer and table not in aliases) or (not table and known and other):
            return column
    return None


def _select(query: exp.Expr) -> exp.Select:
    inner = query.unnest()
    assert isinstance(inner, exp.Select)
    return inner


@final
@dataclass(slots=True)
class _Splitter:
    kinds: Kinds
    planned: Callable[[exp.Select], bool]
    quotients: Quotients
    selects: list[exp.Select] = field(default_factory=list)
    publics: dict[str, int] = field(default_factory=dict)
    renamed: dict[int, str] = field(default_factory=dict)

    def is_plain(self, query: exp.Query) -> bool:
        """Whether it is one SELECT that aggregates, or rows of people, which are refused where SELECTs are read."""
        kind = self.kinds.of(query, {}).kind
        return kind is Kind.ROWS or (kind is Kind.ANSWER and self._lifted(_select(query)) is None)

    def _lifted(self, query: exp.Select) -> exp.Select | None:
        """A SELECT that aggregates, with what stands above its aggregates apart; None where it is answered as it is.

        Raises:
            DPError: it names a column of a table that it does not read, or what stands above names an alias that is another column too.
        """
        qualifiers.check(query, sources(query), self._full, self._columns(query))
        clash = self._clash(query)
        if clash is not None:
            if not must_lift(query):
                return None
            raise DPError(
                f"{brief(query.sql('duckdb'))}: {identifier(clash)} is a column and an alias of something else, and is named above the "
                "aggregates; give the alias another name."
            )
        # Several tables cannot be planned, whatever stands above; and without what moves there, nothing does.
        more = must_lift(query) or any(query.args.get(word) for word in ("having", "order", "limit"))
        if more and len(list(sources(query))) == 1 and (must_lift(query) or not self.planned(query)):
            apart = lift(query, having=True)
            if self.planned(below(apart)):
                return apart
        return lift(query) if must_lift(query) else None

    def _full(self, table: exp.Table) -> tuple[str, ...] | None:
        return self.kinds.source(table, {}).name or None

    def _columns(self, query: exp.Select) -> set[str]:
        return {column for source in sources(query) for column in self.kinds.source(source, {}).columns()}

    def _clash(self, query: exp.Select) -> str | None:
        """An alias that is the name of another column that is read, where anything but its own item names it."""
        known = self._columns(query)
        for item in query.expressions:
            name, inner = str(item.alias).lower(), item.unalias()
            if name not in known or (isinstance(inner, exp.Column) and inner.name.lower() == name):
                continue
            others = [other for other in query.expressions if other is not item and other.find(exp.Window)]
            others += [query.args[word] for word in ("group", "having", "order", "qualify") if query.args.get(word)]
            inside = inner.find_all(exp.Window)
            if any(
                column.name.lower() == name and not column.table
                for one in [*others, *inside]
                for column in one.find_all(exp.Column)
            ):
                return name
        return None

    def above(self, query: exp.Expr, names: Names) -> exp.Query:
        """The query with answers in place of what aggregates rows of people."""
        if isinstance(query, exp.Subquery):
            query.set("this", self.above(query.this, names))
            return query
        found = self.kinds.of(query, names)
        if found.kind is Kind.ROWS:
            if of_rows(query) is not None:
                raise DPError(f"{brief(query.sql('duckdb'))} {counted_instead(query)}.")
            raise DPError(
                f"{brief(query.sql('duckdb'))} lists rows of people, which are never shown; aggregate them: SELECT count(*) ... GROUP "
                "BY a column."
            )
        if found.kind is Kind.ANSWER:
            assert isinstance(query, exp.Select)
            check_qualify(query)
            lifted = self._lifted(query)
            if lifted is None:
                return self._answer(query, names)
            query = lifted
            self.quotients.move(
                below(query), [Reader(select=query, source=source, others=frozenset()) for source in sources(query)]
            )
        inside = self.kinds.scope(query, names)
        self._ctes(query, names)
        if isinstance(query, exp.SetOperation):
            for side in ("this", "expression"):
                query.set(side, self.above(query.args[side], inside))
        elif isinstance(query, exp.Select):
            for node in subqueries(query):
                self._check_apart(node, query, inside)
            for source in list(sources(query)):
                self._source(source, inside)
        for node in list(subqueries(query)):
            node.replace(self.above(node, inside)) if isinstance(node, exp.Query) else None
        assert isinstance(query, exp.Query)
        return query

    def _check_apart(self, node: exp.Expr, around: exp.Select, names: Names) -> None:
        """Refuse a SELECT to be released that reads the row around it: it is asked once, and not for each row."""
        inner = node.unnest()
        if not isinstance(inner, exp.Select) or self.kinds.of(inner, names).kind is not Kind.ANSWER:
            return
        column = _outer_column(inner, around, self.kinds, names)
        if column is not None:
            raise DPError(
                f"{brief(inner.sql('duckdb'))} reads {column.sql('duckdb')} of the row around it, and it is released once, not for "
                "each row. Ask it for all of them first, with GROUP BY what it is compared by: CREATE TABLE known AS FROM "
                "dp_sql('SELECT ... GROUP BY ...'), CALL dp_public('known'), and join that."
            )

    def _ctes(self, query: exp.Expr, names: Names) -> None:
        """The CTEs of a query's own WITH under names of their own; rows of people are only read by the SELECTs below."""
        kept = []
        inside = dict(names)
        for cte in ctes(query):
            known = self.kinds.scope(query, names)[cte.alias.lower()]
            if known.kind is not Kind.ROWS:
                self.renamed[id(cte)] = f"{CTE}{len(self.renamed)}"
                new = cte.copy()
                new.set("this", self.above(cte.this.copy(), inside))
                new.set("alias", exp.TableAlias(this=exp.to_identifier(self.renamed[id(cte)])))
                if named := cte.args["alias"].columns:  # apart, as a name before a parenthesis is taken for a call
                    inner = exp.Subquery(
                        this=new.this, alias=exp.TableAlias(this=exp.to_identifier("below"), columns=named)
                    )
                    new.set("this", exp.select(*(exp.column(one.copy()) for one in named)).from_(inner))
                kept.append(new)
            inside[cte.alias.lower()] = known
        if query.args.get("with_"):
            if query.args["with_"].args.get("recursive"):
                raise DPError("WITH RECURSIVE is not read above answers; write the steps one after the other.")
            query.set("with_", exp.With(expressions=kept) if kept else None)

    def _answer(self, select: exp.Select, names: Names) -> exp.Query:
        """SELECT * of an answer, whose SELECT is noted with the CTEs that it reads."""
        text = select.copy()
        needed = self._needed(text, names)
        if needed:
            own = ctes(text)
            text.set("with_", exp.With(expressions=[*(cte.copy() for cte in needed), *own]))
        if text not in self.selects:
            self.selects.append(text)
        return exp.select("*").from_(exp.to_table(f"{ANSWER}{self.selects.index(text)}"))

    def _needed(self, query: exp.Expr, names: Names) -> list[exp.CTE]:
        """The CTEs around a query that it reads, and those that these read, in order."""
        read = {
            node.name.lower()
            for node in query.find_all(exp.Table)
            if not node.db and isinstance(node.this, exp.Identifier)
        }
        found: list[exp.CTE] = []
        for name in [name for name in names if name in read]:
            cte = names[name].cte
            if cte is not None:
                for one in [*self._needed(cte.this, {k: v for k, v in names.items() if k != name}), cte]:
                    if all(one is not other for other in found):
                        found.append(one)
        return found

    def _source(self, node: exp.Expr, names: Names) -> None:
        """An item of FROM, which stands for public rows: an answer, a public table, or work on them."""
        if isinstance(node, exp.Subquery):
            node.set("this", self.above(node.this, names))
            return
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            return
        alias = node.alias_or_name
        named = None if node.db or node.catalog else names.get(node.name.lower())
        if named is not None and named.cte is not None:
            new = self.renamed[id(named.cte)]
        else:
            asked = ".".join(part.sql("duckdb") for part in node.parts)
            new = f"{PUBLIC}{self.publics.setdefault(asked, len(self.publics))}"
        for word in ("db", "catalog"):
            node.set(word, None)
        node.set("this", exp.to_identifier(new))
        if not node.args.get("alias"):
            node.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
