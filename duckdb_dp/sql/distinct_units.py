"""Which expressions are the privacy unit or NULL, so that the number of their distinct values is one of units: one for each."""

from sqlglot import exp


def one_or_null(node: exp.Expr) -> list[exp.Column]:
    """Columns, of which an expression has the value of one in each row, or is NULL; none where it may have another value.

    CASE WHEN c THEN unit END is the unit or NULL.
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
