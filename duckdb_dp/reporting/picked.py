"""Whether a statement picks rows by noisy answers, which makes the intervals of those rows hold the truth less often."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from duckdb_dp.errors import few
from duckdb_dp.reporting.readable import answers

PICKED = (
    "{} picks rows by noisy answers: those whose noise is high (or low) are picked more often, so their intervals hold the truth less "
    "often than 95 % of the time"
)

_MAY = re.compile(r"\b(having|limit|fetch|qualify|where|distinct\s+on|filter)\b", re.IGNORECASE)
"""Words without one of which no row is picked."""

DEEPEST = 3
"""How deep texts of statements lie in one another."""


def picked(statement: str, names: Sequence[str]) -> list[str]:
    """A line that says which clauses of a statement pick rows by their answers; none where nothing does, or no interval is shown.

    Args:
        statement: as it was run; a dp_ call has the text of its SELECT in it.
        names: of the columns of its result.

    Privacy: costs nothing; reads the text alone.
    """
    found = answers(names)
    if not found or not _MAY.search(statement):
        return []
    noisy = {names[place].lower() for one in found for place in (one.value, *one.folded)}
    clauses = list(dict.fromkeys(each for select in _selects(statement, DEEPEST) for each in _clauses(select, noisy)))
    return [PICKED.format(few(clauses, " and "))] if clauses else []


def _selects(statement: str, depth: int) -> Iterator[exp.Query]:
    """The queries of a text, and of the texts in it."""
    try:
        tree = parse_one(statement, dialect="duckdb")
    except SqlglotError:  # DuckDB understood it, so nothing is wrong with the answer
        return
    yield from tree.find_all(exp.Select, exp.SetOperation)
    if depth:
        for text in tree.find_all(exp.Literal, exp.RawString):
            if _MAY.search(text.this):
                yield from _selects(text.this, depth - 1)


def _clauses(query: exp.Query, noisy: set[str]) -> Iterator[str]:
    """What a query picks rows by, as it is written."""
    conditions = [(word, query.args.get(word.lower())) for word in ("HAVING", "QUALIFY")]
    if _is_of_answers(query):
        conditions.append(("WHERE", query.args.get("where")))
    for word, condition in conditions:
        if condition is not None and _is_noisy(condition.this, query, noisy):
            yield f"{word} {_brief(condition.this)}"
    order, distinct = query.args.get("order"), query.args.get("distinct")
    limited = query.args.get("limit") is not None
    cut = limited or (distinct is not None and distinct.args.get("on") is not None)
    keys = [] if order is None or not cut else order.expressions
    for key in islice((key for key in keys if _is_noisy(key.this, query, noisy)), 1):
        yield f"ORDER BY {_brief(key)} with {'LIMIT' if limited else 'DISTINCT ON'}"


def _is_of_answers(query: exp.Query) -> bool:
    """Whether what a query reads are answers: of a dp_ call, or of a query with aggregates."""
    root = query.root()
    ctes = {cte.alias.lower(): cte.this for cte in root.find_all(exp.CTE)}
    read = [one.this for one in [query.args.get("from_"), *(query.args.get("joins") or [])] if one is not None]
    inner = [ctes.get(one.name.lower(), one) if isinstance(one, exp.Table) else one for one in read]
    calls = [one for source in inner for one in source.find_all(exp.Anonymous)]
    return any(one.name.lower().startswith("dp_") for one in calls) or any(one.find(exp.AggFunc) for one in inner)


def _is_noisy(key: exp.Expr, query: exp.Query, noisy: set[str]) -> bool:
    """Whether an expression is of answers: aggregates of rows, columns that are called like an answer, or their places."""
    items = query.selects
    if isinstance(key, exp.Literal) and key.is_int and 0 < int(key.this) <= len(items):
        key = items[int(key.this) - 1]
        if key.alias_or_name.lower() in noisy:
            return True
    if any(isinstance(one, exp.Column) and one.name.lower() in noisy for one in key.walk()):
        return True
    return key.find(exp.AggFunc) is not None or key.name.upper() == "ALL"


def _brief(clause: exp.Expr) -> str:
    text = clause.sql(dialect="duckdb")
    return text if len(text) <= 60 else f"{text[:57]}..."
