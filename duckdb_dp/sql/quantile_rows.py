"""How many rows quantiles need to have a value, which is known before anything is charged."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from duckdb_dp.answers import direct_plan
from duckdb_dp.errors import brief
from duckdb_dp.plan.open_ends import rows_to_tell
from duckdb_dp.request import Request

if TYPE_CHECKING:
    from duckdb_dp.plan.direct import DirectPlan


def needed(planned: "DirectPlan", index: int) -> int | None:
    """Of about how many rows of a group a quantile has a value; None of other sums, and where the error is not known before."""
    one = planned.sums[index][1]
    if one.kind != "quantile" or one.cells is None or (stddev := planned.known_stddev(index)) is None:
        return None
    return round(rows_to_tell(one.cells, one.quantile, stddev, planned.quantile))


def told_of(planned: "DirectPlan", index: int, route: str | None) -> str | None:
    """The route of a sum, and of a quantile of how many rows it has a value."""
    rows = needed(planned, index)
    return route if rows is None or rows < 2 else f"{route or 'direct'}; NULL of fewer than about {rows:,} rows"


def notes(request: Request) -> Iterator[str]:
    """A line for each value whose quantiles may be NULL for want of rows.

    Privacy: public.
    """
    if not any(one.kind == "quantile" for part in request.direct for one in part.sums):
        return
    planned, found = direct_plan(request), dict[str, int]()
    for index, (_, one) in enumerate(planned.sums):
        rows = needed(planned, index)
        if rows is not None and rows > 1:
            found[one.value] = max(found.get(one.value, 0), rows)
    for value, rows in found.items():
        yield (
            f"a quantile of {brief(value)} is NULL where fewer than about {rows:,} rows are counted: bounds (a condition such as "
            "BETWEEN 0 AND 100), a declared domain, or more budget make it fewer"
        )
