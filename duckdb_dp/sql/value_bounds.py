"""Between which numbers values are clamped before they are summed: as conditions, declarations and public rows say."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from sqlglot import exp

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.expression_bounds import Bounds, Unbounded, bounds
from duckdb_dp.errors import DPError, brief
from duckdb_dp.sql.said_bounds import said

LARGEST = 1e100
"""Bounds beyond it, and below its inverse, are refused: the squares of numbers between them are still ordinary doubles."""


def value_bounds(
    value: exp.Expr,
    conditions: Sequence[exp.Expr],
    held: Sequence[exp.Expr],
    declared: Mapping[str, Attribute],
    *,
    average: bool,
) -> Bounds | None:
    """The bounds of an expression; None where nothing says them, so that they are chosen.

    Args:
        value: a checked expression.
        conditions: all of which hold.
        held: conditions that hold where their columns are not NULL, as public rows say.
        declared: the declarations, by name.
        average: whether it is averaged.

    Raises:
        DPError: they are too large, or declared of no numbers.
    """
    for more in (held, ()) if held else ((),):
        all_, known = [*conditions, *more], {**_declared(more), **declared}
        try:
            found = said(value, bounds(value, known, all_), all_, known, average=average)
        except Unbounded:
            found = None
        if found is not None and not _is_ordinary(found) and not more:
            ends = f"{found[0]:g} and {found[1]:g}"
            raise DPError(f"{brief(value.sql('duckdb'))} lies between {ends}; bounds go from 1e-100 to 1e100.")
        if found is None or _is_ordinary(found):
            return found
    return None


def _is_ordinary(found: Bounds) -> bool:
    largest = max(map(abs, found))
    return largest == 0 or 1 / LARGEST <= largest <= LARGEST


def _declared(held: Sequence[exp.Expr]) -> dict[str, Attribute]:
    """Dates and times, whose differences are numbers, and truth values, as if their ends were declared."""
    found = {}
    for node in held:
        low, high = node.args["low"], node.args["high"]
        if isinstance(low, exp.Boolean):
            found[node.this.name] = Attribute(name="held", type="BOOLEAN", kind="values", points=(False, True))
        elif isinstance(low, exp.Cast):
            with suppress(DPError):  # of one day alone
                ends, type_ = (low.this.name, high.this.name), low.to.sql("duckdb")
                found[node.this.name] = Attribute(name="held", type=type_, kind="bins", points=ends)
    return found
