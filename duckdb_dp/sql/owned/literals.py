"""Columns whose values the text of a statement says: literals, a CASE of them, and a UNION of such columns. They are public."""

from collections.abc import Iterable

from sqlglot import exp

from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.domain.types import Scalar
from duckdb_dp.sql.owned.totals import kind

MOST = 65_536
"""Most values of a column that are noted."""


def of_case(value: exp.Case, type_: str) -> list[Scalar]:
    """The values of a CASE of literals, as they are written; none of another one."""
    results = [one.args["true"] for one in value.args["ifs"]]
    results += [value.args["default"]] if value.args.get("default") is not None else []
    found = [literal(one) for one in results]
    kinds = {type(one) for one in found}
    if kinds != ({str} if type_ == "VARCHAR" else {int} if kind(type_) == "whole" else None):
        return []
    return [one for one in dict.fromkeys(found) if one is not None]


def literal(node: exp.Expr) -> Scalar | None:
    """The value of a number or a text; None of anything else."""
    inner = node.unnest()
    if isinstance(inner, exp.Neg) and isinstance(inner.this, exp.Literal):
        value = literal(inner.this)
        return -value if isinstance(value, int | float) else None
    if not isinstance(inner, exp.Literal):
        return None
    if inner.is_string:
        return inner.name
    return int(inner.name) if inner.name.isdigit() else float(inner.name)


def told(value: exp.Expr, type_: str) -> Attribute | None:
    """The values of a column, where its expression is a literal or a CASE of literals."""
    inner = value.unnest()
    if isinstance(inner, exp.Case):
        found = of_case(inner, type_)
        return declare(name="x", type=type_, values=found, nulls=inner.args.get("default") is None) if found else None
    single = exp.Case(ifs=[exp.If(this=exp.true(), true=inner.copy())])
    found = of_case(single, type_)
    return declare(name="x", type=type_, values=found) if found else None


def united(sides: Iterable[Attribute | None], type_: str) -> Attribute | None:
    """The values of a column of a UNION; None where those of a side are not known, or they are too many."""
    known = [side for side in sides if side is not None]
    if len(known) < 2:
        return None
    points = [*dict.fromkeys(point for side in known for point in side.points)]
    if len(points) > MOST:
        return None
    return declare(name="x", type=type_, values=points, nulls=any(side.nulls for side in known))
