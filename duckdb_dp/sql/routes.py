"""dp_sql, which SELECTs of a call are planned over declared cells, and which are summed over the rows: the more accurate route.

Both are answered in one release. Each query set of a planned SELECT and each sum of the others has the same part of the cost, and
the plan takes the parts of its query sets together.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from duckdb_dp.answers import direct_plan
from duckdb_dp.answers import plan as planned_for
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.domain import Attribute, UnknownAttribute
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.plan.base import Plan
from duckdb_dp.request import Request
from duckdb_dp.sum_names import MARK

if TYPE_CHECKING:
    from sqlglot import exp

ROUTE, ROWS, CELLS = "_route", "rows", "cells"
"""An argument beside those of a call: all SELECTs by the rows, or all that can be planned by cells, whatever the errors are."""

OLDER = "_older"
"""Another one: plans leave out rows with values that nobody has declared, as those of earlier versions did."""

ALL_ROWS = "_all_rows"
"""In a call: whether as many rows of a unit count of a view as it may have, however few are kept by conditions on their number."""

AS_WRITTEN = "_as_written"
"""Another one: relations of joined tables keep the order in which they were written, and counts that are the same as nothing is NULL
are measured apart, as in earlier versions."""

BETTER = 1 - 1e-6
"""Rounding decides nothing: of equal routes that over the rows is taken, which counts rows with values that nobody has declared too."""


def planned(
    selects: "Sequence[exp.Select]", declared: Mapping[str, Attribute], schema: str, *, older: bool = False
) -> set[int]:
    """The numbers of the SELECTs that can be planned: counts whose conditions and groups the cells of declared columns decide.

    Sums, averages and quantiles are of the values themselves, of which cells are not enough. Rows with values that nobody has
    declared have cells too, but in tables of other engines, a ``schema`` of their own, and where ``older`` says so.
    """
    from duckdb_dp.sql.clamped_sums import sums_numbers  # for import time: these bring sqlglot
    from duckdb_dp.sql.select import questions
    from duckdb_dp.sql.undeclared_rows import with_all

    declared = declared if schema == SCHEMA or older else with_all(declared)
    found = set()
    for number, select in enumerate(selects, 1):
        try:
            if not sums_numbers(select):
                asked = questions(select, number, declared)
                found |= {number} if not any(name.startswith(MARK) for one in asked for name in one.clique) else set()
        except DPError:
            continue
    return found


def better(request: Request, by_rows: Callable[[], Request]) -> Request:
    """The request with the route of its counts whose predicted error is less.

    Args:
        request: its counts are planned.
        by_rows: makes the same request with all of them summed over the rows.

    Privacy: costs nothing; both errors are known before any data are read.
    """
    plan = _plan(request)
    if plan is None or plan.workload.is_marginals:  # of which no mechanism is better than their plan
        return request
    try:
        other = by_rows()
    except DPError:
        return request
    if not other.direct:  # not where the rows are in another engine
        return request
    rows = sum(part.size for part in other.direct)
    more = rows > sum(
        math.prod(request.shape(i)) for i in range(len(request.questions))
    )  # groups that the cells say are empty
    least = summed_error(request, other) * (1 / BETTER if more else BETTER)
    return other if least <= error(request) else request


def reasons(
    request: Request,
    selects: "Sequence[exp.Select]",
    declared: Mapping[str, Attribute],
    asked: Callable[[str], Request],
) -> dict[int, str]:
    """Of each SELECT, by its number, which route it takes and why, with the predicted errors of both where both can answer.

    Args:
        request: with the routes that are taken.
        selects: what was asked.
        declared: the declarations.
        asked: the same request by one route.

    Privacy: costs nothing.
    """
    both = ""
    try:
        by_cells, by_rows = asked(CELLS), asked(ROWS)
        if by_cells.questions and by_rows.direct:
            errors = error(by_cells), summed_error(by_cells, by_rows)
            kind = "standard deviation" if request.objective == "total" else "largest standard deviation"
            both = f"; {kind} {errors[0]:.4g} planned, {errors[1]:.4g} direct"
    except DPError:
        pass
    planned_ones = {question.select.number for question in request.questions if question.select is not None}
    possible = planned(selects, declared, request.schema)
    left = "" if not planned_ones else _left_out(request, [(n, selects[n - 1]) for n in sorted(planned_ones)], declared)
    found = {}
    for number, select in enumerate(selects, 1):
        if number in planned_ones:
            found[number] = (
                f"planned: declared cells decide all conditions and groups, and counts are planned together{left}{both}"
            )
        elif number in possible and not request.auto_rows and both:
            found[number] = f"direct, not planned: a plan has no less noise{both}"
        else:
            found[number] = f"direct, not planned: {_why(select, number, declared, request)}"
    return found


def _left_out(request: Request, selects: "Sequence[tuple[int, exp.Select]]", declared: Mapping[str, Attribute]) -> str:
    """Which rows planned counts leave out: of tables of other engines, and where a mechanism was named, those outside the cells."""
    from duckdb_dp.sql.undeclared_rows import decided  # for import time: it brings sqlglot

    read = {name for question in request.questions for name in question.clique}
    used = [one.name for one in request.attributes if one.name in read and not one.other]
    if not used or (request.schema != SCHEMA and decided(selects, declared)):
        return ""
    return f", without rows that have an undeclared value in {' or '.join(used)}"


def _why(select: "exp.Select", number: int, declared: Mapping[str, Attribute], request: Request) -> str:
    """Why a SELECT cannot be planned."""
    from sqlglot import exp  # for import time

    from duckdb_dp.sql.above.kinds import group_keys
    from duckdb_dp.sql.clamped_sums import sums_numbers
    from duckdb_dp.sql.owned.asked import several
    from duckdb_dp.sql.select import questions
    from duckdb_dp.sql.undeclared_rows import with_all

    if several(select):
        return "cells are of one table, and this reads several, or a subquery"
    if sums_numbers(select):
        return "sums, averages and quantiles are taken of the values themselves, and cells have only their middles"
    if any(not isinstance(key, exp.Column) for key in group_keys(select)):
        return "a group is an expression, which is worked out of each row"
    counted = select.copy()
    for word in ("having", "order", "limit", "offset"):  # which work on the answers
        counted.set(word, None)
    try:
        questions(counted, number, declared if request.schema == SCHEMA else with_all(declared))
    except UnknownAttribute as unknown:
        return f"{as_sql(unknown.name)} has no declared domain"
    except DPError as refusal:
        return str(refusal)
    if any(part.number == number and part.source is not None for part in request.direct):
        return "fewer rows of a unit are kept by their number than it may have, and are counted by themselves"
    return "how much of each unit counts is chosen by a part of the budget" if request.auto_rows else "as asked"


def error(request: Request) -> float:
    """The predicted error of the counts that are planned: the root of the mean variance, or the largest stddev, as is the objective."""
    plan = _plan(request)
    assert plan is not None
    rmse, largest = shown_errors(plan, request)
    return rmse if request.objective == "total" else largest


def variance(plan: Plan, request: Request, index: int) -> float:
    """The mean variance of the answers to a question that are shown."""
    if plan.workload.parts[index].shape == request.shape(index):
        return plan.mean_variance(index)
    return float(np.mean(_variances(plan, request, index)))


def shown_errors(plan: Plan, request: Request) -> tuple[float, float]:
    """(RMSE, largest standard deviation) of the answers that are shown; as the plan has them where all are."""
    if not request.rest:
        return plan.rmse, plan.max_stddev
    sizes = [math.prod(request.shape(i)) for i in range(len(request.questions))]
    total = math.fsum(variance(plan, request, i) * size for i, size in enumerate(sizes))
    largest = max(float(np.max(_variances(plan, request, i))) for i in range(len(sizes)))
    return math.sqrt(total / sum(sizes)), math.sqrt(largest)


def _variances(plan: Plan, request: Request, index: int) -> "np.ndarray | float":
    every, shown = plan.workload.parts[index].shape, request.shape(index)
    found = plan.variance(index)
    return found if every == shown else np.broadcast_to(found, every)[tuple(map(slice, shown))]


def summed_error(request: Request, by_rows: Request) -> float:
    """The same of these counts where they are summed over the rows."""
    numbers = {question.select.number for question in request.questions if question.select is not None}
    plan = direct_plan(by_rows)
    known = [(i, part.size) for i, (part, _) in enumerate(plan.sums) if part.number in numbers]
    stddevs = [plan.stddev(i) for i, _ in known]
    return _error([one**2 for one in stddevs], [size for _, size in known], request, max(stddevs))


def _error(variances: Sequence[float], sizes: Sequence[int], request: Request, largest: float) -> float:
    if request.objective != "total":
        return largest
    return math.sqrt(math.fsum(v * n for v, n in zip(variances, sizes, strict=True)) / sum(sizes))


def _plan(request: Request) -> Plan | None:
    if not request.questions:
        return None
    return direct_plan(request).planned if request.direct else planned_for(request)
