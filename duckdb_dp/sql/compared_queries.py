"""dp_explain(mechanism := 'all') of queries, quantiles and dp_sql: every mechanism and route, with its error, and what 'auto' takes."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from duckdb_dp.answers import direct_plan, price
from duckdb_dp.answers import plan as planned_for
from duckdb_dp.errors import DPError
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.choose import PLANNERS, PURE_PLANNERS, choose
from duckdb_dp.plan.requested import selections
from duckdb_dp.plan.selection import rank_variances
from duckdb_dp.request import SELECT, Request
from duckdb_dp.sql import routes
from duckdb_dp.sql.registry import Rows

COLUMNS = {
    "mechanism": "VARCHAR",
    "noise": "VARCHAR",
    "rmse": "DOUBLE",
    "max_stddev": "DOUBLE",
    "ratio_to_best": "DOUBLE",
    "gap": "DOUBLE",
    "note": "VARCHAR",
}
"""A row for each mechanism."""

TAKEN = "'auto' takes this"
RANKS = "of ranks, where rows lie in many cells"


def compare(
    request: Request, *, by_cells: Request | None, by_rows: Request | None = None, by_ranks: Request | None = None
) -> Rows:
    """A row for each mechanism, the least error first, then those that cannot be used.

    Args:
        request: what 'auto' takes.
        by_cells: the same with its queries planned; None where that cannot be.
        by_rows: of dp_sql the same summed over the rows.
        by_ranks: of dp_quantiles the same selected by their ranks.

    Raises:
        DPError: no mechanism can answer.

    Privacy: costs nothing; depends on declarations and the call only.
    """
    planned = None if by_cells is None or by_cells.direct or not by_cells.questions else by_cells
    found = [] if planned is None else _planned(planned, request)
    if by_rows is not None and by_rows.direct:
        found += _direct(by_rows, request, planned)
    elif request.direct:
        found += _direct(request, request, None)
    if by_ranks is not None:
        found.append(_ranked(by_ranks, "; ".join([RANKS, *([TAKEN] if request.mechanism == SELECT else [])])))
    if all(row["noise"] is None for row in found):
        raise DPError(f"no mechanism can answer this: {found[0]['note']}")
    errors = [row["rmse"] for row in found if row["rmse"] is not None]
    for row in found:
        row["ratio_to_best"] = None if row["rmse"] is None else row["rmse"] / min(errors)
    return sorted(found, key=lambda row: (row["noise"] is None, row["rmse"] is None, row["rmse"]))


def _planned(request: Request, auto: Request) -> Rows:
    """The mechanisms that plan queries; of quantiles the errors are those of ranks."""
    found = []
    taken = (
        planned_for(replace(auto, mechanism="auto")).mechanism if not auto.direct and auto.mechanism != SELECT else None
    )
    for name in dict.fromkeys([*PLANNERS, *PURE_PLANNERS]):
        try:
            plan = choose(request.workload, price(request), mechanism=name, objective=request.objective)
        except DPError as refusal:
            found.append({**dict.fromkeys(COLUMNS), "mechanism": name, "note": str(refusal)})
            continue
        note = TAKEN if plan.mechanism == taken else None
        found.append(_row(name, plan.noise, *routes.shown_errors(plan, request), note) | {"gap": gap(plan)})
    return found


def _direct(request: Request, auto: Request, planned: Request | None) -> Rows:
    """Sums over the rows; and where quantiles are among them, these selected by their ranks."""
    sums = direct_plan(request)
    stddevs = [stddev for index in range(len(sums.sums)) if (stddev := sums.known_stddev(index)) is not None]
    rmse = math.sqrt(math.fsum(stddev**2 for stddev in stddevs) / len(stddevs)) if stddevs else None
    what = "the counts" if planned is not None else "of the sums with known bounds, each in its own unit"
    if planned is not None:
        rmse = routes.summed_error(planned, request)
    taken = [TAKEN] if auto.direct and auto.mechanism != SELECT else []
    found = [
        _row("direct", sums.noise, rmse, max(stddevs, default=None), "; ".join([f"{what}, taken row by row", *taken]))
    ]
    by_ranks = replace(request, mechanism=SELECT)
    if sums.histograms and any(direct_plan(by_ranks).selected(first) for first in sums.histograms):
        row = _ranked(by_ranks, RANKS)
        if any(one.kind != "quantile" for _, one in sums.sums) and row["rmse"] is not None:
            row |= {
                "rmse": None,
                "max_stddev": None,
                "note": f"the quantiles alone: a rank errs by {row['rmse']:.3g}, {RANKS[10:]}",
            }
        found.append(row)
    return found


def _ranked(request: Request, note: str) -> dict[str, Any]:
    try:
        variances = np.concatenate([rank_variances(one) for one in selections(request)])
    except DPError as refusal:
        return {**dict.fromkeys(COLUMNS), "mechanism": SELECT, "note": str(refusal)}
    return _row(SELECT, "exponential", math.sqrt(float(variances.mean())), math.sqrt(float(variances.max())), note)


def _row(mechanism: str, noise: str, rmse: float | None, largest: float | None, note: str | None) -> dict[str, Any]:
    known = {"mechanism": mechanism, "noise": noise, "rmse": rmse, "max_stddev": largest, "note": note}
    return {**dict.fromkeys(COLUMNS), **known}


def gap(planned: Plan) -> float:
    """How far from optimal the plan can be; rounding may leave an optimal one 1e-16 below its bound."""
    return max(0.0, planned.gap)
