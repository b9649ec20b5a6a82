"""Which parts of a statement of dp_sql read private rows, which of them answer, and which work on answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import final

from sqlglot import exp

from duckdb_dp.sql.lineage import own_functions
from duckdb_dp.sql.parsed import is_parentheses

Columns = frozenset[str]

_MODIFIERS = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)
"""What may stand around an aggregate."""


class Kind(Enum):
    """What a query returns."""

    ROWS = "rows of people"
    ANSWER = "aggregates of rows of people, to be released"
    ABOVE = "public rows"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What a name in FROM stands for, or a query.

    Attributes:
        kind: what it returns.
        owners: finds of rows, in small letters, the sets of columns of which each says whose a row is: those that name the privacy
            unit, and the keys of the tables that lead to it; none where they are not known.
        cte: its definition, where it is one.
        columns: finds the columns of a table, in small letters; none where they are not known.
        name: catalog, schema and name of a table; none where they are not known.
    """

    kind: Kind
    owners: Callable[[], frozenset[Columns]] = field(default=frozenset, compare=False)
    cte: exp.CTE | None = None
    columns: Callable[[], Columns] = field(default=frozenset, compare=False)
    name: tuple[str, ...] = field(default=(), compare=False)


Names = Mapping[str, Relation]
"""The CTEs in scope, by their names in small letters."""

PUBLIC = Relation(kind=Kind.ABOVE)


@final
@dataclass(slots=True)
class Kinds:
    """The kinds of the queries of one statement.

    Args:
        table: what a table that is no CTE stands for.
    """

    table: Callable[[exp.Table], Relation]
    _known: dict[int, tuple[exp.Expr, Relation]] = field(default_factory=dict)

    def of(self, query: exp.Expr, names: Names) -> Relation:
        """The kind of a query."""
        if id(query) not in self._known:
            self._known[id(query)] = query, self._of(query, names)
        return self._known[id(query)][1]

    def scope(self, query: exp.Expr, names: Names) -> Names:
        """The CTEs that a query's parts may read: those around it and its own."""
        found = dict(names)
        for cte in ctes(query):
            inner = self.of(cte.this, found)
            owners = frozenset if cte.args["alias"].columns else inner.owners
            found[cte.alias.lower()] = Relation(kind=inner.kind, owners=owners, cte=cte)
        return found

    def source(self, node: exp.Expr, names: Names) -> Relation:
        """The kind of an item of FROM."""
        if isinstance(node, exp.Table):
            named = None if node.db or node.catalog else names.get(node.name.lower())
            return named or (self.table(node) if isinstance(node.this, exp.Identifier) else PUBLIC)
        if isinstance(node, exp.Subquery) and not isinstance(node.this, exp.Table):
            found = self.of(node.this, names)
            return found if not node.alias_column_names else Relation(kind=found.kind)
        return PUBLIC if isinstance(node, exp.Values | exp.Unnest) else Relation(kind=Kind.ROWS)

    def _of(self, query: exp.Expr, names: Names) -> Relation:
        names = self.scope(query, names)
        if isinstance(query, exp.Subquery):
            return self.of(query.this, names)
        if isinstance(query, exp.SetOperation):
            sides = [self.of(side, names) for side in (query.this, query.expression)]
            if all(side.kind is Kind.ROWS for side in sides):
                return Relation(kind=Kind.ROWS, owners=lambda: sides[0].owners() & sides[1].owners())
            return PUBLIC
        if isinstance(query, exp.Values):
            return PUBLIC
        if not isinstance(query, exp.Select):
            return Relation(kind=Kind.ROWS)  # which is refused where SELECTs are read
        found = [(node.alias_or_name.lower(), self.source(node, names)) for node in sources(query)]
        private = [(alias, one) for alias, one in found if one.kind is Kind.ROWS]
        if not private:
            return PUBLIC
        rows = Relation(kind=Kind.ROWS, owners=cache(lambda: _shown(query, private)))
        if not aggregates(query):
            return rows
        keys = [key for key in group_keys(query) if isinstance(key, exp.Column)]
        return rows if keys and any(_says(alias, one, keys) for alias, one in private) else Relation(kind=Kind.ANSWER)


def _says(alias: str, source: Relation, columns: Sequence[exp.Column]) -> bool:
    """Whether columns say whose a row of a source is; a column without a table's name is taken for one of it."""
    named = {column.name.lower() for column in columns if column.table.lower() in ("", alias)}
    return any(key <= named for key in source.owners())


def _shown(query: exp.Select, sources: Sequence[tuple[str, Relation]]) -> frozenset[Columns]:
    """The sets of columns of a query's result that say whose its rows are, as those of one of its sources do."""
    stars = any(item.is_star for item in query.expressions)
    shown = [(item.unalias(), item.alias_or_name.lower()) for item in query.expressions]
    found = set()
    for alias, source in sources:
        named = {
            value.name.lower(): name
            for value, name in shown
            if isinstance(value, exp.Column) and value.table.lower() in ("", alias)
        }
        found |= {
            frozenset(named.get(column, column) for column in key)
            for key in source.owners()
            if stars or key <= set(named)
        }
    return frozenset(found)


def ctes(query: exp.Expr) -> list[exp.CTE]:
    """The CTEs of a query's own WITH."""
    found = query.args.get("with_") or query.args.get("with")
    return [] if found is None else list(found.expressions)


def sources(query: exp.Select) -> Iterator[exp.Expr]:
    """The items of a SELECT's FROM, joined or listed."""
    first = query.args.get("from_") or query.args.get("from")
    for item in [*([first] if first is not None else []), *query.args.get("joins", ())]:
        yield from _sides(item.this)


def _sides(node: exp.Expr) -> Iterator[exp.Expr]:
    if is_parentheses(node):
        yield from _sides(node.this)
    else:
        yield node
    for join in node.args.get("joins") or ():
        yield from _sides(join.this)


def aggregates(query: exp.Select) -> bool:
    """Whether a SELECT groups or aggregates its rows."""
    if query.args.get("group") is not None or query.args.get("having") is not None:
        return True
    items = [*query.expressions, query.args.get("qualify"), query.args.get("order")]
    return any(item is not None and any(map(aggregated, outer(item))) for item in items)


def aggregated(node: exp.Expr) -> bool:
    """Whether a node is an aggregate, and no function of a window."""
    if isinstance(node, exp.Anonymous):
        kinds = own_functions().get(node.name.lower(), frozenset())
        found = "aggregate" in kinds and "scalar" not in kinds
    else:
        found = isinstance(node, exp.AggFunc)
    inner, parent = node, node.parent
    while isinstance(parent, _MODIFIERS) and parent.this is inner:
        inner, parent = parent, parent.parent
    return found and not (isinstance(parent, exp.Window) and parent.this is inner)


def outer(node: exp.Expr) -> Iterator[exp.Expr]:
    """An expression and its parts, but for the subqueries in it."""
    if isinstance(node, exp.Query | exp.Subquery):
        return
    yield node
    for child in node.iter_expressions():
        yield from outer(child)


def group_keys(query: exp.Select) -> list[exp.Expr]:
    """What a SELECT groups by, with positions and aliases replaced by what they stand for."""
    group = query.args.get("group")
    items = query.expressions
    if group is None:
        return []
    if group.args.get("all"):
        return [item.unalias() for item in items if not any(map(aggregated, outer(item))) and not item.find(exp.Window)]
    nested = [item for word in ("cube", "rollup", "grouping_sets") for item in group.args.get(word) or []]
    return [_key(query, item) for top in [*group.expressions, *nested] for item in _members(top)]


def _members(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Tuple | exp.Cube | exp.Rollup | exp.GroupingSets):
        return [found for item in node.expressions for found in _members(item)]
    return _members(node.this) if isinstance(node, exp.Paren) else [node]


def _key(query: exp.Select, node: exp.Expr) -> exp.Expr:
    items = query.expressions
    if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
        place = int(node.this)
        return items[place - 1].unalias() if 1 <= place <= len(items) else node
    if isinstance(node, exp.Column) and not node.table:
        # A column of the table comes before an alias, but what is aliased by its own name is the same; and nothing groups by an aggregate.
        named = [item.unalias() for item in items if item.alias.lower() == node.name.lower()]
        return named[0] if len(named) == 1 and not any(map(aggregated, outer(named[0]))) else node
    return node


def subqueries(query: exp.Expr) -> list[exp.Expr]:
    """The queries inside the expressions of a query, the outermost ones."""
    found: list[exp.Expr] = []

    def visit(node: exp.Expr) -> None:
        if isinstance(node, exp.Query):
            found.append(node)
            return
        for child in node.iter_expressions():
            visit(child)

    skipped = (
        {"with_", "from_", "joins", "this", "expression"} if isinstance(query, exp.SetOperation) else {"with_", "from_"}
    )
    for word, value in query.args.items():
        if word in skipped:
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, exp.Join):
                for condition in (item.args.get("on"),):
                    if condition is not None:
                        visit(condition)
            elif isinstance(item, exp.Expr):
                visit(item)
    return found
