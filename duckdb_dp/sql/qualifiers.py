"""Whether the tables that columns name are those that a SELECT reads, wherever in it they are named: also in HAVING and ORDER BY."""

from collections.abc import Callable, Iterable, Sequence

from sqlglot import exp

from duckdb_dp.errors import DPError, as_written, brief

Name = Sequence[str]
"""Catalog, schema and name of a table; fewer where they are not known."""


def check(
    select: exp.Select, sources: Iterable[exp.Expr], full: Callable[[exp.Table], Name | None] = lambda table: None
) -> None:
    """Refuse columns of tables that a SELECT does not read, under names that these do not have there, and fields of structs.

    Those of subqueries in it are checked where these are read.

    Args:
        select: the SELECT.
        sources: the items of its FROM.
        full: the full name of a table; None where it is not known.

    Raises:
        DPError: there is one.
    """
    read = [*sources]
    if not read:
        return
    inside = {"from_", "from", "joins", "with_", "with"}
    for word, value in select.args.items():
        for part in value if isinstance(value, list) else [value]:
            for node in part.walk(prune=_is_query) if isinstance(part, exp.Expr) and word not in inside else ():
                if isinstance(node, exp.Column) and node.table and not any(_means(node, one, full) for one in read):
                    tables = " or ".join(dict.fromkeys(brief(one.sql("duckdb")) for one in read))
                    raise DPError(
                        f"{brief(as_written(select.sql('duckdb')))} uses {brief(node.sql('duckdb'))}, which is no column of {tables}."
                    )


def _is_query(node: exp.Expr) -> bool:
    return isinstance(node, exp.Query)


def _means(column: exp.Column, source: exp.Expr, full: Callable[[exp.Table], Name | None]) -> bool:
    """Whether a column's table is a source: by its alias, or by its name, with its schema and catalog or without."""
    written = [part.name.lower() for part in column.parts[:-1]]
    if written[-1] != source.alias_or_name.lower():
        return False
    if len(written) == 1:
        return True
    if source.alias or not isinstance(source, exp.Table):
        return False
    name = [part.lower() for part in full(source) or [one.name for one in source.parts]]
    known = name[-len(written) :]
    return known == written[-len(known) :]
