"""Columns of types of which no values are answered: moments with a time zone, and all others that have no entry.

What is worked out of a moment with a time zone depends on the session's own zone, which a stored answer cannot know. So it is read as
``x AT TIME ZONE 'Europe/Paris'``, which is a TIMESTAMP whatever the session says. Of any type, x IS NULL and count(x) are known.
"""

from collections.abc import Callable
from functools import cache

from sqlglot import exp

from duckdb_dp.domain import types
from duckdb_dp.errors import DPError, as_sql, identifier
from duckdb_dp.sql.typed import ZONED, alone

_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.NullSafeEQ, exp.NullSafeNEQ)


def check(node: exp.Expr, type_of: Callable[[exp.Column], str]) -> None:
    """Refuse an expression that reads values of such a column otherwise.

    Args:
        node: the expression.
        type_of: the type of a column.

    Raises:
        DPError: it reads them.
    """
    check_zoned(node, type_of)
    for column in node.find_all(exp.Column):
        type_, name = type_of(column), identifier(column.name)
        if type_ != ZONED and types.find(type_) is None and not _is_null(_around(column)):
            raise DPError(types.refusal(type_, name) + f"; or ask count({name}), or {name} IS NULL.")


def check_zoned(node: exp.Expr, type_of: Callable[[exp.Column], str]) -> None:
    """The same of moments with a time zone alone, which are compared with one another as well.

    Raises:
        DPError: it reads one in the session's zone, or names a zone that there is not.
    """
    for column in node.find_all(exp.Column):
        around = _around(column)
        if type_of(column) != ZONED or isinstance(around, exp.AtTimeZone) or _is_null(around):
            continue
        if not (isinstance(around, _COMPARED) and _all_zoned(around, type_of)):
            name = identifier(column.name)
            raise DPError(
                f"{name} is a moment with a time zone; say in which zone it is read: {name} AT TIME ZONE 'UTC', or 'Europe/Paris'."
            )
    for at in node.find_all(exp.AtTimeZone):
        check_name(at.args["zone"].name)
        if not isinstance(_around(at), exp.AtTimeZone) and _is_zoned(at, type_of):
            raise DPError(
                f"{at.sql('duckdb')} is a moment with a time zone; another AT TIME ZONE 'Europe/Paris' makes it a TIMESTAMP."
            )


@cache
def check_name(zone: str) -> None:
    """Refuse what is no time zone.

    Raises:
        DPError: it is none.
    """
    with alone() as connection:
        found = connection.execute("SELECT 1 FROM pg_timezone_names() WHERE name = ?", [zone]).fetchone()
    if found is None:
        raise DPError(f"{as_sql(zone)} is no time zone; write 'UTC', or one such as 'Europe/Paris'.")


def _all_zoned(node: exp.Expr, type_of: Callable[[exp.Column], str]) -> bool:
    """Whether a comparison is of columns with a time zone alone, which are in order whatever the session's zone is."""
    sides = [node.args[name] for name in ("this", "expression", "low", "high") if node.args.get(name) is not None]
    return all(isinstance(side.unnest(), exp.Column) and type_of(side.unnest()) == ZONED for side in sides)


def _is_null(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)


def _is_zoned(node: exp.Expr, type_of: Callable[[exp.Column], str]) -> bool:
    """Whether a moment has a time zone: each AT TIME ZONE takes it away, or gives it one."""
    inner = node.unnest()
    if isinstance(inner, exp.AtTimeZone):
        return not _is_zoned(inner.this, type_of)
    return isinstance(inner, exp.Column) and type_of(inner) == ZONED


def _around(node: exp.Expr) -> exp.Expr | None:
    """What an expression stands in, without parentheses."""
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return parent
