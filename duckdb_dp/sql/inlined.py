"""WITH that works row by row and is read once, as the subquery that it stands for: both are the same question, and have the same groups."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from sqlglot import exp

_WORDS = ("with_", "group", "having", "order", "limit", "distinct", "qualify", "sample", "offset")


MOST = 64
"""Queries of a WITH that are looked at: of each all tables of its own are, and statements may be long."""


def in_place(statement: exp.Expr) -> None:
    """Put each such query of a statement's own WITH in the place of the table that names it, where all names mean the same there."""
    words = statement.args.get("with_")
    if not isinstance(statement, exp.Select) or words is None or words.args.get("recursive"):
        return
    if len(words.expressions) > MOST:
        return
    read: dict[str, list[exp.Table]] = {}
    for each in statement.find_all(exp.Table):
        read.setdefault(each.name.lower(), []).append(each)
    defined = Counter(one.alias.lower() for one in statement.find_all(exp.CTE))
    earlier: set[str] = set()
    for cte in list(words.expressions):
        table = _read_once(cte, read, defined, earlier)
        earlier.add(cte.alias.lower())
        if table is None or not _by_row(cte.this):
            continue
        alias, columns = table.args.get("alias"), cte.args["alias"].columns
        called = table.this if alias is None else alias.this
        cte.pop()
        named = exp.TableAlias(this=called.copy(), columns=[column.copy() for column in columns])
        table.replace(exp.Subquery(this=cte.this, alias=named))
    if not words.expressions:
        words.pop()


def _read_once(
    cte: exp.CTE, read: Mapping[str, Sequence[exp.Table]], defined: Mapping[str, int], earlier: Collection[str]
) -> exp.Table | None:
    """The one table that names a query of the statement's WITH; None where there are more, or where a name would mean something else.

    A query of WITH sees those before it alone, and queries inside may have a WITH of their own.

    Args:
        cte: the query.
        read: the tables of the statement, by their names.
        defined: how many queries of any WITH have a name.
        earlier: the names of those before it.
    """
    name = cte.alias.lower()
    inside = {table.name.lower() for table in cte.this.find_all(exp.Table)}
    if defined[name] > 1 or any(each in defined and (each not in earlier or defined[each] > 1) for each in inside):
        return None
    if len(found := read.get(name, ())) != 1:
        return None
    (table,) = found
    if {word for word, value in table.args.items() if value} - {"this", "alias"}:
        return None
    around = table.find_ancestor(exp.CTE)
    while around is not None:
        if around is cte or (around.parent is cte.parent and around.alias.lower() in earlier):
            return None
        around = around.find_ancestor(exp.CTE)
    alias = table.args.get("alias")
    return None if alias is not None and alias.columns else table


def _by_row(query: exp.Expr) -> bool:
    """Whether a query only joins, filters and works out columns, row by row."""
    if not isinstance(query, exp.Select) or any(query.args.get(word) for word in _WORDS):
        return False
    nodes = (node for item in query.expressions for node in item.walk())
    return not any(isinstance(node, exp.AggFunc | exp.Window | exp.Anonymous) for node in nodes)
