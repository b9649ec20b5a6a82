"""Questions: what dp_marginals, dp_explain and dp_release mean, as SQL or as rows."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from duckdb_dp.account.convert import cost_epsilon
from duckdb_dp.account.ledger import Dataset, Release
from duckdb_dp.budget import Budget
from duckdb_dp.data.encode import literal
from duckdb_dp.errors import DPError
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.choose import choose
from duckdb_dp.release import Answers, plan
from duckdb_dp.request import Request
from duckdb_dp.sql import layout, render
from duckdb_dp.sql.parse import Arguments, find_dataset, flag, parse_budget, parse_request

if TYPE_CHECKING:
    from duckdb_dp.sql.functions import Session

Rows = list[dict[str, Any]]


def ask(session: "Session", function: str, arguments: Arguments, place: tuple[str, str]) -> str:
    """SQL for dp_marginals, dp_queries and dp_sql: reads the stored release if there is one, else counts and charges."""
    dataset, request = _request(session, function, arguments, place)
    planned = plan(request)
    name, fresh, bounds = arguments.get("release"), flag(arguments, "fresh"), flag(arguments, "bounds")
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise DPError(f"release is {name!r}; a release's name is a text, e.g. release := 'census'.")
    session.check_columns(dataset, request.attributes)
    stored = None if fresh else session.stored(request, name)
    if stored is not None:
        return _read(session, stored, bounds)
    handle = render.run(request, session.ledger.unit_key(), name=name, fresh=fresh)
    return _rows(request, planned, handle, bounds=bounds, private=session.bits.private)


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
    function = _explained(arguments)
    dataset, request = _request(session, function, arguments, place)
    planned = plan(request)
    delta = dataset.delta if delta is None else Budget(epsilon=1, delta=delta).delta
    epsilon = None if delta is None else cost_epsilon(request.cost, delta, request.accounting)
    ratio, gap = _ratio_to_gaussian(planned, request), planned.gap
    return [
        {
            "marginal": ",".join(question.clique) if function == "dp_marginals" else layout.describe(question),
            "cells": math.prod(part.shape),
            "stddev": stddev,
            "half_width": render.Z95 * stddev,
            "budget_share": planned.share(index),
            "mechanism": planned.mechanism,
            "rho": request.mu**2 / 2,
            "mu": request.mu,
            "epsilon": epsilon,
            "delta": delta,
            "ratio_to_gaussian": ratio,
            "gap": gap,
        }
        for index, (question, part) in enumerate(zip(request.questions, planned.workload.parts, strict=True))
        for stddev in [math.sqrt(float(np.mean(planned.variance(index))))]
    ]


def _ratio_to_gaussian(planned: Plan, request: Request) -> float | None:
    """Error against independent noise on each marginal at the same cost; None where queries are no marginals."""
    if not planned.workload.is_marginals:
        return None
    baseline = choose(request.workload, beta=request.beta, mechanism="gaussian", objective=request.objective)
    if request.objective == "total":
        return planned.rmse / baseline.rmse
    return planned.max_stddev / baseline.max_stddev


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
    "gap": "DOUBLE",
}


def _explained(arguments: Arguments) -> str:
    """The function whose call dp_explain's second argument would be: SQL text, entries, or attribute sets."""
    asked = arguments["attributes"]
    texts = asked if isinstance(asked, list) else [asked]
    if texts and all(isinstance(text, str) and text.lstrip().lower().startswith("select") for text in texts):
        return "dp_sql"
    if isinstance(asked, dict) or (texts and all(isinstance(entry, dict) for entry in texts)):
        return "dp_queries"
    return "dp_marginals"


def _request(
    session: "Session", function: str, arguments: Arguments, place: tuple[str, str]
) -> tuple[Dataset, Request]:
    words = {"dp_queries": "queries", "dp_sql": "sql", "dp_marginals": "attributes"}
    if words[function] not in arguments:
        arguments = {**arguments, words[function]: arguments["attributes"]}
    dataset = _dataset(session, function, arguments, place)
    budget = parse_budget(arguments, dataset)
    return dataset, parse_request(function, arguments, dataset, session.declared(dataset), budget)


def _dataset(session: "Session", function: str, arguments: Arguments, place: tuple[str, str]) -> Dataset:
    """The dataset named, or the one that all SELECTs of a dp_sql read."""
    if function != "dp_sql":
        return find_dataset(session.ledger, arguments["dataset"], *place)
    from duckdb_dp.sql.select import parse_selects, table_name  # brings sqlglot, which a marginal need not wait for

    found = [find_dataset(session.ledger, table_name(select), *place) for select in parse_selects(arguments["sql"])]
    if arguments.get("dataset") is not None:
        found.append(find_dataset(session.ledger, arguments["dataset"], *place))
    if len({dataset.id for dataset in found}) > 1:
        names = ", ".join(sorted({dataset.name for dataset in found}))
        raise DPError(f"the SELECTs read several datasets ({names}); ask each in a call of its own.")
    return found[0]


def _mu_for(session: "Session", arguments: Arguments, place: tuple[str, str], target: object) -> float:
    """The least mu at which every marginal's stddev is at most the target: stddev falls as 1 / mu."""
    if any(arguments.get(word) is not None for word in ("epsilon", "rho", "mu")):
        raise DPError("give a budget or target_stddev, not both: target_stddev asks which budget is needed.")
    if isinstance(target, bool) or not isinstance(target, int | float) or not 0 < target < math.inf:
        raise DPError(f"target_stddev is {target!r}; it is a positive number of rows, e.g. target_stddev := 50.")
    _, request = _request(session, _explained(arguments), {**arguments, "mu": 1.0, "delta": None}, place)
    planned = plan(request)
    return max(float(np.max(planned.stddev(index))) for index in range(len(request.questions))) / target


def _read(session: "Session", stored: Release, bounds: bool) -> str:
    request = Request.from_json(stored.request)
    answers: Answers = session.answers(stored)
    handle = f"handle AS (SELECT {literal(str(stored.id))} AS handle)"
    return _rows(request, answers.plan, handle, bounds=bounds, private=stored.private)


def _rows(request: Request, planned: Plan, handle: str, *, bounds: bool, private: bool) -> str:
    if request.function == "dp_queries":
        return layout.queries(request, planned, handle, private=private)
    if request.function == "dp_sql":
        return layout.select(request, planned, handle, private=private)
    return render.marginals(request, planned, handle, bounds=bounds, private=private)
