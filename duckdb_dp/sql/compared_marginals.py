"""dp_explain(mechanism := 'all') of marginals: every mechanism and reading with the error to expect, and what 'auto' takes."""

from dataclasses import replace

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.answers import plan as planned_for
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.choose import FITTED, PLANNERS, PURE_PLANNERS
from duckdb_dp.request import Request
from duckdb_dp.sql.arguments import Arguments
from duckdb_dp.sql.readings import UNBIASED, chosen
from duckdb_dp.sql.registry import Rows
from duckdb_dp.sql.session import Session
from duckdb_dp.trial import trial

COLUMNS = {
    "mechanism": "VARCHAR",
    "reading": "VARCHAR",
    "expected_error": "DOUBLE",
    "intervals": "BOOLEAN",
    "noise": "VARCHAR",
    "rmse": "DOUBLE",
    "max_stddev": "DOUBLE",
    "ratio_to_best": "DOUBLE",
    "gap": "DOUBLE",
    "note": "VARCHAR",
}
"""A row for each mechanism and reading."""

MOST = 10**12
"""Most rows that a table can be said to have."""

NO_GAP = 1e-9
"""Gaps below it are rounding errors of an optimum."""

NEAR = 1.005
"""Times the least error below which an error is as small."""

MEASURED = "on other data they were mostly 0.6 to 1.6 times, and all 0.3 to 3.3 times, as large"
"""Errors of 'neyman' over those that were expected of it: 112 requests for 2-way and 3-way marginals of 19 tables of
benchmarks/accuracy/promise.py, at epsilon 0.1 to 8, by means of 10 runs and more. Eight in ten are within the first range. What is expected
to be nearest is nearest in 68 of them, and within 10 % of the nearest in 102."""

UNTRIED = "its error depends on the data, and its marginals are too large to try it on made-up ones"
"""Of a reading without an expected error."""

ROWS = 10_000
"""Rows of the table where nobody said, and no release tells, how many it has."""


def compare(session: Session, dataset: Dataset, request: Request, arguments: Arguments) -> Rows:
    """A row for each mechanism and reading, the least expected error first, then those that cannot be used.

    Privacy: costs nothing; depends on declarations, the call and stored releases only.
    """
    count, known = rows(session, dataset, arguments, request.function)
    auto = {
        reading: chosen(request, {**arguments, "mechanism": "auto", "postprocess": reading})
        for reading in (UNBIASED, FITTED)
    }
    takes = {
        reading: one.mechanism if one.adaptive else planned_for(replace(one, mechanism="auto")).mechanism
        for reading, one in auto.items()
    }
    plans = _plans(request)
    least = min((plan.rmse for plan in plans.values()), default=None)
    tried, found = trial(request, count), []
    nearest = min((one.error for one in tried if one.error is not None), default=0.0)
    for one in tried:
        plan = plans.get(one.mechanism) if one.reading == UNBIASED else None
        notes = [one.refusal] if one.refusal else []
        if not one.refusal and one.error is None:
            notes.append(UNTRIED)
        if one.reading and takes.get(one.reading) == one.mechanism:
            notes.append(_why(one.reading, f"{count:,} rows {known}", one.error and one.error / nearest))
        found.append(
            {
                "mechanism": one.mechanism,
                "reading": one.reading or None,
                "expected_error": _rounded(one.error),
                "intervals": None if one.refusal else one.intervals,
                "noise": None
                if one.refusal
                else (plans[one.mechanism].noise if one.mechanism in plans else "gaussian"),
                "rmse": None if plan is None else plan.rmse,
                "max_stddev": None if plan is None else plan.max_stddev,
                "ratio_to_best": None if plan is None or least is None else plan.rmse / least,
                "gap": None if plan is None else plan.gap if plan.gap >= NO_GAP else 0.0,
                "note": "; ".join(notes) or None,
            }
        )
    if all(row["expected_error"] is None for row in found):
        raise DPError(f"no mechanism can answer this: {found[0]['note']}")
    return sorted(found, key=lambda row: (row["expected_error"] is None, row["expected_error"], not row["note"]))


def _rounded(error: float | None) -> float | None:
    """An error without the last digits, in which equal ones may differ: of these the one that 'auto' takes is first."""
    return None if error is None else float(f"{error:.6g}")


def _why(reading: str, assumed: str, over: float | None) -> str:
    """Why 'auto' takes a mechanism whose error in this reading is so many times the least of all, or not known."""
    if reading == UNBIASED:
        return "'auto' takes this: the least variance of all that have intervals"
    if over is None:
        return "'auto' takes this with postprocess := 'fitted'"
    because = (
        "nearest to the truth"
        if over <= NEAR
        else f"{over - 1:.0%} above the least here, but the one that measures what the data ask for"
    )
    taken = f"'auto' takes this with postprocess := 'fitted': {because}"
    return f"{taken}; errors assume {assumed}, and attributes that lean on one another: {MEASURED}"


def _plans(request: Request) -> dict[str, Plan]:
    """The plans of all mechanisms that have one."""
    found = {}
    for name in dict.fromkeys([*PLANNERS, *PURE_PLANNERS]):
        try:
            found[name] = planned_for(replace(request, mechanism=name))
        except DPError:
            continue
    return found


def rows(session: Session, dataset: Dataset, arguments: Arguments, function: str) -> tuple[int, str]:
    """(the number of rows to assume, where it is from): as said, of the newest release that measured it, or ``ROWS``.

    Raises:
        DPError: what was said is no number of rows.
    """
    said = arguments.get("rows")
    if said is not None and (isinstance(said, bool) or not isinstance(said, int) or not 1 <= said <= MOST):
        raise DPError(f"rows is {as_sql(said)}; it is a whole number of rows, e.g. rows := 50000.")
    if said is not None:
        return said, "as said"
    return measured(session, dataset, function) or (ROWS, "(nobody said how many: rows := ...)")


def measured(session: Session, dataset: Dataset, function: str) -> tuple[int, str] | None:
    """The noisy number of rows, and of which release it is: the newest of the table's marginals, where that has one.

    Privacy: post-processing.
    """
    stored = session.newest(dataset, function)
    noisy = [] if stored is None else session.answers(stored).measured()
    total = next((one for one in noisy if not one.clique), None)
    if stored is None or total is None:
        return None
    return max(1, round(float(total.answers.sum()))), f"of release {stored.id}"
