"""Values of which DuckDB's optimizer knows nothing, for expressions of which it may leave out a part that fails.

Its statistics say whether any row of a column is NULL, and which values are the smallest and the largest. By them it leaves out parts
of an expression. What fails there fails no more then, in any row, until one person's row changes the statistics: that person would
change the values of all rows. A member of a UNION has no statistics.

Where every part decides the value, none is left out, and the union, which costs more than the arithmetic, is not needed: see ``whole``.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp


FIRST = "290309-12-22 (BC) 00:00:00"
"""The first moment of which DuckDB makes a text: of an earlier one it makes an internal error, which TRY does not catch."""


def written(value: str, type_: str) -> str:
    """SQL of a value of a type; NULL of a moment of which DuckDB makes no text."""
    if type_ not in ("TIMESTAMP", "TIMESTAMP_MS", "TIMESTAMP_S"):
        return value
    first, least = (f"'{text}'::{type_}" for text in (FIRST, "-infinity"))
    return f"CASE WHEN {value} >= {first} OR {value} = {least} THEN {value} END"


def opaque(value: str, type_: str) -> str:
    """SQL of the same value, without statistics; NULL of a moment of which DuckDB makes no text."""
    return f"union_extract(union_value(v := {written(value, type_)}), 'v')"


def with_opaque_columns(node: "exp.Expr", type_of: "Callable[[exp.Column], str]") -> "exp.Expr":
    """An expression with each of its columns without statistics.

    Args:
        node: the expression.
        type_of: the type of a column.
    """
    from sqlglot import exp, parse_one  # for import time

    def one(inner: exp.Expr) -> exp.Expr:
        if not isinstance(inner, exp.Column):
            return inner
        return parse_one(opaque(inner.sql("duckdb"), type_of(inner)), dialect="duckdb")

    return node.transform(one)


def whole(node: "exp.Expr", types: Mapping[str, str]) -> bool:
    """Whether no statistics can make DuckDB leave out a part of an expression that might fail: inside TRY it fails row by row.

    So it is for sums, differences and products of columns and of numbers other than 0, and for CASE over such with conditions
    that cannot fail: which branch a row takes, the row says.

    Args:
        node: the expression.
        types: name -> type of the columns.
    """
    from sqlglot import exp  # for import time

    from duckdb_dp.sql.total_conditions import total

    if isinstance(node, exp.Column):
        return True
    if isinstance(node, exp.Literal):
        return not node.is_string
    if isinstance(node, exp.Paren | exp.Neg):
        return whole(node.this, types)
    if isinstance(node, exp.Mul) and not all(_nonzero(side) for side in (node.this, node.expression)):
        return False
    if isinstance(node, exp.Add | exp.Sub | exp.Mul):
        return whole(node.this, types) and whole(node.expression, types)
    if isinstance(node, exp.Case) and node.this is None:
        branches = [branch.args["true"] for branch in node.args["ifs"]]
        branches += [node.args["default"]] if node.args.get("default") is not None else []
        conditions = (branch.this for branch in node.args["ifs"])
        return all(total(one, types) for one in conditions) and all(whole(one, types) for one in branches)
    return False


def _nonzero(node: "exp.Expr") -> bool:
    """Whether a factor has a column, or is a number other than 0: times 0 DuckDB may take for 0."""
    from sqlglot import exp  # for import time

    if node.find(exp.Column) is not None:
        return True
    return isinstance(node, exp.Literal) and not node.is_string and float(node.this) != 0
