"""Questions: what dp_marginals, dp_explain and dp_release mean, as SQL or as rows."""

import math
from typing import TYPE_CHECKING, Any

from duckdb_dp.account.convert import cost_epsilon
from duckdb_dp.account.ledger import Dataset, Release
from duckdb_dp.budget import Budget
from duckdb_dp.data.encode import literal
from duckdb_dp.errors import DPError
from duckdb_dp.plan.choose import choose
from duckdb_dp.release import Answers, plan
from duckdb_dp.request import Request
from duckdb_dp.sql import render
from duckdb_dp.sql.parse import Arguments, find_dataset, flag, parse_budget, parse_request

if TYPE_CHECKING:
    from duckdb_dp.sql.functions import Session

Rows = list[dict[str, Any]]


def marginals(session: "Session", arguments: Arguments, place: tuple[str, str]) -> str:
    """SQL for FROM dp_marginals: reads the stored release where there is one, else counts, charges and measures."""
    dataset, request = _request(session, arguments, place)
    planned = plan(request)
    name, fresh, bounds = arguments.get("release"), flag(arguments, "fresh"), flag(arguments, "bounds")
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise DPError(f"release is {name!r}; a release's name is a text, e.g. release := 'census'.")
    session.check_columns(dataset, request.attributes)
    stored = None if fresh else session.stored(request, name)
    if stored is not None:
        return _read(session, stored, bounds)
    handle = render.run(request, session.ledger.unit_key(), name=name, fresh=fresh)
    return render.marginals(request, planned, handle, bounds=bounds, private=session.bits.private)


def release(session: "Session", arguments: Arguments, place: tuple[str, str]) -> str:
    """SQL for FROM dp_release: the rows of a stored release, by its name or number, at no cost."""
    name = arguments["name"]
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise DPError(f"the release is {name!r}; give its name or its number in dp_releases().")
    return _read(session, session.ledger.release(name), flag(arguments, "bounds"))


def explain(session: "Session", arguments: Arguments, place: tuple[str, str]) -> Rows:
    """Rows of FROM dp_explain: error and cost of a plan, before anything is spent. Sees no data."""
    target, delta = arguments.get("target_stddev"), arguments.get("delta")
    if target is not None:
        # A delta beside it only says where to show epsilon.
        arguments = {**arguments, "mu": _mu_for(session, arguments, place, target), "delta": None}
    dataset, request = _request(session, arguments, place)
    planned = plan(request)
    baseline = choose(request.workload, beta=request.beta, mechanism="gaussian", objective=request.objective)
    if request.objective == "total":
        ratio = planned.rmse / baseline.rmse
    else:
        ratio = planned.max_stddev / baseline.max_stddev
    delta = dataset.delta if delta is None else Budget(epsilon=1, delta=delta).delta
    epsilon = None if delta is None else cost_epsilon(request.cost, delta, request.accounting)
    return [
        {
            "marginal": ",".join(clique),
            "cells": request.domain.cells(clique),
            "stddev": planned.stddev(clique),
            "half_width": render.Z95 * planned.stddev(clique),
            "budget_share": planned.share(clique),
            "mechanism": planned.mechanism,
            "rho": request.mu**2 / 2,
            "mu": request.mu,
            "epsilon": epsilon,
            "delta": delta,
            "ratio_to_gaussian": ratio,
        }
        for clique in request.cliques
    ]


EXPLAIN_COLUMNS = {
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
}


def _request(session: "Session", arguments: Arguments, place: tuple[str, str]) -> tuple[Dataset, Request]:
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    budget = parse_budget(arguments, dataset)
    return dataset, parse_request("dp_marginals", arguments, dataset, session.declared(dataset), budget)


def _mu_for(session: "Session", arguments: Arguments, place: tuple[str, str], target: object) -> float:
    """The least mu at which every marginal's stddev is at most the target: stddev falls as 1 / mu."""
    if any(arguments.get(word) is not None for word in ("epsilon", "rho", "mu")):
        raise DPError("give a budget or target_stddev, not both: target_stddev asks which budget is needed.")
    if isinstance(target, bool) or not isinstance(target, int | float) or not 0 < target < math.inf:
        raise DPError(f"target_stddev is {target!r}; it is a positive number of rows, e.g. target_stddev := 50.")
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    request = parse_request("dp_marginals", arguments, dataset, session.declared(dataset), Budget(mu=1.0))
    planned = plan(request)
    return max(map(planned.stddev, request.cliques)) / target


def _read(session: "Session", stored: Release, bounds: bool) -> str:
    request = Request.from_json(stored.request)
    answers: Answers = session.answers(stored)
    handle = f"handle AS (SELECT {literal(str(stored.id))} AS handle)"
    return render.marginals(request, answers.plan, handle, bounds=bounds, private=stored.private)
