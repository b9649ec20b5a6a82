"""What to write in place of EXISTS, IN and anti-joins of public rows with protected ones, and of QUALIFY beside aggregates."""

from collections.abc import Collection

from sqlglot import exp

from duckdb_dp.errors import DPError, brief
from duckdb_dp.sql.above.kinds import group_keys

MOST = 300
"""Characters of a statement to write that are shown."""


def of_rows(query: exp.Expr) -> exp.Expr | None:
    """The EXISTS or IN that a query stands in; None of others."""
    parent = query.parent.parent if isinstance(query.parent, exp.Subquery) else query.parent
    return parent if isinstance(parent, exp.Exists | exp.In) else None


def counted_instead(query: exp.Expr) -> str:
    """What is said of a subquery of EXISTS or IN that reads protected rows for public ones.

    Args:
        query: the subquery, or EXISTS or IN with it.
    """
    select = next(query.find_all(exp.Select), None)
    column = None if select is None else _tie(select, listed=isinstance(of_rows(query) or query, exp.In))
    source = None if select is None else select.args.get("from_")
    shown = "SELECT x, count(*) AS n FROM ... GROUP BY x"
    if column is None and select is not None and source is not None and _alone(select):
        found = exp.select(exp.alias_(exp.Count(this=exp.Star()), "n")).from_(source.this.copy())
        found.set("joins", [join.copy() for join in select.args.get("joins") or []])
        for one in _conditions(select):
            found = found.where(one.copy(), copy=False)
        text = found.sql("duckdb")
        shown = text if len(text) <= MOST else "SELECT count(*) AS n FROM ..."
        return (
            f"asks whether any unit has such rows, which one unit may decide; count them: {shown}; where there are none n is within its "
            "error of 0"
        )
    if column is not None and source is not None and select is not None:
        conditions = [one for one in _conditions(select) if not _reads(one, column)]
        found = exp.select(column.copy(), exp.alias_(exp.Count(this=exp.Star()), "n")).from_(source.this.copy())
        found.set("joins", [join.copy() for join in select.args.get("joins") or []])
        for one in conditions:
            found = found.where(one.copy(), copy=False)
        text = found.group_by(column.copy(), copy=False).sql("duckdb")
        shown = text if len(text) <= MOST else shown
    return (
        "asks of public rows whether any unit has rows there, which one unit may decide; count them, for all keys of the public table: "
        f"{shown}, of which those without rows have an n within its error of 0"
    )


def _tie(select: exp.Select, *, listed: bool) -> exp.Column | None:
    """The column of a subquery that is compared with the rows around it."""
    first = select.expressions[0].unalias() if select.expressions else None
    if listed and isinstance(first, exp.Column):
        return first
    own = {
        item.this.alias_or_name.lower()
        for item in (select.args.get("from_"), *(select.args.get("joins") or []))
        if item is not None
    }
    for one in _conditions(select):
        sides = [one.this.unnest(), one.expression.unnest()] if isinstance(one, exp.EQ) else []
        inside = [side for side in sides if isinstance(side, exp.Column) and side.table.lower() in own]
        if len(inside) == 1 and all(isinstance(side, exp.Column) and side.table for side in sides):
            return inside[0]
    return None


def _alone(select: exp.Select) -> bool:
    """Whether a subquery of EXISTS stands for itself: each of its columns is of its own tables, as far as it names any."""
    items = [select.args.get("from_"), *(select.args.get("joins") or [])]
    own = {item.this.alias_or_name.lower() for item in items if item is not None}
    return not isinstance(of_rows(select), exp.In) and all(
        not column.table or column.table.lower() in own for column in select.find_all(exp.Column)
    )


def _conditions(select: exp.Select) -> list[exp.Expr]:
    where = select.args.get("where")
    return (
        []
        if where is None
        else [one.unnest() for one in (where.this.flatten() if isinstance(where.this, exp.And) else [where.this])]
    )


def _reads(condition: exp.Expr, column: exp.Column) -> bool:
    """Whether a condition compares the column with one of another table."""
    columns = [*condition.find_all(exp.Column)]
    return column in columns and len(columns) > 1


def check_qualify(query: exp.Select) -> None:
    """Refuse a QUALIFY beside aggregates of columns that these do not have any more: it works on groups there.

    Raises:
        DPError: it reads one; the message says where it keeps rows.
    """
    qualify = query.args.get("qualify")
    if qualify is None:
        return
    keys = group_keys(query)
    known = {item.alias_or_name.lower() for item in query.expressions}
    known |= {column.name.lower() for key in keys for column in key.find_all(exp.Column)}
    for column in qualify.find_all(exp.Column):
        if column.name.lower() not in known and not _aggregated(column, qualify):
            raise DPError(
                f"QUALIFY beside aggregates is about groups, which have no {brief(column.sql('duckdb'))}; to keep some rows of each unit "
                f"and aggregate these, write it in FROM: {_inside(query, known)}"
            )


def _aggregated(column: exp.Column, qualify: exp.Expr) -> bool:
    """Whether a column stands in an aggregate of rows; one in OVER is a window's own."""
    around = column.find_ancestor(exp.AggFunc, exp.Window, exp.Query)
    return around is not None and around is not qualify and not isinstance(around, exp.Window)


def _inside(query: exp.Select, known: Collection[str]) -> str:
    """The SELECT over the rows that its QUALIFY keeps."""
    inner, outer = query.copy(), query.copy()
    inner.set("expressions", [exp.Star()])
    for word in ("group", "having", "order", "limit", "offset", "distinct", "with_"):
        inner.set(word, None)
    for word in ("where", "qualify", "joins"):
        outer.set(word, None)
    alias = query.args["from_"].this.alias if not query.args.get("joins") else ""
    outer.set("from_", exp.From(this=inner.subquery(alias or None)))
    text = outer.sql("duckdb")
    if query.args.get("joins") or len(text) > MOST:
        return "SELECT ... FROM (SELECT ... FROM ... QUALIFY row_number() OVER (PARTITION BY the unit's key ORDER BY ...) = 1)."
    return f"{text}."
