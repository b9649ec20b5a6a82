"""Conditions on a row that cannot fail on any value: the engine may evaluate them as they are, and push them to where rows are read."""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from functools import lru_cache

from sqlglot import exp, parse_one

from duckdb_dp.sql.constants import compared

NUMBERS = {
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "FLOAT",
    "DOUBLE",
}
DIGITS = 15
"""Most characters of a number: with those of a BIGINT, or of a decimal of 18 digits, the common type has at most 38."""

_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


def parts(text: str, types: Mapping[str, str]) -> list[tuple[str, bool]]:
    """(SQL, whether it cannot fail) of the conditions that a condition joins by AND.

    Args:
        text: SQL of the condition.
        types: name -> type of the columns.
    """
    return list(_parts(text, tuple(types.items())))


@lru_cache(maxsize=1024)
def _parts(text: str, columns: tuple[tuple[str, str], ...]) -> list[tuple[str, bool]]:
    types = dict(columns)
    found: list[tuple[str, bool]] = []
    rest: list[exp.Expr] = []
    for part in _conjuncts(worked_out(parse_one(text, dialect="duckdb"), types)):
        if total(part, types):
            found.append((part.sql("duckdb"), True))
        else:
            rest.append(part)
    if rest and not found:
        return [(text, False)]
    return found + [(part.sql("duckdb"), False) for part in rest]


def worked_out(node: exp.Expr, types: Mapping[str, str]) -> exp.Expr:
    """The condition, whose comparisons have literals in place of expressions without columns."""
    return node.transform(lambda one: compared(one, lambda column: types.get(column.name, "")))


def _conjuncts(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.And):
        return [*_conjuncts(node.this), *_conjuncts(node.expression)]
    if isinstance(node, exp.Paren) and isinstance(node.this, exp.And):
        return _conjuncts(node.this)
    return [node]


def total(node: exp.Expr, types: Mapping[str, str]) -> bool:
    """Whether a condition consists of comparisons of columns with constants, or columns, of one kind, and of texts with patterns."""
    if isinstance(node, exp.And | exp.Or):
        return total(node.this, types) and total(node.expression, types)
    if isinstance(node, exp.Not | exp.Paren):
        return total(node.this, types)
    if isinstance(node, _COMPARED):
        return _alike([node.this, node.expression], types)
    if isinstance(node, exp.Between) and set(_given(node)) == {"this", "low", "high"}:
        return _alike([node.this, node.args["low"], node.args["high"]], types)
    if isinstance(node, exp.Like | exp.ILike) and set(_given(node)) <= {"this", "expression", "negate"}:
        return (
            _kind(node.this, types) == "text"
            and isinstance(node.this, exp.Column)
            and isinstance(node.expression, exp.Literal)
        )
    if isinstance(node, exp.In) and set(_given(node)) == {"this", "expressions"}:
        return _alike([node.this, *node.expressions], types)
    return False


def _given(node: exp.Expr) -> list[str]:
    return [name for name, value in node.args.items() if value]


def _alike(nodes: Sequence[exp.Expr], types: Mapping[str, str]) -> bool:
    kinds = {_kind(node, types) for node in nodes}
    return len(kinds) == 1 and "" not in kinds and any(isinstance(node, exp.Column) for node in nodes)


def _is_day(text: str) -> bool:
    """Whether a text is a date that never fails, such as '2024-02-29': DATE 'abc' does where a row is read, and not where none is."""
    if re.fullmatch(r"[1-9]\d{3}-\d\d-\d\d", text) is None:
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _kind(node: exp.Expr, types: Mapping[str, str]) -> str:
    """What is compared: 'number', 'text' or 'date'; '' for anything else."""
    if isinstance(node, exp.Column):
        type_ = types.get(node.name, "")
        if type_ in NUMBERS or (type_.startswith("DECIMAL(") and int(type_[8:].partition(",")[0]) <= 18):
            return "number"
        return {"VARCHAR": "text", "DATE": "date"}.get(type_, "")
    if isinstance(node, exp.Neg):
        return "number" if isinstance(node.this, exp.Literal) and _kind(node.this, types) == "number" else ""
    if isinstance(node, exp.Literal):
        return "text" if node.is_string else "number" if len(str(node.this)) <= DIGITS else ""
    if type(node) is exp.Cast and set(_given(node)) <= {"this", "to"} and isinstance(node.this, exp.Literal):
        return "date" if node.this.is_string and node.to.sql("duckdb") == "DATE" and _is_day(node.this.name) else ""
    return ""
