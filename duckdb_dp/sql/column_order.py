"""The columns of answers in the order of the SELECT that asked for them: without, groups stand in front."""

from collections.abc import Callable, Sequence

from sqlglot import exp

from duckdb_dp.counting.encode import quote
from duckdb_dp.sql.arguments import Arguments
from duckdb_dp.sql.clamped_sums import column_name, has_aggregates
from duckdb_dp.sql.parsed import shared_selects
from duckdb_dp.sql.session import Session


def arranged(session: Session, arguments: Arguments, answers: str, described: Callable[[], str]) -> str:
    """SELECT of the answers with their columns in the order of the call's SELECT, each answer with its errors.

    Args:
        session: of the call.
        arguments: of the call; of several SELECTs, and of a release that is read by its number, the columns stay.
        answers: the SELECT of all columns.
        described: makes the same of no release, so that its columns are known.

    Privacy: post-processing. What is described is not run.
    """
    asked = arguments.get("sql")
    selects = [] if asked is None else shared_selects(asked)
    if len(selects) != 1:
        return answers
    items = selects[0].expressions
    labels = [not has_aggregates(item) and item.find(exp.Column) is not None for item in items]
    plain = all(isinstance(item.unalias(), exp.Column) for item, label in zip(items, labels, strict=True) if label)
    if labels == sorted(labels, reverse=True) and (
        plain or sum(labels) == 1
    ):  # of others one may be worked out of another one
        return answers
    with session.looking() as cursor:
        if cursor is None:
            return answers
        columns = [str(name) for name, *_ in cursor.execute(f"DESCRIBE {described()}").fetchall()]
    wanted = [_name(item).lower() for item in items]
    parts: dict[str, list[str]] = {}
    first = ""
    for column in columns:
        first = column.lower() if column.lower() in wanted else first
        parts.setdefault("private" if column == "private" else first, []).append(quote(column))
    if {*parts} - {"private"} != {*wanted} or len({*wanted}) < len(wanted):
        return answers  # one is called otherwise, as another that is called alike
    found = [column for name in [*wanted, *({"private"} & {*parts} - {*wanted})] for column in parts[name]]
    if found == list(map(quote, columns)):
        return answers
    return f"SELECT {', '.join(found)} FROM ({answers})"


def in_order(select: exp.Select, names: Sequence[str]) -> list[str]:
    """Names of an answer's columns in the order of the SELECT that asked for it; as they are where one is called otherwise."""
    wanted = {_name(item).lower(): place for place, item in enumerate(select.expressions)}
    if {*wanted} != {name.lower() for name in names} or len(wanted) < len(select.expressions):
        return list(names)
    return sorted(names, key=lambda name: wanted[name.lower()])


def _name(item: exp.Expr) -> str:
    inner = item.unalias()
    if item.alias or isinstance(inner, exp.Column):
        return str(item.alias or inner.name)
    return str(column_name(inner) if has_aggregates(inner) else inner.sql("duckdb"))
