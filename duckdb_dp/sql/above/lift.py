"""From a SELECT that aggregates rows of people and works on the aggregates too, to that work and a SELECT that aggregates alone."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import final

from sqlglot import exp

from duckdb_dp.errors import DPError, brief
from duckdb_dp.sql.above.kinds import aggregated, group_keys, sources
from duckdb_dp.sql.clamped_sums import column_name, has_aggregates

_MOVED = ("qualify", "distinct", "order", "limit", "offset")
"""What is worked out after the aggregates and moves above them, all of it or nothing."""

_INSIDE = (exp.Filter, exp.WithinGroup)
"""What belongs to the aggregate in it."""


def must_lift(query: exp.Select) -> bool:
    """Whether a SELECT that aggregates asks more than aggregates, expressions of them, HAVING, ORDER BY and LIMIT."""
    if any(query.args.get(word) for word in ("qualify", "distinct", "offset")):
        return True
    if not any(map(has_aggregates, query.expressions)) and query.args.get("having") is not None:
        return True
    if any(_all(item) for item in _sorted(query)) or any(map(_listed, _no_keys(query))):
        return True
    limit = query.args.get("limit")
    if limit is not None and not (isinstance(limit.expression, exp.Literal) and limit.expression.is_int):
        return True
    return any(map(_beyond, [*_no_keys(query), *_worked(query)]))


def _no_keys(query: exp.Select) -> list[exp.Expr]:
    """The items of a SELECT that are not grouped by: what is grouped by is worked out for each row, below."""
    keys = group_keys(query)
    return [item for item in query.expressions if item.unalias() not in keys]


def _beyond(item: exp.Expr) -> bool:
    """Whether an expression has a window or a subquery, other than inside an aggregate, which takes it for each row."""
    nodes = item.walk(prune=lambda node: isinstance(node, exp.AggFunc | exp.Filter))
    return any(isinstance(node, exp.Window | exp.Query) for node in nodes)


def _listed(item: exp.Expr) -> bool:
    """Whether an expression makes a list, other than inside an aggregate."""
    nodes = item.walk(prune=lambda node: isinstance(node, exp.AggFunc | exp.Filter))
    return any(isinstance(node, exp.Array) for node in nodes)


def _sorted(query: exp.Select) -> list[exp.Expr]:
    order = query.args.get("order")
    return [] if order is None else list(order.expressions)


def _all(item: exp.Expr) -> bool:
    """Whether an item of ORDER BY is ALL."""
    node = item.this if isinstance(item, exp.Ordered) else item
    return isinstance(node, exp.Var) and node.name.upper() == "ALL"


def lists_apart(query: exp.Query) -> exp.Query:
    """The statement with a list of quantiles in place of a quantile of a list: quantile_cont(x, [0.25, 0.5]); it is not changed."""

    def given_to(node: exp.Expr) -> exp.Expr | None:
        known = isinstance(node, exp.PercentileCont | exp.PercentileDisc | exp.Quantile)
        return (node.args.get("quantile") or node.args.get("expression")) if known else None

    def apart(node: exp.Expr) -> exp.Expr:
        given = given_to(node)
        if not isinstance(given, exp.Array):
            return node
        word = next(word for word, value in node.args.items() if value is given)
        found = []
        for one in given.expressions:
            single = node.copy()
            single.set(word, one.copy())
            found.append(single)
        return exp.Array(expressions=found)

    if not any(isinstance(given_to(node), exp.Array) for node in query.walk()):
        return query
    named = query.copy()
    for select in named.find_all(exp.Select):
        lists = [item for item in select.expressions if isinstance(given_to(item), exp.Array)]
        names = [column_name(item) for item in lists]
        for item, name in zip(lists, names, strict=True):
            if names.count(name) == 1:  # as that of one quantile
                item.replace(exp.alias_(item.copy(), name))
    found = named.transform(apart)
    assert isinstance(found, exp.Query)
    return found


def _worked(query: exp.Select) -> list[exp.Expr]:
    return [query.args[word] for word in ("having", "order") if query.args.get(word) is not None]


def lift(query: exp.Select, *, having: bool = False) -> exp.Select:
    """The SELECT above, which reads one subquery: the SELECT that aggregates.

    What needs aggregates alone stays below, where its error follows from the noise. Windows, subqueries, QUALIFY, DISTINCT, and
    with them ORDER BY, LIMIT and OFFSET, read its columns; where ``having`` says so, HAVING does too.
    """
    return _Lift(query.copy(), having).above()


def below(lifted: exp.Select) -> exp.Select:
    """The SELECT that aggregates, of one that ``lift`` has made."""
    found: exp.Select = lifted.args["from_"].this.this
    return found


@final
@dataclass(slots=True)
class _Lift:
    query: exp.Select
    having: bool
    below: dict[str, tuple[str, exp.Expr]] = field(default_factory=dict)

    def above(self) -> exp.Select:
        query, items = self.query, self.query.expressions
        keys = {key.sql("duckdb"): key for key in group_keys(query)}
        names = [self._name(item) for item in items]
        lifted = {id(item) for item in _no_keys(query) if _beyond(item) or _listed(item)}
        aliases = set[str]()
        for _ in items:  # what uses the alias of one that is lifted, and so on
            aliases = {item.alias.lower() for item in items if id(item) in lifted and item.alias} - {*keys}
            uses = [item for item in items if {column.name.lower() for column in item.find_all(exp.Column)} & aliases]
            lifted |= {id(item) for item in uses if item.unalias().sql("duckdb") not in keys}
        for item, name in zip(items, names, strict=True):
            if id(item) not in lifted:
                self.below.setdefault(item.unalias().sql("duckdb"), (name, item.unalias()))
        shown = [  # not by exp.alias_, which makes a subquery one of FROM
            exp.Alias(this=self._read(item.unalias(), keys), alias=exp.to_identifier(name, quoted=True))
            for item, name in zip(items, names, strict=True)
        ]
        moved = {word: query.args.get(word) for word in _MOVED}
        having = query.args.get("having")
        bare = not any(map(has_aggregates, items))
        if having is not None and (self.having or bare or _beyond(having) or _names(having, aliases)):
            _check_no_window(having, items)
            query.set("having", None)
            moved["where"] = exp.Where(this=having.this)
        for word in ("limit", "offset"):
            _check_one_number(word, moved[word])
        for word, value in moved.items():
            query.set(word if word != "where" else "having", None)
            if word == "order" and value is not None:
                value = self._order(value, keys, items)
            elif isinstance(value, exp.Expr):
                value = self._read(value, keys)
            elif isinstance(value, list):
                value = [self._read(one, keys) for one in value]
            moved[word] = value
        if query.args.get("group") is not None:
            query.set("group", self._group(keys))
        query.set("expressions", [exp.alias_(node.copy(), name, quoted=True) for name, node in self.below.values()])
        with_ = query.args.get("with_")
        query.set("with_", None)
        found: exp.Select = exp.select(*shown).from_(query.subquery("_dp_below"))
        for word, value in moved.items():
            if value:
                found.set(word, value)
        found.set("with_", with_)
        return found

    def _name(self, item: exp.Expr) -> str:
        inner = item.unalias()
        return str(item.alias or (inner.name if isinstance(inner, exp.Column) else column_name(inner)))

    def _group(self, keys: dict[str, exp.Expr]) -> exp.Expr:
        """GROUP BY without positions and aliases, which the columns below no longer have."""
        group: exp.Expr = self.query.args["group"].copy()
        if group.args.get("all"):
            return exp.Group(expressions=[key.copy() for key in keys.values()])

        def spelled(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Literal | exp.Column):
                single = self.query.copy()
                single.set("group", exp.Group(expressions=[node.copy()]))
                return group_keys(single)[0].copy()
            return node

        for word in ("expressions", "cube", "rollup", "grouping_sets"):
            if group.args.get(word):
                group.set(word, [_members(item, spelled) for item in group.args[word]])
        return group

    def _order(self, order: exp.Expr, keys: dict[str, exp.Expr], items: list[exp.Expr]) -> exp.Expr:
        """ORDER BY of columns of the result by their names or numbers, and of aggregates and keys."""
        aliases = {item.alias.lower() for item in items if item.alias}
        found = order.copy()
        for item in found.expressions:
            node = item.this if isinstance(item, exp.Ordered) else item
            named = (isinstance(node, exp.Column) and not node.table and node.name.lower() in aliases) or _all(item)
            if not named:
                node.replace(self._read(node, keys))
        return found

    def _read(self, node: exp.Expr, keys: dict[str, exp.Expr]) -> exp.Expr:
        """The expression with columns of the SELECT below in place of aggregates and group keys."""
        text = node.sql("duckdb")
        if text in self.below:
            return self._column(self.below[text][0])
        if text in keys or self._whole(node):
            name = f"_dp_column{len(self.below)}"
            self.below[text] = (name, node.copy())
            return self._column(name)
        if isinstance(node, exp.Query):
            return node.copy()
        if isinstance(node, exp.Column) and (key := self._other_spelling(node, keys.values())) is not None:
            return self._read(key, keys)
        found = node.copy()
        for word, value in list(found.args.items()):
            if isinstance(value, exp.Expr):
                found.set(word, self._read(node.args[word], keys))
            elif isinstance(value, list):
                found.set(
                    word, [self._read(one, keys) if isinstance(one, exp.Expr) else one for one in node.args[word]]
                )
        return found

    def _other_spelling(self, column: exp.Column, keys: Iterable[exp.Expr]) -> exp.Expr | None:
        """The key that a column is by another spelling, as t.sex is where sex is grouped by; None of others.

        Raises:
            DPError: of several tables it may be the column of another one.
        """
        alike = [key for key in keys if isinstance(key, exp.Column) and key.name.lower() == column.name.lower()]
        alias = not column.table and any(item.alias.lower() == column.name.lower() for item in self.query.expressions)
        if len(alike) != 1 or bool(column.table) == bool(alike[0].table) or alias:
            return None
        if len(list(sources(self.query))) == 1:
            return alike[0]
        written = alike[0].sql("duckdb")
        raise DPError(
            f"{column.sql('duckdb')} stands as {written} in GROUP BY, and both are to be alike; write {written}."
        )

    def _whole(self, node: exp.Expr) -> bool:
        """Whether a node is an aggregate over rows, with what belongs to it."""
        if isinstance(node, _INSIDE):
            return aggregated(node.this)
        return aggregated(node)

    def _column(self, name: str) -> exp.Expr:
        return exp.column(name, quoted=True)


def _members(node: exp.Expr, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    if isinstance(node, exp.Tuple | exp.Cube | exp.Rollup | exp.GroupingSets):
        found = node.copy()
        found.set("expressions", [_members(item, change) for item in node.expressions])
        return found
    if isinstance(node, exp.Paren):
        return exp.Paren(this=_members(node.this, change))
    return change(node)


def _names(node: exp.Expr, aliases: Collection[str]) -> bool:
    """Whether an expression has one of these names in it."""
    return any(not column.table and column.name.lower() in aliases for column in node.find_all(exp.Column))


def _check_no_window(having: exp.Expr, items: Sequence[exp.Expr]) -> None:
    """Refuse a window function in HAVING, also under its alias, which SQL does not have.

    Raises:
        DPError: there is one.
    """
    windows = {item.alias.lower() for item in items if item.alias and item.find(exp.Window)}
    if having.find(exp.Window) or _names(having, windows):
        text = brief(having.sql("duckdb").strip())
        raise DPError(f"{text} reads a window function, which HAVING comes before; write QUALIFY in its place.")


def _check_one_number(word: str, node: exp.Expr | None) -> None:
    """Refuse LIMIT and OFFSET of what has a value in each row.

    Raises:
        DPError: it reads a column, or has an aggregate.
    """
    found = [] if node is None else [*node.walk(prune=lambda inner: isinstance(inner, exp.Query))]
    if node is not None and any(isinstance(one, exp.Column | exp.AggFunc) for one in found):
        text = brief(node.expression.sql("duckdb"))
        raise DPError(
            f"{word.upper()} {text}: {text} differs from row to row, and this is one number for all; write a number."
        )
