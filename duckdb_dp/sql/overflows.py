"""Arithmetic whose type is too narrow for what the declared values make of it: refused, as its rows would be NULL without a word."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlglot import exp, parse_one

from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.expression_bounds import Bounds, bounds
from duckdb_dp.domain.types.base import InUnits
from duckdb_dp.errors import DPError, brief
from duckdb_dp.grouped_sums import Sum
from duckdb_dp.sql.typed import type_of

_EVERYWHERE = (0, 127)
"""Numbers that all types hold."""


def check_sums(
    condition: exp.Expr | None,
    sums: Sequence[Sum],
    keys: Sequence[str],
    columns: Mapping[str, str],
    declared: Mapping[str, Attribute],
) -> None:
    """The same of all expressions of a SELECT of one table: its condition, the values and conditions of its sums, and its groups.

    Raises:
        DPError: as ``check``.
    """
    all_ = [] if condition is None else [condition]
    asked = [(node, all_) for node in [*all_, *(parse_one(text, dialect="duckdb") for text in keys)]]
    for value, where in dict.fromkeys((one.value, one.where) for one in sums):
        known = [*all_, *([parse_one(where, dialect="duckdb")] if where else [])]
        asked += [
            (node, known) for node in [*known[len(all_) :], *([parse_one(value, dialect="duckdb")] if value else [])]
        ]
    for node, known in asked:
        check(node, lambda one: type_of(columns, one.sql("duckdb")), lambda one: declared.get(one.name), known)


def check(
    node: exp.Expr,
    type_of: Callable[[exp.Expr], str],
    attribute: Callable[[exp.Column], Attribute | None],
    conditions: Iterable[exp.Expr] = (),
) -> None:
    """Refuse sums, differences, products and negatives whose type does not hold what they may be of declared values.

    DuckDB fails in such a row, which would tell of it, so it is NULL here: what was left of avg(x * x) would be the average of the small x.
    Rows with values that nobody has declared may still be NULL so, which no declaration says.

    Args:
        node: an expression of a row.
        type_of: the type of an expression.
        attribute: the declaration of a column.
        conditions: what the rows satisfy.

    Raises:
        DPError: declarations and conditions allow a number that the type does not hold.

    Privacy: costs nothing, and reads no rows.
    """
    found = [one for one in node.find_all(exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Abs) if not _guarded(one, node)]
    if not any(one.find(exp.Column) for one in found):
        return
    kept = list(conditions)
    columns = {column.sql("duckdb"): column for one in [node, *kept] for column in one.find_all(exp.Column)}
    names = {text: f"c{i}" for i, text in enumerate(columns)}
    declared = {names[text]: known for text, column in columns.items() if (known := attribute(column)) is not None}

    def renamed(one: exp.Expr) -> exp.Expr:
        return one.copy().transform(lambda n: exp.column(names[n.sql("duckdb")]) if isinstance(n, exp.Column) else n)

    limits = [renamed(one) for one in kept]
    for one in reversed(found):  # the innermost first
        try:
            ends = bounds(renamed(one), declared, limits) if one.find(exp.Column) else None
        except DPError:  # of undeclared columns
            continue
        if ends is not None and not (_EVERYWHERE[0] <= ends[0] and ends[1] <= _EVERYWHERE[1]):
            _check_one(one, type_of(one), ends)


def _guarded(one: exp.Expr, node: exp.Expr) -> bool:
    """Whether a part stands where some rows alone may get: not in the first condition of a CASE, or first in coalesce."""
    part = one
    while part is not node and (above := part.parent) is not None:
        first = above.args.get("ifs", [None])[0] if isinstance(above, exp.Case) else above
        if isinstance(above, exp.If) and part.arg_key != "this":
            return True
        if isinstance(above, exp.Case | exp.Coalesce) and part is not (
            above.this if isinstance(above, exp.Coalesce) else first
        ):
            return True
        part = above
    return False


def _check_one(node: exp.Expr, type_: str, ends: Bounds) -> None:
    if _holds(type_, ends):
        return
    wider = next((name for name in ("BIGINT", "HUGEINT") if _holds(name, ends)), "DOUBLE")
    wider = wider if isinstance(types.find(type_), types.Whole) else "DOUBLE"
    plain = node.copy().transform(lambda n: exp.column(n.name, quoted=True) if isinstance(n, exp.Column) else n)
    written = f"CAST({next(iter(plain.find_all(exp.Column))).sql('duckdb')} AS {wider})"
    raise DPError(
        f"{brief(plain.sql('duckdb'))} is {type_}, which does not hold all that declared values make of it, {ends[0]:g} to "
        f"{ends[1] + 0.0:g}: DuckDB fails there, and such rows would count as NULL; write {written} in it."
    )


def _holds(type_: str, ends: Bounds) -> bool:
    """Whether a type holds all numbers between two; a type without a unit, as DOUBLE, holds any."""
    dtype = types.find(type_)
    if not isinstance(dtype, InUnits) or not dtype.numeric:
        return True
    low, high = dtype.limits
    return low <= ends[0] * dtype.per_one and ends[1] * dtype.per_one <= high
