"""What dp_ calls would cost and how good their answers would be, before anything is spent."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.records import TOLERANCE
from duckdb_dp.gateway.asked import Asked
from duckdb_dp.gateway.dues import Due

_TEXT, _NUMBER = pa.string(), pa.float64()
PRICES = pa.schema(
    {
        "call": _TEXT, "answer": _TEXT, "cells": pa.int64(), "stddev": _NUMBER, "half_width": _NUMBER, "error_in": _TEXT,
        "part_of": _TEXT, "epsilon": _NUMBER, "delta": _NUMBER, "dataset": _TEXT, "share_of_grant": _NUMBER,
        "share_of_left": _NUMBER, "share_of_budget": _NUMBER, "fits": pa.bool_(), "waits": pa.bool_(), "note": _TEXT,
    }.items()
)  # fmt: skip

EXPLAINED = ("dp_marginals", "dp_queries", "dp_quantiles", "dp_sql")

PAID = "paid already: asking it again costs nothing"

FREE = "free"

REFUSED = "a steward refused this: ask for less"

PART = "a part of {name}: an average of n rows errs by about the half width of its sum over n"

IN = "half_width is in {unit}, and not in the unit of the answer: how far that is in values depends on the data"

LATER = "its error is not known before"

ALONE = "ask it by itself first: a statement is refused in which a second call has no answer yet"

Plan = Mapping[str, Any]


def priced(
    calls: Sequence[Asked],
    explain: Callable[[Asked], Sequence[Plan]],
    due: Callable[[Asked], Due],
    budgets: Sequence[Mapping[str, Any]],
    grants: Mapping[tuple[str, str, str], Mapping[str, Any]],
) -> pa.Table:
    """A row for each answer of each call, in order: a later call has what the earlier ones leave.

    Args:
        calls: with constants.
        explain: the rows of dp_explain about a call.
        due: what a call would charge; refuses what asking it would refuse.
        budgets: rows of dp_budget, of the account.
        grants: by the full name of the dataset.
    """
    rows: list[dict[str, Any]] = []
    owed: list[Due] = []
    for call in calls:
        cost, known = due(call), call.function in EXPLAINED
        plans = explain(call) if known else [{}]
        if cost.dataset is None:
            shared: dict[str, Any] = {"epsilon": 0.0, "fits": True, "waits": False}
            shared["note"] = PAID if call.charges else FREE
        else:
            shared = _shares(cost, cost.dataset, [*owed, cost], budgets, grants)
            shared["note"] = REFUSED if cost.decided == "refused" else ALONE if owed else None if known else LATER
            owed.append(cost)
        rows += [_row(call, plan, shared) for plan in plans]
    return pa.Table.from_pylist(rows, PRICES)


def _row(call: Asked, plan: Plan, shared: Mapping[str, Any]) -> dict[str, Any]:
    names = ("cells", "stddev", "half_width", "error_in", "part_of", "epsilon", "delta")
    planned = {name: plan.get(name) for name in names}
    if planned["half_width"] is not None and shared["note"] is None:
        shared = {**shared, "note": unit(plan)}
    answer = (plan.get("marginal") or "total") if plan else None
    # What the call owes is with what finds its groups; where it is no more than what is typed, as that was typed.
    more = shared["epsilon"] > (planned["epsilon"] or 0.0) * (1 + 1e-6)
    paid = {name: value for name, value in shared.items() if name != "epsilon" or more or not value}
    return {"call": call.sql, "answer": answer, **planned, **paid}


def unit(plan: Plan) -> str | None:
    """What the error of a row is of, where that is not the answer."""
    if plan.get("error_in") is not None:
        return IN.format(unit=plan["error_in"])
    return None if plan.get("part_of") is None else PART.format(name=plan["part_of"])


def _shares(
    due: Due,
    dataset: Dataset,
    owed: Sequence[Due],
    budgets: Sequence[Mapping[str, Any]],
    grants: Mapping[tuple[str, str, str], Mapping[str, Any]],
) -> dict[str, Any]:
    """What a cost is of the grant, of what is left of it, and whether it fits with what the same statement owes before."""
    whole = dataset.name if dataset.member is None else dataset.member.dataset
    number = {full: grant["number"] for full, grant in grants.items()}
    row = next(row for row in budgets if number.get((row["catalog"], row["schema"], row["dataset"])) == dataset.id)
    grant = grants.get((row["catalog"], row["schema"], row["dataset"]), {})
    left, most = row["remaining"], grant.get("max_cost")
    together = math.fsum(each.cost for each in owed if each.dataset is not None and each.dataset.id == dataset.id)
    fits = together <= left * (1 + TOLERANCE)
    return {
        "dataset": whole,
        "epsilon": dataset.epsilon_of(due.cost),
        "delta": dataset.cost_delta,
        "share_of_grant": due.cost / row["total"] if row["total"] else None,
        "share_of_left": due.cost / left if left else None,
        "share_of_budget": due.cost / dataset.budget,
        "fits": fits and due.decided != "refused",
        "waits": fits and due.decided is None and most is not None and due.cost > most * (1 + TOLERANCE),
    }


def nothing(note: str) -> pa.Table:
    """The price of a statement that costs nothing."""
    return pa.Table.from_pylist([{"epsilon": 0.0, "fits": True, "waits": False, "note": note}], PRICES)
