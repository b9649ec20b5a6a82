"""How many rows of each unit are kept by conditions on a number that row_number() gives them, as QUALIFY row_number() OVER (...) = 1."""

from collections.abc import Callable, Iterable

from sqlglot import exp

from duckdb_dp.sql.same_conditions import form


def kept(conditions: Iterable[exp.Expr], numbers: Callable[[exp.Column], bool]) -> int | None:
    """The most rows of a unit that satisfy all of these conditions; None where none of them says it.

    Args:
        conditions: what AND joins.
        numbers: whether a column numbers the rows of each unit from 1, each once.
    """
    if form() < 4:  # requests of earlier versions count as many rows as a unit has
        return None
    found = [rows for one in conditions if (rows := _rows(one.unnest(), numbers)) is not None]
    return max(1, min(found)) if found else None


def _rows(node: exp.Expr, numbers: Callable[[exp.Column], bool]) -> int | None:
    if isinstance(node, exp.Between):
        low, high = _whole(node.args["low"]), _whole(node.args["high"])
        return None if low is None or high is None or not _is(node.this, numbers) else high - max(low, 1) + 1
    if not isinstance(node, exp.EQ | exp.LTE | exp.LT | exp.GTE | exp.GT):
        return None
    turned = isinstance(node, exp.GTE | exp.GT)
    column, end = (node.expression, node.this) if turned else (node.this, node.expression)
    if isinstance(node, exp.EQ):
        if not _is(column, numbers):
            column, end = end, column
        return 1 if _is(column, numbers) and _whole(end) is not None else None
    most = _whole(end)
    if most is None or not _is(column, numbers):
        return None
    return most - isinstance(node, exp.LT | exp.GT)


def _is(node: exp.Expr, numbers: Callable[[exp.Column], bool]) -> bool:
    inner = node.unnest()
    return isinstance(inner, exp.Column) and numbers(inner)


def _whole(node: exp.Expr) -> int | None:
    """A whole number that is written out."""
    inner = node.unnest()
    return int(inner.name) if isinstance(inner, exp.Literal) and not inner.is_string and inner.name.isdigit() else None
