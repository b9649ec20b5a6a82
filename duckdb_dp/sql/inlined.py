"""WITH that works row by row and is read once, as the subquery that it stands for: both are the same question, and have the same groups."""

from sqlglot import exp

_WORDS = ("with_", "group", "having", "order", "limit", "distinct", "qualify", "windows", "sample", "offset")


def in_place(statement: exp.Expr) -> None:
    """Put each such query of a statement's own WITH in the place of the table that names it, where all names mean the same there."""
    words = statement.args.get("with_")
    if not isinstance(statement, exp.Select) or words is None or words.args.get("recursive"):
        return
    earlier: set[str] = set()
    for cte in list(words.expressions):
        table = _read_once(statement, cte, earlier)
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


def _read_once(statement: exp.Select, cte: exp.CTE, earlier: set[str]) -> exp.Table | None:
    """The one table that names a query of the statement's WITH; None where there are more, or where a name would mean something else.

    A query of WITH sees those before it alone, and queries inside may have a WITH of their own.
    """
    name = cte.alias.lower()
    others = [one.alias.lower() for one in statement.find_all(exp.CTE) if one is not cte]
    inside = {table.name.lower() for table in cte.this.find_all(exp.Table)} & {*others}
    if name in others or any(each not in earlier or others.count(each) > 1 for each in inside):
        return None
    read = [table for table in statement.find_all(exp.Table) if table.name.lower() == name]
    if len(read) != 1 or {word for word, value in read[0].args.items() if value} - {"this", "alias"}:
        return None
    (table,) = read
    around = [one for one in (table.find_ancestor(exp.CTE),) if one is not None]
    while around and around[-1].find_ancestor(exp.CTE) is not None:
        around.append(around[-1].find_ancestor(exp.CTE))  # type: ignore[arg-type]
    alias = table.args.get("alias")
    before = any(one is cte or (one.parent is cte.parent and one.alias.lower() in earlier) for one in around)
    return None if before or (alias is not None and alias.columns) else table


def _by_row(query: exp.Expr) -> bool:
    """Whether a query only joins, filters and works out columns, row by row."""
    if not isinstance(query, exp.Select) or any(query.args.get(word) for word in _WORDS):
        return False
    nodes = (node for item in query.expressions for node in item.walk())
    return not any(isinstance(node, exp.AggFunc | exp.Window | exp.Anonymous) for node in nodes)
