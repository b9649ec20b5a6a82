"""PIVOT, UNPIVOT and WITH RECURSIVE, which dp_sql does not read: what to write in their place."""

from collections.abc import Iterable

from sqlglot import exp

from duckdb_dp.errors import DPError, as_sql, brief, identifier

MOST = 500
"""Most characters of a proposal, which is to be run as it is."""


def check(statement: exp.Expr) -> None:
    """Refuse a statement that has one of them.

    Raises:
        DPError: it has one.
    """
    for node in statement.find_all(exp.Pivot):
        what, instead = ("UNPIVOT", _united(node)) if node.args.get("unpivot") else ("PIVOT", _grouped(node))
        raise DPError(f"{what} is not read inside; {instead}.")
    for words in statement.find_all(exp.With):
        if words.args.get("recursive"):
            raise DPError(_of_itself(words))


def _of_itself(words: exp.With) -> str:
    for cte in words.expressions:
        if any(table.name.lower() == cte.alias.lower() and not table.db for table in cte.this.find_all(exp.Table)):
            name = identifier(cte.alias)
            return (
                f"WITH RECURSIVE {name} reads itself, which is not read here; if it reads public tables alone, make it one: CREATE TABLE "
                f"{name} AS WITH RECURSIVE ..., CALL dp_public({as_sql(cte.alias)}); else write each of its steps as a query of WITH that "
                "reads the one before."
            )
    return f"WITH RECURSIVE {identifier(words.expressions[0].alias)} does not read itself; leave out RECURSIVE, which is not read here."


def _grouped(node: exp.Pivot) -> str:
    """In place of PIVOT: groups, which are turned above where nothing else is done with the columns."""
    source, keys = _source(node), _keys(node.args.get("group"))
    fields, taken = (
        (node.args["fields"], node.expressions)
        if node.args.get("fields")
        else (node.expressions, node.args.get("using"))
    )
    fields, taken = [_unaliased(one) for one in fields], taken or [exp.Count(this=exp.Star())]
    columns = [one.this if isinstance(one, exp.In) else one for one in fields]
    if _aggregated(node):
        column, value = _sql(columns[:1]), next((one.sql("duckdb") for one in fields[0].expressions), "'a'")
        listed = [
            *(one.sql("duckdb") for one in keys),
            f"{_sql([taken[0].unalias()])} FILTER (WHERE {column} = {value}) AS a",
            "...",
        ]
        by = f" GROUP BY {_sql(keys)}" if keys else ""
        return _short(f"write a column for each value: SELECT {', '.join(listed)} FROM {source}{by}")
    names = [one.alias or f"n{i or ''}" for i, one in enumerate(taken)]
    named = [f"{_sql([one.unalias()])} AS {identifier(name)}" for one, name in zip(taken, names, strict=True)]
    shown = [_sql(keys), _sql(columns)]
    where = " AND ".join(one.sql("duckdb") for one in fields if isinstance(one, exp.In))
    inner = f"SELECT {', '.join(filter(None, [*shown, *named]))} FROM {source}{f' WHERE {where}' if where else ''} GROUP BY ALL"
    kept = ", ".join(filter(None, [*shown, *map(identifier, names)]))
    sums = ", ".join(
        f"sum({identifier(name)})" + (f" AS {identifier(name)}" if len(names) > 1 else "") for name in names
    )
    return _short(
        f"ask for a row of each group, {inner}, and turn the answer: PIVOT (SELECT {kept} FROM dp_sql('...', ...)) ON {_sql(fields)} "
        f"USING {sums}"
    )


def _united(node: exp.Pivot) -> str:
    """In place of UNPIVOT: a SELECT for each column."""
    into, fields = node.args.get("into"), node.args.get("fields") or []
    if into is not None:
        label, value, columns = into.this, into.expressions[0], node.expressions
    else:
        label, value, columns = (
            (fields[0].this, node.expressions[0], fields[0].expressions)
            if fields
            else (exp.to_identifier("name"), exp.to_identifier("value"), node.expressions)
        )
    columns = [_unaliased(one) for one in columns]
    parts = (
        f"SELECT {as_sql(one.name)} AS {label.sql('duckdb')}, {one.sql('duckdb')} AS {value.sql('duckdb')} FROM {_source(node)}"
        for one in columns
    )
    return _short(f"write a SELECT for each column: {' UNION ALL '.join(parts)}")


def _source(node: exp.Pivot) -> str:
    """What is turned."""
    source = node.this if isinstance(node.this, exp.Expr) else node.parent
    if source is None:
        return "..."
    found = source.copy()
    found.set("pivots", None)
    return brief(found.sql("duckdb"))


def _aggregated(node: exp.Pivot) -> bool:
    """Whether the columns are aggregated above."""
    above = node.find_ancestor(exp.Select)
    return above is not None and any(item.find(exp.AggFunc) for item in above.expressions)


def _keys(group: exp.Expr | None) -> list[exp.Expr]:
    return [] if group is None else list(group.expressions)


def _unaliased(node: exp.Expr) -> exp.Expr:
    """A column, or column IN (values), without names of the columns that they become."""
    if not isinstance(node, exp.In):
        return node.unalias()
    found = node.copy()
    found.set("expressions", [one.unalias() for one in node.expressions])
    return found


def _sql(nodes: Iterable[exp.Expr]) -> str:
    return ", ".join(one.sql("duckdb") for one in nodes)


def _short(text: str) -> str:
    return text if len(text) <= MOST else "write SELECT ... GROUP BY, with a row of each group, and turn the answer"
