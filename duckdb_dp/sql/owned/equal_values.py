"""Values that are equal and not the same: which of them stands for all must not depend on the order of rows.

Under a collation 'a' and 'A' may be equal, and so are 0 and -0, or 30 days and a month. DuckDB shows the first of equal ones
that it meets, and in which order it meets one unit's rows may depend on the rows of others. So of equal values the one of the
smallest text, byte by byte, is taken.
"""

import re
from collections.abc import Callable

from sqlglot import exp

from duckdb_dp.errors import DPError, brief
from duckdb_dp.sql.owned.ties import PLAIN

_SAME = PLAIN | {"TIME", "TIMESTAMP WITH TIME ZONE", '"NULL"'}


def apart(type_: str) -> bool:
    """Whether equal values of a type are the same."""
    return type_ in _SAME or re.match(r"(DECIMAL|ENUM)\(", type_) is not None


def bytes_of(value: exp.Expr) -> exp.Expr:
    """What tells values of one type apart, which no collation compares."""
    return exp.Anonymous(this="encode", expressions=[exp.cast(value.copy(), "VARCHAR")])


def one_zero(value: exp.Expr, type_: str) -> exp.Expr:
    """A FLOAT or DOUBLE with one zero, and one NaN."""
    found = exp.Case().when(exp.EQ(this=value.copy(), expression=exp.Literal.number(0)), exp.cast("0", type_))
    return found.when(exp.Anonymous(this="isnan", expressions=[value.copy()]), exp.cast("'NaN'", type_)).else_(value)


def extreme(aggregate: exp.Expr, type_: str) -> exp.Expr:
    """min(x) or max(x) of a column, in any order of the rows."""
    value = aggregate.this
    if apart(type_):
        return aggregate
    if type_ in ("FLOAT", "DOUBLE"):
        return type(aggregate)(this=one_zero(value, type_))
    # All are DESC, as settings say what is meant by no word, and where NULLs go.
    least = isinstance(aggregate, exp.Min)
    known = exp.Is(this=value.copy(), expression=exp.Null())
    keys = [known if least else exp.Not(this=known), value.copy(), bytes_of(value)]
    order = exp.Order(this=value, expressions=[exp.Ordered(this=one, desc=True, nulls_first=False) for one in keys])
    return exp.Last(this=order) if least else exp.First(this=order)


def shown(columns: dict[str, str]) -> list[exp.Expr]:
    """Columns of a GROUP BY as they are shown: of equal rows, those whose texts are the smallest together.

    Args:
        columns: name -> type, of all that is grouped by.

    Returns:
        Expressions over the rows ``r``.
    """
    alike = [exp.column(name, table="r") for name, type_ in columns.items() if not apart(type_)]
    texts = [bytes_of(one) for one in alike]
    by = texts[0] if len(texts) == 1 else _together(texts)
    return [
        exp.column(name, table="r")
        if apart(type_)
        else exp.Anonymous(this="arg_min", expressions=[exp.column(name, table="r"), by.copy()])
        for name, type_ in columns.items()
    ]


def _together(texts: list[exp.Expr]) -> exp.Expr:
    """Bytes of several columns as one text, which is NULL for none."""
    none = exp.cast(exp.Literal.string(""), "BLOB")
    listed = [exp.func("hex", exp.func("coalesce", text, none.copy())) for text in texts]
    found: exp.Expr = listed[0] if listed else exp.null()
    for one in listed[1:]:
        found = exp.DPipe(this=exp.DPipe(this=found, expression=exp.Literal.string("-")), expression=one)
    return found


_COMPARED = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In, exp.Is,
)  # fmt: skip


def settled(query: exp.Expr, type_of: Callable[[exp.Column], str | None]) -> exp.Expr:
    """A subquery whose value is the same for equal rows around it.

    DuckDB works a subquery out once for all rows around it that are equal in the columns that it reads of them, and these may be
    rows of several units. Of 30 days and a month it would see the one that it meets first. Comparisons do not tell such
    values apart; elsewhere numbers have one zero, and values of other types are refused.

    Args:
        query: the subquery.
        type_of: the type of a column of the rows around; None of other columns.

    Raises:
        DPError: it reads such a value.
    """

    def one(node: exp.Expr) -> exp.Expr:
        type_ = type_of(node) if isinstance(node, exp.Column) else None
        if type_ is None or apart(type_) or type_ == "VARCHAR" or isinstance(node.parent, _COMPARED):
            return node
        if type_ in ("FLOAT", "DOUBLE"):
            return one_zero(node.copy(), type_)
        raise DPError(
            f"a subquery reads {brief(node.name)} of the row around it, which is {type_}, and other rows may have equal values that "
            "are written in another way; only compare it there, by =, <, >, BETWEEN or IN."
        )

    return query.transform(one)
