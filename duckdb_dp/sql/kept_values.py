"""Which of the listed values of an expression conditions leave: those on itself, and those by which its columns are not NULL."""

from collections.abc import Sequence

import duckdb
from sqlglot import exp

from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.errors import DPError
from duckdb_dp.sql.same_conditions import form
from duckdb_dp.sql.typed import alone
from duckdb_dp.sql.worked_out import TABLE, with_x


def never_null(value: exp.Expr, conditions: Sequence[exp.Expr]) -> set[str]:
    """The columns of an expression, as SQL, that are not NULL where all conditions hold: one on the column alone does not hold of NULL."""
    columns = {column.sql("duckdb") for column in value.find_all(exp.Column)} if form() >= 6 else set()
    return {text for text in columns if any(_excludes_null(one, text) for one in conditions)}


def _excludes_null(condition: exp.Expr, text: str) -> bool:
    null = condition.copy().transform(lambda one: exp.Null() if one.sql("duckdb") == text else one)
    if null == condition or null.find(exp.Column, exp.Query):
        return False
    try:
        with alone() as connection:
            asked = f"SELECT TRY(CAST(({null.sql('duckdb')}) AS BOOLEAN))"
            return connection.execute(asked).fetchall()[0][0] is not True
    except duckdb.Error:
        return False


def kept(value: exp.Expr, found: Attribute | None, conditions: Sequence[exp.Expr]) -> Attribute | None:
    """The listed values of an expression that satisfy the conditions on it alone; all of them where none does, or that is not known."""
    if found is None or form() < 6 or found.kind == "bins" or found.other or found.dtype.continuous:  # 0 is -0 too
        return found
    own = [shown for one in conditions if (shown := with_x(value, one)) is not None]
    labels = found.labels()
    if not own:
        return found
    holds = " AND ".join(f"TRY(CAST(({one.sql('duckdb')}) AS BOOLEAN))" for one in own)
    listed = f"SELECT unnest(range({len(labels)})) AS i, CAST(unnest(?::VARCHAR[]) AS {found.type}) AS x"
    try:
        with alone() as connection:
            texts = [None if one is None else str(one) for one in labels]
            asked = f"SELECT i FROM ({listed}) AS {TABLE} WHERE {holds} ORDER BY i"
            rows = [labels[i] for (i,) in connection.execute(asked, [texts]).fetchall()]
        values = [one for one in rows if one is not None]
        if not values or len(rows) == len(labels):
            return found
        return declare(name=found.name, type=found.type, values=values, nulls=None in rows)
    except (duckdb.Error, DPError):
        return found
