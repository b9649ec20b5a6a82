"""The statements of a dp_sql call, parsed once for all that read them."""

import re
from functools import lru_cache

import duckdb
from sqlglot import exp, parse
from sqlglot.errors import SqlglotError

from duckdb_dp.domain import patterns, text_lengths
from duckdb_dp.domain.not_parsed import why_not_parsed
from duckdb_dp.errors import DPError, as_sql, brief, first_line, identifier
from duckdb_dp.sql import turned
from duckdb_dp.sql.compared_rows import by_fields
from duckdb_dp.sql.constants import worth
from duckdb_dp.sql.inlined import in_place
from duckdb_dp.sql.named_windows import written_out
from duckdb_dp.sql.typed import alone

_PLACES = ("line", "col", "start", "end")
"""Where the parser notes that a node stood."""


@lru_cache(maxsize=64)
def statements_of(text: str) -> tuple[exp.Expr, ...]:
    """The statements of a text, which one call reads several times.

    Raises:
        DPError: DuckDB does not parse it, it turns columns, or a row may make a text in them too long.
    """
    found = tuple(statement for statement in parse(text, dialect="duckdb") if statement is not None)
    for statement in found:
        for node in statement.walk():
            # Where a node stood in the text: copies of that take longer than those of all the rest.
            node._meta = {word: value for word, value in node.meta.items() if word not in _PLACES} or None
        text_lengths.check(statement)
        patterns.check(statement)
    for statement in found:
        turned.check(statement)
    _check_parsed(text, found)
    for statement in found:
        _joins_of_select(statement)
        written_out(statement)
        by_fields(statement)
        in_place(statement)
        _plainly(statement)
        _aliases_in_having(statement)
    return found


def _aliases_in_having(statement: exp.Expr) -> None:
    """Write the aggregate in place of its alias in HAVING beside GROUP BY ALL, where DuckDB takes it for that before a column's name."""
    for select in statement.find_all(exp.Select):
        group, having = select.args.get("group"), select.args.get("having")
        if group is None or having is None or not group.args.get("all"):
            continue
        items = {item.alias.lower(): item.unalias() for item in select.expressions if item.alias}
        for column in [one for one in having.find_all(exp.Column) if not one.table]:
            item = items.get(column.name.lower())
            if item is not None and item.find(exp.AggFunc) and column.parent_select is select:
                column.replace(exp.paren(item.copy(), copy=False))


def _plainly(statement: exp.Expr) -> None:
    """Write count(1) as count(*) and FROM (SELECT * FROM t) as FROM t, and leave out what is true of every row: WHERE true AND x > 1."""
    for source in statement.find_all(exp.From):
        table = itself(source.this) if isinstance(source.this, exp.Subquery) else None
        select = source.parent
        if table is not None and select is not None and not select.args.get("joins"):
            alias = source.this.args.get("alias")
            table.set("alias", None if alias is None else alias.copy())
            source.set("this", table)
    for count in statement.find_all(exp.Count):
        if isinstance(count.this, exp.Literal) and not count.expressions:
            count.set("this", exp.Star())
    for clause in [one for one in statement.find_all(exp.Where) if isinstance(one.parent, exp.Select)]:
        parts = [part for part in _conjuncts(clause.this) if not _is_true(part)]
        if not parts:
            clause.pop()
        elif len(parts) < len(_conjuncts(clause.this)):
            clause.set("this", exp.and_(*parts, copy=False))


def itself(node: exp.Subquery) -> exp.Table | None:
    """The table of (SELECT * FROM table); None where the subquery is more."""
    inner = node.this
    source = inner.args.get("from_") if isinstance(inner, exp.Select) else None
    if source is None or {word for word, value in inner.args.items() if value} != {"expressions", "from_"}:
        return None
    table = source.this
    plain = (
        isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier) and inner.expressions == [exp.Star()]
    )
    if not plain or {word for word, value in table.args.items() if value} - {"this", "db", "catalog", "alias"}:
        return None
    alias = table.args.get("alias")
    return None if alias is not None and alias.columns else table.copy()


def is_parentheses(node: exp.Expr) -> bool:
    """Whether parentheses of FROM stand around a table or a join, and not around a query alone."""
    if not isinstance(node, exp.Paren | exp.Subquery):
        return False
    inner = node.this
    if isinstance(inner, exp.Subquery):
        return bool(inner.alias or inner.args.get("joins")) or is_parentheses(inner)
    return isinstance(inner, exp.Table | exp.Paren)


def _conjuncts(node: exp.Expr) -> list[exp.Expr]:
    inner = node
    while isinstance(inner, exp.Paren):
        inner = inner.this
    return [*_conjuncts(inner.this), *_conjuncts(inner.expression)] if isinstance(inner, exp.And) else [node]


def _is_true(node: exp.Expr) -> bool:
    """Whether a condition is true, or says so of two numbers, as 1 = 1 does."""
    inner = node.unnest()
    if isinstance(inner, exp.EQ):
        one, two = inner.this, inner.expression
        return isinstance(one, exp.Literal) and one.is_int and one == two
    return isinstance(inner, exp.Boolean) and bool(inner.this)


def _joins_of_select(statement: exp.Expr) -> None:
    """Where FROM stands first, the parser leaves the joins with its first table: they are the SELECT's, as ever."""
    for select in statement.find_all(exp.Select):
        source = select.args.get("from_")
        first = None if source is None else source.this
        joins = first.args.get("joins") if isinstance(first, exp.Table | exp.Subquery) else None
        if first is not None and joins:
            first.set("joins", None)
            select.set("joins", [*joins, *(select.args.get("joins") or [])])


def _check_parsed(text: str, found: tuple[exp.Expr, ...]) -> None:
    """Refuse what divides by 0, and what DuckDB does not parse: the GROUP of FROM t GROUP would be read as another name of t.

    Raises:
        DPError: it does not.
    """
    if any(statement.args.get("into") for statement in found):
        raise DPError(f"{brief(text)} has INTO; write CREATE TABLE ... AS FROM dp_sql(...) around it.")
    if any(not any(group.args.values()) for statement in found for group in statement.find_all(exp.Group)):
        raise DPError(f"{brief(text)} does not parse: GROUP BY has nothing behind it.")
    if (why := refused(text)) is not None:
        raise DPError(f"{brief(text)} does not parse: {why}.") from None
    for select in (select for statement in found for select in statement.find_all(exp.Select)):
        _check_groups(select)
    for node in (node for statement in found for node in statement.find_all(exp.Div, exp.IntDiv, exp.Mod)):
        if worth(node.expression) == 0:
            raise DPError(f"{brief(node.sql('duckdb'))} divides by 0, which has no answer; divide by another number.")


def _check_groups(select: exp.Select) -> None:
    """Refuse a window function as a group, which SQL does not have.

    Raises:
        DPError: there is one.
    """
    group = select.args.get("group")
    if group is None:
        return
    named = {
        node.name.lower()
        for node in group.expressions
        if isinstance(node, exp.Column | exp.Literal) and not node.text("table")
    }
    for place, item in enumerate(select.expressions, 1):
        window, every = item.find(exp.Window), bool(group.args.get("all"))
        asked = named & {item.alias.lower() or None, str(place)} or (every and not item.find(exp.AggFunc))
        if asked and window is not None and window.find_ancestor(exp.Select) is select:
            called = identifier(item.alias_or_name or window.sql("duckdb"))
            raise DPError(
                f"GROUP BY {called} is a window function, which SQL does not group by; work it out in a subquery in FROM."
            )


def refused(text: str) -> str | None:
    """What DuckDB's parser says of a text; None where it parses it."""
    with alone() as connection:
        try:
            connection.extract_statements(text)
        except duckdb.Error as error:
            return first_line(error).removeprefix("Parser Error: ")
    return None


def parse_selects(asked: object) -> list[exp.Select]:
    """The SELECTs of a dp_sql call, to be changed at will: one text or a list of texts.

    Raises:
        DPError: as ``shared_selects``.
    """
    return [select.copy() for select in shared_selects(asked)]


def shared_selects(asked: object) -> list[exp.Select]:
    """The same to be read alone: the next reader has the same ones.

    Raises:
        DPError: not text, more than one statement in a text, or not a SELECT; or it has parameters.
    """
    texts = [asked] if isinstance(asked, str) else asked
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise DPError(f"the SQL is {as_sql(asked)}; write a SELECT as text, or a list of them.")
    return [_select_of(text) for text in texts]


@lru_cache(maxsize=64)
def _select_of(text: str) -> exp.Select:
    """The SELECT of a text; raises as ``shared_selects``."""
    try:
        statements = statements_of(text)
    except SqlglotError as error:
        first = re.match(r"\s*(\w+)", text)
        if first is not None and (why := refused(text)) == f'syntax error at or near "{first[1]}"':
            raise DPError(f"{brief(text)} does not parse: {why}.") from None
        raise DPError(f"{brief(text)} does not parse: {why_not_parsed(error)}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        raise DPError(
            f"{brief(text) or as_sql(text)} is no single SELECT; write SELECT count(*) FROM table WHERE ... GROUP BY ...."
        )
    if (unbound := next(statements[0].find_all(exp.Placeholder, exp.Parameter), None)) is not None:
        raise DPError(
            f"{brief(text)} has {unbound.sql('duckdb')}, a parameter that it has no value for; write the value itself."
        )
    return statements[0]
