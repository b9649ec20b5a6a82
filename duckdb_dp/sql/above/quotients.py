"""Quotients above the SELECTs that aggregate, moved into them.

``s / n`` above ``sum(x) AS s, count(*) AS n`` is ``sum(x) / count(*)`` in their SELECT. There all sums of a ratio have one weight of
each owner (``plan.weights``), and the ratio is NULL where what it divides by is not clearly away from 0. Whatever cannot be moved stays.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import final

from sqlglot import exp

from duckdb_dp.sql.above.kinds import Kind, Kinds, Names, aggregates, ctes, sources, subqueries

MOVED = "_dp_ratio"
"""What the columns of the quotients are called, with a number."""

_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren, exp.Literal, exp.Nullif)
_SUMS = (exp.Sum, exp.Count, exp.CountIf, exp.Avg)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A SELECT above, and the item of its FROM that stands for the SELECT below.

    Attributes:
        select: the SELECT above.
        source: the item.
        others: the columns of the other items, in small letters; None where those of one are not known.
    """

    select: exp.Select
    source: exp.Expr
    others: frozenset[str] | None

    def reads(self, column: exp.Column, known: dict[str, exp.Expr]) -> bool:
        """Whether a column is that one of the SELECT below, and no other column or alias of that name."""
        name = column.name.lower()
        if name not in known or column.args.get("db"):
            return False
        if column.table:
            return column.table.lower() == self.source.alias_or_name.lower()
        renamed = any(
            item.alias.lower() == name and not isinstance(item.unalias(), exp.Column)
            for item in self.select.expressions
        )
        return not renamed and self.others is not None and name not in self.others


def move(below: exp.Select, readers: Sequence[Reader], first: int) -> int:
    """Move quotients of the readers into the SELECT below; what nothing reads any more is left out there.

    Args:
        below: a SELECT that aggregates rows of people; it is changed.
        readers: all that read it; they are changed.
        first: the number of the first column that is added.

    Returns:
        How many columns were added.
    """
    known = {item.alias_or_name.lower(): item.unalias() for item in below.expressions if _adds_up(item.unalias())}
    if len(known) < 2 or any(not _is_readable(reader) for reader in readers):
        return 0
    moved: dict[str, str] = {}
    read: set[str] = set()
    for reader in readers:
        for node in list(_quotients(reader, known)):
            columns = list(node.find_all(exp.Column))
            read |= {column.name.lower() for column in columns}
            inside = _replaced(node, lambda column: exp.Paren(this=known[column.name.lower()].copy()))
            name = moved.setdefault(inside.sql("duckdb"), f"{MOVED}{first + len(moved)}")
            if name not in {item.alias for item in below.expressions}:
                below.append("expressions", exp.alias_(inside, name, quoted=True))
            here = exp.column(name, table=reader.source.alias_or_name or None, quoted=True)
            shown = isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
            node.replace(_named(here, node) if shown else here)
    if moved:
        for reader in readers:
            _hide(reader, moved.values())
        _leave_out(below, readers, read)
    return len(moved)


def within(query: exp.Expr, is_answer: Callable[[exp.Expr], bool]) -> None:
    """Write quotients of scalar subqueries of the same rows as one subquery: (SELECT sum(x) FROM t) / (SELECT count(*) FROM t)."""
    parts = [part for word, part in _parts(query) if word not in ("with_", "from_")]
    for node in [found for part in parts for found in _outermost(part, lambda one: _divides(one, exp.Subquery))]:
        found = list(node.find_all(exp.Subquery))
        selects = [one.this for one in found]
        if not all(isinstance(one, exp.Select) and is_answer(one) and _is_scalar(one) for one in selects):
            continue
        if len({_rows_of(one).sql("duckdb") for one in selects}) > 1:
            continue
        alike = len({str(one.args.get("where")) for one in selects}) == 1
        if not alike and any(_within_rows(one) for one in selects):
            continue
        inside = _replaced(node, _value_alike if alike else _value_apart, exp.Subquery)
        together: exp.Select = selects[0].copy()
        together.set("expressions", [inside])
        if not alike:
            together.set("where", None)
        shown = isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
        one = exp.Subquery(this=together)
        node.replace(_named(one, node) if shown else one)


def _adds_up(node: exp.Expr) -> bool:
    """Whether it is made of sums over rows by arithmetic."""
    if isinstance(node, exp.Filter):
        return _adds_up(node.this)
    if isinstance(node, _SUMS):
        return not isinstance(node.this, exp.Distinct)
    children = list(node.iter_expressions())
    return isinstance(node, _ARITHMETIC) and bool(children) and all(
        isinstance(child, exp.Literal) or _adds_up(child) for child in children
    )  # fmt: skip


def _is_readable(reader: Reader) -> bool:
    """Whether all columns that a reader reads are known by their names."""
    return not (
        reader.select.args.get("group")
        or reader.source.alias_column_names
        or any(isinstance(item, exp.Columns) or item.find(exp.Columns) for item in reader.select.expressions)
        or any(join.args.get("method") for join in reader.select.args.get("joins") or ())
    )


def _quotients(reader: Reader, known: dict[str, exp.Expr]) -> Iterator[exp.Expr]:
    def is_one(node: exp.Expr) -> bool:
        if not _divides(node, exp.Column):
            return False
        columns = list(node.find_all(exp.Column))
        return len({column.name.lower() for column in columns}) > 1 and all(reader.reads(c, known) for c in columns)

    for word, part in _parts(reader.select):
        if word not in ("with_", "from_", "joins"):
            yield from _outermost(part, is_one)


def _parts(query: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    """What a query consists of, with the name of its clause."""
    for word, value in query.args.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, exp.Expr):
                yield word, item


def _outermost(node: exp.Expr, wanted: Callable[[exp.Expr], bool]) -> list[exp.Expr]:
    """The largest parts of an expression that are wanted, outside of queries in it."""
    if wanted(node):
        return [node]
    if isinstance(node, exp.Query):
        return []
    return [found for child in list(node.iter_expressions()) for found in _outermost(child, wanted)]


def _divides(node: exp.Expr, leaf: type[exp.Expr]) -> bool:
    """Whether it is arithmetic of such leaves, of which one stands below a line."""
    parts = list(node.walk(prune=lambda part: isinstance(part, leaf)))
    parts = [part for part in parts if not isinstance(part, exp.Identifier)]
    return all(isinstance(part, (*_ARITHMETIC, leaf)) for part in parts) and any(
        isinstance(part, exp.Div) and part.expression.find(leaf) for part in parts
    )


def _replaced(node: exp.Expr, change: Callable[[exp.Expr], exp.Expr], leaf: type[exp.Expr] = exp.Column) -> exp.Expr:
    """A copy of an expression with something in place of its leaves."""
    if isinstance(node, leaf):
        return change(node)
    found = node.copy()
    for word, value in node.args.items():
        if isinstance(value, exp.Expr):
            found.set(word, _replaced(value, change, leaf))
    return found


def _name(node: exp.Expr) -> str:
    """What DuckDB calls it as a column of a result without an alias."""

    def spelled(one: exp.Expr) -> exp.Expr:
        return exp.Paren(this=one) if isinstance(one, exp.Binary) else one.this if isinstance(one, exp.Paren) else one

    text = node.copy()
    for one in reversed(list(text.walk())):
        if one.parent is not None:
            one.replace(spelled(one.copy()))
    return spelled(text.copy()).sql("duckdb")


def _named(new: exp.Expr, node: exp.Expr) -> exp.Expr:
    return exp.Alias(this=new, alias=exp.to_identifier(_name(node), quoted=True))


def _hide(reader: Reader, names: Iterable[str]) -> None:
    """Leave the columns out of the reader's stars."""
    for item in reader.select.expressions:
        star = item.this if isinstance(item, exp.Column) else item
        of = item.table.lower() if isinstance(item, exp.Column) else ""
        if isinstance(star, exp.Star) and of in ("", reader.source.alias_or_name.lower()):
            hidden = [exp.column(name, quoted=True) for name in names]
            star.set("except_", [*(star.args.get("except_") or []), *hidden])


def _leave_out(below: exp.Select, readers: Sequence[Reader], read: set[str]) -> None:
    """Take columns out of the SELECT below that quotients alone read."""
    if any(item.is_star for reader in readers for item in reader.select.expressions):
        return
    places = [
        int(node.name)
        for word in ("group", "order")
        if below.args.get(word) is not None
        for node in below.args[word].find_all(exp.Literal)
        if node.is_int
    ]
    own = [value for word, value in below.args.items() if word != "expressions" and isinstance(value, exp.Expr)]
    named = {
        column.name.lower() for one in [*(reader.select for reader in readers), *own] for column in one.find_all(exp.Column)
    }  # fmt: skip
    kept = [
        item
        for place, item in enumerate(below.expressions, 1)
        if (name := item.alias_or_name.lower()) not in read or name in named or place <= max(places, default=0)
    ]
    below.set("expressions", kept)


def _is_scalar(select: exp.Select) -> bool:
    """Whether it is one row of one sum, of rows that FROM, joins and WHERE say."""
    words = {word for word, value in select.args.items() if value} - {"expressions", "from_", "joins", "where", "kind"}
    return (
        not words and len(select.expressions) == 1 and aggregates(select) and _adds_up(select.expressions[0].unalias())
    )


def _rows_of(select: exp.Select) -> exp.Expr:
    found = select.copy()
    found.set("where", None)
    found.set("expressions", [exp.Star()])
    return found


def _within_rows(select: exp.Select) -> bool:
    """Whether its WHERE has subqueries, which no FILTER takes."""
    where = select.args.get("where")
    return where is not None and where.find(exp.Query) is not None


def _value_alike(one: exp.Expr) -> exp.Expr:
    """The sum of a subquery."""
    return exp.Paren(this=one.this.expressions[0].unalias().copy())


def _value_apart(one: exp.Expr) -> exp.Expr:
    """The sum of a subquery, with FILTER in place of its WHERE."""
    value, where = _value_alike(one), one.this.args.get("where")
    if where is None:
        return value

    def apart(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Filter):
            both = exp.and_(node.expression.this.copy(), where.this.copy())
            return exp.Filter(this=node.this.copy(), expression=exp.Where(this=both))
        return exp.Filter(this=node.copy(), expression=exp.Where(this=where.this.copy()))

    # What takes the place of a node is not looked into again.
    return value.transform(lambda node: apart(node) if isinstance(node, (exp.Filter, *_SUMS)) else node)


@final
@dataclass(slots=True)
class Quotients:
    """Moves the quotients of a statement.

    Args:
        kinds: the kinds of its queries.
        planned: whether a SELECT is planned over declared cells as it is: then all its sums are of the same rows anyhow.
    """

    kinds: Kinds
    planned: Callable[[exp.Select], bool]
    moved: int = 0
    _readers: dict[int, tuple[exp.CTE, list[Reader]]] = field(default_factory=dict)

    def of_statement(self, statement: exp.Query) -> None:
        """Move those of a statement; it is changed."""
        self._readers = {}
        self._walk(statement, {})
        tables = [table.name.lower() for table in statement.find_all(exp.Table) if not table.db]
        defined = [cte.alias.lower() for cte in statement.find_all(exp.CTE)]
        for cte, readers in self._readers.values():
            name = cte.alias.lower()
            if tables.count(name) == len(readers) and defined.count(name) == 1 and not cte.args["alias"].columns:
                self.move(cte.this, readers)

    def move(self, below: exp.Expr, readers: Sequence[Reader]) -> None:
        """Move those of the readers of one SELECT that aggregates."""
        inner = below.unnest()
        if isinstance(inner, exp.Select) and not self.planned(inner):
            self.moved += move(inner, readers, self.moved)

    def _walk(self, query: exp.Expr, names: Names) -> None:
        if isinstance(query, exp.Subquery):
            self._walk(query.this, names)
            return
        if self.kinds.of(query, names).kind is not Kind.ABOVE:
            return
        inside = dict(names)
        for cte in ctes(query):
            self._walk(cte.this, inside)
            inside[cte.alias.lower()] = self.kinds.scope(query, names)[cte.alias.lower()]
        if isinstance(query, exp.SetOperation):
            self._walk(query.this, inside)
            self._walk(query.expression, inside)
        elif isinstance(query, exp.Select):
            within(query, lambda one: self.kinds.of(one, inside).kind is Kind.ANSWER)
            self._read(query, inside)
        for node in subqueries(query):
            self._walk(node, inside)

    def _read(self, select: exp.Select, names: Names) -> None:
        """Move what one SELECT does with its subqueries, and note which CTEs it reads."""
        found = list(sources(select))
        for source in found:
            others = [self._columns(other, names) for other in found if other is not source]
            known = None if None in others else frozenset(name for one in others if one is not None for name in one)
            reader = Reader(select=select, source=source, others=known)
            of = self.kinds.source(source, names)
            if isinstance(source, exp.Subquery):
                self.move(source.this, [reader]) if of.kind is Kind.ANSWER else self._walk(source.this, names)
            elif of.kind is Kind.ANSWER and of.cte is not None:
                self._readers.setdefault(id(of.cte), (of.cte, []))[1].append(reader)

    def _columns(self, source: exp.Expr, names: Names) -> frozenset[str] | None:
        """The columns of an item of FROM, in small letters; None where they are not known."""
        of = self.kinds.source(source, names)
        query = of.cte.this if of.cte is not None else source.this
        while isinstance(query, exp.SetOperation | exp.Subquery):
            query = query.this
        if isinstance(query, exp.Select) and not source.alias_column_names and not query.is_star:
            return frozenset(item.alias_or_name.lower() for item in query.expressions)
        return of.columns() or None
