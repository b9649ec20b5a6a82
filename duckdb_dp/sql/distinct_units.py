"""Which expressions are the privacy unit or NULL, so that the number of their distinct values is one of units: one for each."""

from sqlglot import exp


def one_or_null(node: exp.Expr) -> list[exp.Column]:
    """The columns, in every row of one of which an expression has its value where it is not NULL; none where that is not so.

    count(DISTINCT CASE WHEN c THEN unit END) has such a one.
    """
    if isinstance(node, exp.Column):
        return [node]
    if isinstance(node, exp.Paren | exp.Nullif):
        return one_or_null(node.this)
    if isinstance(node, exp.Case):
        branches = [branch.args["true"] for branch in node.args["ifs"]]
    elif isinstance(node, exp.If):
        branches = [node.args["true"]]
    else:
        return []
    default = node.args.get("false") if isinstance(node, exp.If) else node.args.get("default")
    values = [one for one in (*branches, default) if one is not None and not isinstance(one, exp.Null)]
    found = [one_or_null(value) for value in values]
    return [column for columns in found for column in columns] if all(found) else []
