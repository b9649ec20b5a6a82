"""Which column a name means: that of the SELECT's own FROM, an alias, or one of the SELECT around it."""

from collections.abc import Callable, Iterable

from sqlglot import exp

from duckdb_dp.errors import DPError, as_sql, brief, identifier, nearest
from duckdb_dp.sql.clamped_sums import column_name
from duckdb_dp.sql.owned.relations import Field, Scope, Source
from duckdb_dp.sql.owned.syntax import check, has_aggregate


def column(node: exp.Column, scope: Scope, alias: Callable[[str], exp.Expr | None]) -> exp.Expr:
    """The expression that a column stands for, over the columns of items.

    Args:
        node: the column as it was written.
        scope: the SELECT that it stands in.
        alias: what an alias of that SELECT stands for, by its name in small letters.

    Raises:
        DPError: there is none, or there are several.
    """
    check(node)
    inner: Scope | None = scope
    while inner is not None:
        found = _within(node, inner)
        if found is not None:
            return found
        if inner is scope and not node.table and (found := alias(node.name.lower())) is not None:
            return found
        inner = inner.outer
    meant = [source for source in scope.sources if not node.table or _meant(node, source)] or scope.sources
    known = dict.fromkeys(name for source in meant for name, _ in source.columns)
    raise DPError(f"there is no column {as_sql(node.sql('duckdb'))}; the columns are: {nearest(known, node.name)}.")


def of_from(node: exp.Column, scope: Scope) -> str:
    """The name of a column as FROM spells it."""
    known = (name for source in scope.sources for name, _ in source.columns)
    return next((name for name in known if name.lower() == node.name.lower()), node.name)


def as_asked(node: exp.Expr, field_of: Callable[[exp.Expr], Field | None]) -> exp.Expr:
    """A resolved expression with the names that columns have in the statement, and dots in place of subqueries, for errors."""

    def one(inner: exp.Expr) -> exp.Expr:
        if not isinstance(inner, exp.Column):
            return inner
        found = field_of(inner)
        if found is not None and found.name:
            return exp.column(exp.to_identifier(found.name))
        return exp.var("an aggregate" if inner.table else "(SELECT ...)")

    return node.transform(one)


def _within(node: exp.Column, scope: Scope) -> exp.Expr | None:
    name, table = node.name.lower(), node.table.lower()
    if not table and name in scope.merged:
        return scope.merged[name].copy()
    found = [
        value
        for source in scope.sources
        if not table or _meant(node, source)
        for known, value in source.columns
        if known.lower() == name
    ]
    if len(found) > 1:
        raise DPError(
            f"{as_sql(node.sql('duckdb'))} could be a column of several tables; write the table before it, as in t.{name}."
        )
    return found[0].copy() if found else None


def _meant(node: exp.Column, source: Source) -> bool:
    """Whether a column's qualifier means a source: its alias, or schema.table or catalog.table where it has no other name."""
    written = tuple(part.name.lower() for part in node.parts[:-1])
    named = len(written) > 1 and source.table[-1:] == (source.alias,)
    options = (source.table[-len(written) :], source.table[::2] if len(source.table) == 3 else ())
    return written == (source.alias,) or (named and written in options)


def starred(items: Iterable[exp.Expr], scope: Scope) -> list[tuple[str, exp.Expr, bool]]:
    """(name, expression, whether it is resolved) of each column of a SELECT's list.

    Raises:
        DPError: a star of no source.
    """
    found: list[tuple[str, exp.Expr, bool]] = []
    for item in items:
        inner = item.unalias()
        if isinstance(inner, exp.Star):
            every = list[tuple[str, exp.Expr, bool]]()
            used = set[str]()
            for source in scope.sources:
                for name, value in source.columns:
                    merged = scope.merged.get(name.lower())
                    if merged is None:
                        every.append((name, value.copy(), True))
                    elif name.lower() not in used:
                        used.add(name.lower())
                        every.append((name, merged.copy(), True))
            found += _changed(inner, every)
        elif isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star):
            sources = [source for source in scope.sources if _meant(inner, source)]
            if len(sources) != 1:
                raise DPError(f"{brief(item.sql('duckdb'))} names no table of FROM.")
            found += _changed(inner.this, [(name, value.copy(), True) for name, value in sources[0].columns])
        else:
            name = item.alias if item.alias or not isinstance(inner, exp.Column) else inner.name
            found.append((name or column_name(inner), inner, False))
    return found


def _changed(star: exp.Star, columns: list[tuple[str, exp.Expr, bool]]) -> list[tuple[str, exp.Expr, bool]]:
    """The columns of a star as its EXCLUDE, REPLACE and RENAME leave them.

    Raises:
        DPError: one of these names no column of it, or another table's.
    """
    plain = star.copy()
    parts = {word: plain.args.pop(word, None) or [] for word in ("except_", "replace", "rename")}
    check(plain)
    known = {name.lower() for name, *_ in columns}
    named = [*parts["except_"], *(one.this for one in parts["rename"])]
    for one in named:
        if not isinstance(one, exp.Column | exp.Identifier) or (isinstance(one, exp.Column) and one.table):
            raise DPError(
                f"{brief(star.sql('duckdb'))}: {one.sql('duckdb')} is not read here; write the column's name alone."
            )
    asked = [*(one.name for one in named), *(one.alias for one in parts["replace"])]
    for name in (name for name in asked if name.lower() not in known):
        raise DPError(f"{brief(star.sql('duckdb'))}: there is no column {as_sql(name)} in it.")
    left_out = {one.name.lower() for one in parts["except_"]}
    replaced = {one.alias.lower(): one.this for one in parts["replace"]}
    names = {one.this.name.lower(): str(one.alias) for one in parts["rename"]}
    return [
        (names.get(low, name), replaced[low].copy() if low in replaced else value, is_known and low not in replaced)
        for name, value, is_known in columns
        if (low := name.lower()) not in left_out
    ]


def renamed(columns: list[tuple[str, exp.Expr]], names: list[str], what: str) -> list[tuple[str, exp.Expr]]:
    """Columns under the names that an alias gives them, as in t(a, b).

    Raises:
        DPError: there are more names than columns.
    """
    if len(names) > len(columns):
        raise DPError(f"{identifier(what)} names {len(names)} columns and has {len(columns)}.")
    return [(names[i] if i < len(names) else name, value) for i, (name, value) in enumerate(columns)]


def of_aggregate(node: exp.Expr, scope: Scope) -> bool:
    """Whether an expression has the alias of an aggregate in it, as HAVING n > 10 has; a column of that name comes before it."""
    names = {column.name.lower() for column in node.find_all(exp.Column) if not column.table}
    columns = {name.lower() for source in scope.sources for name, _ in source.columns}
    return any(has_aggregate(scope.aliases[name]) for name in names - columns if name in scope.aliases)


def by_place(select: exp.Select, scope: Scope) -> exp.Select:
    """The SELECT, which groups by the place of an item with a subquery, where it names the item's alias; it is not changed."""
    group = select.args.get("group")
    columns = {name.lower() for source in scope.sources for name, _ in source.columns}
    places = {
        item.alias.lower(): place
        for place, item in enumerate(select.expressions, 1)
        if item.alias and item.unalias().find(exp.Query) and item.alias.lower() not in columns
    }
    if group is None or not places:
        return select
    found = select.copy()
    for one in list(found.args["group"].find_all(exp.Column)):
        if not one.table and one.name.lower() in places:
            one.replace(exp.Literal.number(places[one.name.lower()]))
    return found


def keys_of(select: exp.Select) -> list[tuple[str, exp.Expr]]:
    """(name, expression) of what a SELECT groups by, as it is written."""
    group = select.args.get("group")
    items = select.expressions
    if group is None:
        return []
    if group.args.get("all"):
        return [(item.alias_or_name, item.unalias()) for item in items if not has_aggregate(item)]
    nested_ = (one for word in ("cube", "rollup", "grouping_sets") for one in group.args.get(word) or [])
    found = []
    for node in [*group.expressions, *nested_]:
        for one in (
            [node] if not isinstance(node, exp.Cube | exp.Rollup | exp.GroupingSets | exp.Tuple) else node.expressions
        ):
            inner = one.unnest()
            place = int(inner.name) if isinstance(inner, exp.Literal) and inner.name.isdigit() else 0
            if 1 <= place <= len(items):
                found.append((items[place - 1].alias_or_name, items[place - 1].unalias()))
            elif isinstance(inner, exp.Column):
                found.append((inner.name, inner))
            elif not isinstance(inner, exp.Literal | exp.Tuple):
                shown = next(
                    (item.alias for item in items if item.unalias() == inner and item.alias), inner.sql("duckdb")
                )
                found.append((shown, inner))
    return [(name, node) for name, node in found if not has_aggregate(node)]
