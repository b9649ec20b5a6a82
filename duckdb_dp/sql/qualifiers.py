"""Whether the tables that columns name are those that a SELECT reads, wherever in it they are named: also in HAVING and ORDER BY."""

from collections.abc import Callable, Collection, Iterable, Sequence

from sqlglot import exp

from duckdb_dp.errors import DPError, as_written, brief

Name = Sequence[str]
"""Catalog, schema and name of a table; fewer where they are not known."""


def check(
    select: exp.Select,
    sources: Iterable[exp.Expr],
    full: Callable[[exp.Table], Name | None] = lambda table: None,
    columns: Collection[str] | None = None,
) -> None:
    """Refuse columns of tables that a SELECT does not read, under names that these do not have there, and fields of structs.

    Those of subqueries in it are checked where these are read. The prefix ``alias`` of the name of a column of the result is left out
    where the name means that column without it.

    Args:
        select: the SELECT.
        sources: the items of its FROM.
        full: the full name of a table; None where it is not known.
        columns: the names of columns that it reads, in small letters; None where they are not known.

    Raises:
        DPError: there is one.
    """
    read = [*sources]
    if not read:
        return
    _leave_out_alias(select, read, columns)
    inside = {"from_", "from", "joins", "with_", "with"}
    for word, value in select.args.items():
        for part in value if isinstance(value, list) else [value]:
            for node in part.walk(prune=_is_query) if isinstance(part, exp.Expr) and word not in inside else ():
                if isinstance(node, exp.Column) and node.table and not any(_means(node, one, full) for one in read):
                    tables = " or ".join(dict.fromkeys(brief(one.sql("duckdb")) for one in read))
                    raise DPError(
                        f"{brief(as_written(select.sql('duckdb')))} uses {brief(node.sql('duckdb'))}, which is no column of {tables}."
                    )


def _leave_out_alias(select: exp.Select, read: Iterable[exp.Expr], columns: Collection[str] | None) -> None:
    if any(one.alias_or_name.lower() == "alias" for one in read):
        return
    named = {one.alias.lower() for one in select.expressions if one.alias}
    own = [node for word in ("having", "qualify") if (node := select.args.get(word)) is not None]
    own = [] if columns is None else [*own, *select.expressions]
    order = select.args.get("order")
    for node in [column for one in own for column in _with_alias(one)]:
        if columns is not None and node.name.lower() in named - {*columns}:
            node.set("table", None)
    plain = {one.name.lower(): one for one in select.expressions if isinstance(one, exp.Column)}
    for node in [] if order is None else _with_alias(order):
        name = node.name.lower()
        if name in named and (isinstance(node.parent, exp.Ordered) or name not in (columns or ())):
            node.set("table", None)
        elif name in plain and name not in named:
            node.replace(plain[name].copy())


def _with_alias(node: exp.Expr) -> list[exp.Column]:
    columns = [one for one in node.walk(prune=_is_query) if isinstance(one, exp.Column)]
    return [one for one in columns if [part.name.lower() for part in one.parts[:-1]] == ["alias"]]


def _is_query(node: exp.Expr) -> bool:
    return isinstance(node, exp.Query)


def _means(column: exp.Column, source: exp.Expr, full: Callable[[exp.Table], Name | None]) -> bool:
    """Whether a column's table is a source: by its alias, or by its name, with its schema and catalog, one of them or none."""
    written = [part.name.lower() for part in column.parts[:-1]]
    if written[-1] != source.alias_or_name.lower():
        return False
    if len(written) == 1:
        return True
    if source.alias or not isinstance(source, exp.Table):
        return False
    known = full(source)
    name = [part.lower() for part in known or [one.name for one in source.parts]]
    own = name[-len(written) :]
    if own == written[-len(own) :]:
        return True
    # A catalog before the name of the table alone; of what is not known it was looked at where it is.
    return len(written) == 2 and ((known is None and len(name) == 2) or (len(name) == 3 and written[0] == name[0]))
