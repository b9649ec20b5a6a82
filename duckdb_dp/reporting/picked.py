"""Whether a statement picks rows by noisy answers, which makes the intervals of those rows hold the truth less often."""

import re
from collections.abc import Container, Iterator, Sequence

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from duckdb_dp.reporting.asked import PICKED
from duckdb_dp.reporting.readable import answers

_MAY = re.compile(r"\b(having|limit|fetch|qualify|where|distinct\s+on|join)\b", re.IGNORECASE)
"""Words without one of which no row is picked."""

_RANKS = (
    exp.Rank,
    exp.DenseRank,
    exp.Ntile,
    exp.PercentRank,
    exp.CumeDist,
    exp.Lag,
    exp.Lead,
    exp.FirstValue,
    exp.LastValue,
)
"""Functions of windows, whose rows may be sorted by groups alone."""

_QUERY = re.compile(r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(?:select|from|with)\b", re.IGNORECASE | re.DOTALL)
"""How a query begins; of other statements, which sqlglot may warn of, none has intervals in its result."""

_UNREAD = (SqlglotError, ValueError, AttributeError, RecursionError)
"""How sqlglot fails at what it does not know."""

DEEPEST = 3
"""How deep texts of statements lie in one another."""


def picked(statement: str, names: Sequence[str]) -> list[str]:
    """The line that says that clauses of a statement pick rows by their answers; none where nothing does, or no interval is shown.

    Args:
        statement: as it was run; a dp_ call has the text of its SELECT in it.
        names: of the columns of its result.

    Privacy: costs nothing; reads the text alone.
    """
    found = answers(names)
    if not found or not _MAY.search(statement):
        return []
    noisy = {names[place].lower() for one in found for place in (one.value, *one.folded)}
    queries = [*_queries(statement, DEEPEST)]
    items = (item for query, _ in queries if isinstance(query, exp.Select) for item in query.expressions)
    for alias in (item for item in items if isinstance(item, exp.Alias)):
        if _is_made_of(alias.this, noisy):  # a rank among answers, or their sum
            noisy.add(alias.alias.lower())
    return [PICKED] if any(_picks(query, of_answers, noisy) for query, of_answers in queries) else []


def _queries(statement: str, depth: int) -> Iterator[tuple[exp.Query, bool]]:
    """The queries of a text, and of the texts in it, each with whether what it reads are answers."""
    if not _QUERY.match(statement):
        return
    try:
        tree = parse_one(statement, dialect="duckdb")
    except _UNREAD:  # DuckDB understood it, so nothing is wrong with the answer
        return
    ctes: set[str] = set()
    for cte in tree.find_all(exp.CTE):
        if _has_answers(cte.this, ctes):
            ctes.add(cte.alias.lower())
    for query in tree.find_all(exp.Select, exp.SetOperation):
        read = [one.this for one in (query.args.get("from_"), *(query.args.get("joins") or [])) if one is not None]
        yield query, any(_has_answers(one, ctes) for one in read)
    if depth:
        for text in tree.find_all(exp.Literal, exp.RawString):
            if _MAY.search(text.this):
                yield from _queries(text.this, depth - 1)


def _has_answers(source: exp.Expr, ctes: Container[str]) -> bool:
    """Whether there are answers in what is read: of a dp_ call, of aggregates, or of a CTE that has some."""
    return any(
        isinstance(one, exp.AggFunc)
        or (isinstance(one, exp.Anonymous) and one.name.lower().startswith("dp_"))
        or (isinstance(one, exp.Table) and one.name.lower() in ctes)
        for one in source.walk()
    )


def _picks(query: exp.Query, of_answers: bool, noisy: set[str]) -> bool:
    """Whether a query picks rows by answers."""
    words = ["having", "qualify", *(["where"] if of_answers else [])]
    conditions = [query.args[word].this for word in words if query.args.get(word) is not None]
    if of_answers:
        conditions += [join.args["on"] for join in query.args.get("joins") or [] if join.args.get("on") is not None]
    order, distinct = query.args.get("order"), query.args.get("distinct")
    first = isinstance(distinct, exp.Distinct) and distinct.args.get("on") is not None  # of UNION it is a truth value
    if order is not None and (query.args.get("limit") is not None or first):
        conditions += [key.this for key in order.expressions]
    return any(_is_noisy(condition, query, noisy) for condition in conditions)


def _is_noisy(key: exp.Expr, query: exp.Query, noisy: set[str]) -> bool:
    """Whether an expression is of answers: aggregates of rows, columns that are called like an answer, or their places."""
    if isinstance(key, exp.Literal) and key.is_int and 0 < int(key.this) <= len(query.selects):
        key = query.selects[int(key.this) - 1]
        if key.alias_or_name.lower() in noisy:
            return True
    return _is_made_of(key, noisy) or key.name.upper() == "ALL"


def _is_made_of(node: exp.Expr, noisy: set[str]) -> bool:
    """Whether there are aggregates or answers in an expression."""
    columns = (one for one in node.find_all(exp.Column) if one.name.lower() in noisy)
    return next(columns, None) is not None or any(not isinstance(one, _RANKS) for one in node.find_all(exp.AggFunc))
