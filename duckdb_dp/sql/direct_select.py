"""dp_sql, the direct route: which clauses a SELECT may have."""

from collections.abc import Callable
from typing import NoReturn

from sqlglot import exp

from duckdb_dp.sql.clamped_sums import has_aggregates

_ABOVE = {
    "joins": "a join; protect a view of the join instead",
    "distinct": "DISTINCT; GROUP BY gives each group once: SELECT x, count(*) FROM table GROUP BY x",
    "qualify": "QUALIFY; work on the result",
    "with": "a WITH clause, which is not read; name the protected table in FROM, or protect a view instead",
    "sample": "a sample; noise already protects the rows",
    "offset": "OFFSET; cut the result",
}
_UNDERSTOOD = {"expressions", "from_", "from", "where", "group", "having", "order", "limit"}


def check(select: exp.Select, refuse: Callable[[str], NoReturn]) -> None:
    """Refuse a SELECT with clauses that its sums cannot have, or with none.

    Raises:
        DPError: as ``refuse`` says it, which takes why.
    """
    if select.args.get("qualify") and not (select.args.get("group") or any(map(has_aggregates, select.expressions))):
        refuse(
            "lists people's rows, which are never shown; aggregate those that QUALIFY keeps: SELECT count(*) FROM (SELECT ... "
            "QUALIFY ...)"
        )
    if select.find(exp.Window) is not None:
        refuse(
            "has a window; work on the result: SELECT *, sum(n) OVER () FROM dp_sql('SELECT ..., count(*) AS n ...')"
        )
    if any(select.find(kind) not in (None, select) for kind in (exp.Subquery, exp.Exists)):
        refuse("has a subquery; ask it as a SELECT of its own, in a list of them, and combine the results")
    for word, what in _ABOVE.items():
        if select.args.get(word) or select.args.get(f"{word}_"):
            refuse(f"has {what}")
    if extra := {word for word, value in select.args.items() if value} - _UNDERSTOOD:
        refuse(f"has {extra.pop().upper()}; write SELECT ... FROM table WHERE ... GROUP BY ... alone")
    if not (select.args.get("group") or select.find(exp.Anonymous) or any(map(has_aggregates, select.expressions))):
        refuse("lists people's rows, which are never shown; count them: SELECT x, count(*) FROM table GROUP BY x")
