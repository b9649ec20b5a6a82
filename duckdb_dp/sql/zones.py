"""Columns of types of which no values are answered: moments with a time zone, and all others that have no entry.

What is worked out of a moment with a time zone depends on the session's own zone, which a stored answer cannot know. So it is read as
``x AT TIME ZONE 'Europe/Paris'``, which is a TIMESTAMP whatever the session says. Of an INTERVAL its seconds are read, epoch(x), which are
a number. Of any type, x IS NULL and count(x) are known.
"""

from collections.abc import Callable
from functools import cache

from sqlglot import exp

from duckdb_dp.domain import types
from duckdb_dp.errors import DPError, as_sql, identifier
from duckdb_dp.sql.no_numbers import INTERVAL, ZONED, instead
from duckdb_dp.sql.typed import alone

TypeOf = Callable[[exp.Column], str]

_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In, exp.NullSafeEQ, exp.NullSafeNEQ)
_PASSING = (exp.Coalesce, exp.Least, exp.Greatest, exp.Nullif, exp.Case, exp.If)
"""What has the value of one of its parts; a CASE without an operand."""


def check(node: exp.Expr, type_of: TypeOf) -> None:
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
        if type_ == ZONED or types.find(type_) is not None or _is_null(column):
            continue
        if type_ != INTERVAL:
            raise DPError(types.refusal(type_, name) + f"; or ask count({name}), or {name} IS NULL.")
        if not isinstance(_around(column), exp.TimeToUnix):
            raise DPError(f"{name} is INTERVAL, which is no number; {instead(name, type_)}.")


def check_zoned(node: exp.Expr, type_of: TypeOf, name_of: TypeOf = lambda column: identifier(column.name)) -> bool:
    """Whether an expression is a moment with a time zone; refuse one that reads such a moment in the session's zone.

    In order, and equal, moments are whatever the session's zone is.

    Args:
        node, type_of: as in ``check``.
        name_of: what a column is called.

    Raises:
        DPError: it reads one, or names a zone that there is not.
    """

    def zoned(inner: exp.Expr) -> bool:
        return check_zoned(inner, type_of, name_of)

    if isinstance(node, exp.Column):
        return type_of(node) == ZONED
    if isinstance(node, exp.Paren):
        return zoned(node.this)
    if isinstance(node, exp.AtTimeZone):
        check_name(node.args["zone"].name)
        return not zoned(node.this)
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        zoned(node.this)
        return False
    parts = [*node.iter_expressions()]
    if isinstance(node, _PASSING) and not (isinstance(node, exp.Case) and node.this is not None):
        branches = node.args["ifs"] if isinstance(node, exp.Case) else [node] if isinstance(node, exp.If) else []
        if {zoned(branch.this) for branch in branches} >= {True}:
            raise _refusal(node, type_of, name_of)
        values = [branch.args["true"] for branch in branches] or parts
        values += [value for name in ("default", "false") if branches and (value := node.args.get(name)) is not None]
        found = {zoned(value) for value in values if not isinstance(value, exp.Null)}
    else:
        found = {zoned(part) for part in parts}
    if True not in found:
        return False
    if False not in found and isinstance(node, (*_COMPARED, *_PASSING)):
        return isinstance(node, _PASSING)
    raise _refusal(node, type_of, name_of)


def _refusal(node: exp.Expr, type_of: TypeOf, name_of: TypeOf) -> DPError:
    """Of an expression that reads a moment in the session's zone."""
    column = next((one for one in node.find_all(exp.Column) if type_of(one) == ZONED), None)
    if column is None:
        at = next(node.find_all(exp.AtTimeZone))
        return DPError(
            f"{at.sql('duckdb')} is a moment with a time zone; another AT TIME ZONE 'Europe/Paris' makes it a TIMESTAMP."
        )
    name = name_of(column)
    return DPError(
        f"{name} is a moment with a time zone; say in which zone it is read: {name} AT TIME ZONE 'UTC', or 'Europe/Paris'."
    )


@cache
def check_name(zone: str) -> None:
    """Refuse what is no time zone.

    Raises:
        DPError: it is none.
    """
    with alone() as connection:
        found = connection.execute("SELECT 1 FROM pg_timezone_names() WHERE lower(name) = lower(?)", [zone]).fetchone()
    if found is None:
        raise DPError(f"{as_sql(zone)} is no time zone; write 'UTC', or one such as 'Europe/Paris'.")


def _is_null(column: exp.Column) -> bool:
    """Whether an expression asks no more of a column than whether it is NULL."""
    around = _around(column)
    return isinstance(around, exp.Is) and isinstance(around.expression, exp.Null)


def _around(column: exp.Column) -> exp.Expr | None:
    """What a column is a part of, but for parentheses."""
    around = column.parent
    while isinstance(around, exp.Paren):
        around = around.parent
    return around
