"""dp_explain: how accurate a request would be and what it would cost, before anything is spent."""

import math
from typing import Any

import numpy as np

from duckdb_dp.accounting.convert import shown
from duckdb_dp.accounting.event import AdaptiveEvent, Event
from duckdb_dp.accounting.history import compared as compared_accountings
from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.answers import direct_plan, plan, price
from duckdb_dp.budget import Budget
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.noise.kinds import NOISES
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.choose import PLANNERS, PURE_PLANNERS, choose
from duckdb_dp.plan.direct import DirectPlan
from duckdb_dp.private import event
from duckdb_dp.release import check
from duckdb_dp.request import Request
from duckdb_dp.sql import dp_discover, dp_marginals
from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.questions import Kind, kinds, request_of
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {
    "marginal": "VARCHAR",
    "cells": "BIGINT",
    "stddev": "DOUBLE",
    "half_width": "DOUBLE",
    "budget_share": "DOUBLE",
    "mechanism": "VARCHAR",
    "rho": "DOUBLE",
    "mu": "DOUBLE",
    "epsilon": "DOUBLE",
    "delta": "DOUBLE",
    "ratio_to_gaussian": "DOUBLE",
    "gap": "DOUBLE",
    "history": "VARCHAR",
}

CANDIDATE_COLUMNS = {
    "mechanism": "VARCHAR",
    "noise": "VARCHAR",
    "rmse": "DOUBLE",
    "max_stddev": "DOUBLE",
    "ratio_to_best": "DOUBLE",
    "gap": "DOUBLE",
    "note": "VARCHAR",
}
"""With mechanism := 'all': a row per mechanism."""


def columns(arguments: Arguments) -> dict[str, str]:
    """Names and types of the rows."""
    if dp_discover.explained(arguments) is not None:
        return dp_discover.EXPLAINED
    return CANDIDATE_COLUMNS if _compares(arguments) else COLUMNS


def rows(session: Session, arguments: Arguments, place: Place, _seen: str) -> Rows:
    """How accurate a request would be and what it would cost, without reading data.

    Privacy: costs nothing.
    """
    if (discovery := dp_discover.explained(arguments)) is not None:
        return dp_discover.explain(session, discovery, place)
    kind, compared = _explained(arguments), _compares(arguments)
    arguments = {**arguments, kind.argument: arguments["attributes"]}
    if compared:
        arguments = {**arguments, "mechanism": "auto"}
    target, delta = arguments.get("target_stddev"), arguments.get("delta")
    if target is not None:
        # A delta beside it only says where to show epsilon.
        arguments = {**arguments, "delta": None, **_needed(session, kind, arguments, place, target)}
    dataset, request = request_of(session, kind, arguments, place)
    if compared:
        return _only_direct(request) if request.direct else _compare(request)
    past = compared_accountings(session.ledger.charges(dataset), dataset.accounting, dataset.cost_delta, _selecting)
    if request.adaptive:
        check(request)
        spent: Event = AdaptiveEvent(total=request.cost, accounting=request.accounting)
        return [{**row, "history": past} for row in _rows(kind, request, dataset, delta, spent)]
    if request.direct:
        sums = direct_plan(request)
        known = _known(request, dataset, delta, event(sums.noise, request))
        return [{**row, "history": past} for row in _direct(sums, known)]
    planned = plan(request)
    gap, ratio = _gap(planned), _ratio_to_baseline(planned, request)
    return [
        {
            **row,
            "stddev": stddev,
            "half_width": planned.quantile * stddev,
            "budget_share": planned.share(index),
            "mechanism": planned.mechanism,
            "ratio_to_gaussian": ratio,
            "gap": gap,
            "history": past,
        }
        for index, row in enumerate(_rows(kind, request, dataset, delta, event(planned.noise, request)))
        for stddev in [math.sqrt(float(np.mean(planned.variance(index))))]
    ]


def _rows(kind: Kind, request: Request, dataset: Dataset, delta: float | None, spent: Event) -> Rows:
    """The columns that are known for each query set with any mechanism; the error of an adaptive one depends on the data."""
    known, domain = _known(request, dataset, delta, spent), request.domain
    return [
        {"marginal": kind.describe(question), "cells": math.prod(question.part(domain).shape), **known}
        for question in request.questions
    ]


def _direct(planned: DirectPlan, known: dict[str, Any]) -> Rows:
    """A row for each sum that is taken row by row, and for each value whose quantiles are asked.

    The error of a quantile is that of the number of rows below it; of a sum whose bounds are chosen it is not known before.
    """
    found = []
    for index, (part, one) in enumerate(planned.sums):
        stddev = None if one.chosen else planned.stddev(index)
        row = {
            "marginal": f"{one} by {', '.join(part.clique)}" if part.clique else str(one),
            "cells": part.size,
            "stddev": stddev,
            "half_width": None if stddev is None else planned.quantile * stddev,
            "budget_share": planned.share(index) or None,
            "mechanism": planned.mechanism,
        }
        found.append({**known, **row})
    return found


def _only_direct(request: Request) -> Rows:
    """The one mechanism that takes sums row by row."""
    sums = direct_plan(request)
    stddevs = [sums.stddev(index) for index, (_, one) in enumerate(sums.sums) if not one.chosen]
    rmse = math.sqrt(math.fsum(stddev**2 for stddev in stddevs) / len(stddevs)) if stddevs else None
    return [
        {
            "mechanism": sums.mechanism,
            "noise": sums.noise,
            "rmse": rmse,
            "max_stddev": max(stddevs, default=None),
            "ratio_to_best": 1.0,
            "gap": None,
            "note": "of the sums with known bounds, each in its own unit; sums over rows have no other mechanism",
        }
    ]


def _known(request: Request, dataset: Dataset, delta: float | None, spent: Event) -> dict[str, Any]:
    """The columns that are the same for all rows, and NULL for those that a mechanism's own rows have."""
    delta = dataset.cost_delta if delta is None else Budget(epsilon=1, delta=delta).delta
    return {
        "stddev": None,
        "half_width": None,
        "budget_share": None,
        "mechanism": request.mechanism,
        "rho": spent.rho,
        "mu": spent.mu,
        "epsilon": None if delta is None else shown(request.accounting.epsilon(request.cost, delta)),
        "delta": delta,
        "ratio_to_gaussian": None,
        "gap": None,
    }


def _selecting(function: str, mechanism: str) -> float:
    """The share of its budget that a mechanism plans for selections, where its rounds come as it plans them."""
    from duckdb_dp.adaptive import SELECTING
    from duckdb_dp.synthesis.functions import SELECTING as SYNTHETIC

    return {**SELECTING, **SYNTHETIC}.get((function, mechanism), 0.0)


def _compare(request: Request) -> Rows:
    """A row for each mechanism, the best first: its error, or why it cannot be used."""
    found: list[tuple[str, Plan | str]] = []
    for name in dict.fromkeys([*PLANNERS, *PURE_PLANNERS]):
        try:
            planned = choose(request.workload, price(request), mechanism=name, objective=request.objective)
            found.append((name, planned))
        except DPError as error:
            found.append((name, str(error)))
    plans = [planned for _, planned in found if isinstance(planned, Plan)]
    if not plans:
        raise DPError(f"no mechanism can answer this: {found[0][1]}")
    best = min(planned.rmse for planned in plans)
    rows = [_candidate(name, planned, best) for name, planned in found]
    return sorted(rows, key=lambda row: (row["rmse"] is None, row["rmse"]))


def _candidate(name: str, planned: Plan | str, best: float) -> dict[str, Any]:
    if isinstance(planned, str):
        return {**dict.fromkeys(CANDIDATE_COLUMNS), "mechanism": name, "note": planned}
    return {
        "mechanism": name,
        "noise": planned.noise,
        "rmse": planned.rmse,
        "max_stddev": planned.max_stddev,
        "ratio_to_best": planned.rmse / best,
        "gap": _gap(planned),
        "note": None,
    }


def _gap(planned: Plan) -> float:
    """How far from optimal the plan can be; rounding may leave an optimal one 1e-16 below its bound."""
    return max(0.0, planned.gap)


def _ratio_to_baseline(planned: Plan, request: Request) -> float | None:
    """Error against independent noise on each marginal at the same cost; None where queries are no marginals."""
    if not planned.workload.is_marginals:
        return None
    baseline = choose(request.workload, price(request), mechanism=planned.noise, objective=request.objective)
    if request.objective == "total":
        return planned.rmse / baseline.rmse
    return planned.max_stddev / baseline.max_stddev


def _compares(arguments: Arguments) -> bool:
    mechanism = arguments.get("mechanism")
    return isinstance(mechanism, str) and mechanism.lower() == "all"


def _explained(arguments: Arguments) -> Kind:
    """The function whose call this would be: of quantiles, of SQL text, of entries, or else of attribute sets."""
    return next((kind for kind in kinds().values() if kind.recognises(arguments)), dp_marginals.KIND)


def _needed(session: Session, kind: Kind, arguments: Arguments, place: Place, target: object) -> dict[str, float]:
    """The least budget at which every query's stddev is at most the target: stddev falls as 1 / mu, or 1 / epsilon."""
    if any(arguments.get(word) is not None for word in ("epsilon", "rho", "mu")):
        raise DPError("give a budget or target_stddev, not both: target_stddev asks which budget is needed.")
    if isinstance(target, bool) or not isinstance(target, int | float) or not 0 < target < math.inf:
        raise DPError(f"target_stddev is {as_sql(target)}; it is a positive number of rows, e.g. target_stddev := 50.")
    accounting = kind.dataset(session, arguments, place).accounting
    _, request = request_of(session, kind, {**arguments, accounting.argument: 1.0, "delta": None}, place)
    if request.adaptive:
        raise DPError(f"target_stddev: the error of mechanism '{request.mechanism}' depends on the data; use 'auto'.")
    planned = direct_plan(request) if request.direct else plan(request)
    asked = range(len(request.questions)) if not isinstance(planned, DirectPlan) else range(len(planned.sums))
    if isinstance(planned, DirectPlan) and any(one.chosen for _, one in planned.sums):
        raise DPError(
            "target_stddev: the error of a sum whose bounds are chosen depends on the data; declare the bounds, or write them: "
            "sum(x) FILTER (WHERE x BETWEEN 0 AND 100)."
        )
    ratio = max(float(np.max(planned.stddev(index))) for index in asked) / target
    if NOISES[planned.noise].pure and not accounting.pure:
        epsilon = ratio * price(request).epsilon * request.max_rows
        return accounting.typed(accounting.laplace_cost(epsilon))
    return {accounting.argument: ratio}


FUNCTION = register(Function(name="dp_explain", rows=rows, columns=columns, public=True))
