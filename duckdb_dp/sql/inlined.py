"""WITH that works row by row and is read once, as the subquery that it stands for: both are the same question, and have the same groups."""

from sqlglot import exp

_WORDS = ("with_", "group", "having", "order", "limit", "distinct", "qualify", "windows", "sample", "offset")


def in_place(statement: exp.Expr) -> None:
    """Put each such query of a statement's own WITH in the place of the table that names it."""
    words = statement.args.get("with_")
    if not isinstance(statement, exp.Select) or words is None or words.args.get("recursive"):
        return
    for cte in list(words.expressions):
        name = cte.alias.lower()
        if sum(one.alias.lower() == name for one in statement.find_all(exp.CTE)) > 1 or not _by_row(cte.this):
            continue
        read = [table for table in statement.find_all(exp.Table) if table.name.lower() == name]
        if len(read) != 1 or {word for word, value in read[0].args.items() if value} - {"this", "alias"}:
            continue
        (table,) = read
        alias, columns = table.args.get("alias"), cte.args["alias"].columns
        if (alias is not None and alias.columns) or table.find_ancestor(exp.CTE) is cte:
            continue
        called = table.this if alias is None else alias.this
        cte.pop()
        named = exp.TableAlias(this=called.copy(), columns=[column.copy() for column in columns])
        table.replace(exp.Subquery(this=cte.this, alias=named))
    if not words.expressions:
        words.pop()


def _by_row(query: exp.Expr) -> bool:
    """Whether a query only joins, filters and works out columns, row by row."""
    if not isinstance(query, exp.Select) or any(query.args.get(word) for word in _WORDS):
        return False
    nodes = (node for item in query.expressions for node in item.walk())
    return not any(isinstance(node, exp.AggFunc | exp.Window | exp.Anonymous) for node in nodes)
