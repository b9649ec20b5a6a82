"""What dp_ calls would cost and how good their answers would be, before anything is spent."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from duckdb_dp.accounting.base import find_accounting
from duckdb_dp.errors import DPError
from duckdb_dp.gateway.broker import Asked, written
from duckdb_dp.gateway.deadline import LateError

_TEXT, _NUMBER = pa.string(), pa.float64()
PRICES = pa.schema(
    {
        "call": _TEXT, "answer": _TEXT, "cells": pa.int64(), "stddev": _NUMBER, "half_width": _NUMBER, "epsilon": _NUMBER,
        "delta": _NUMBER, "dataset": _TEXT, "share_of_grant": _NUMBER, "share_of_left": _NUMBER, "share_of_budget": _NUMBER,
        "fits": pa.bool_(), "waits": pa.bool_(), "note": _TEXT,
    }.items()
)  # fmt: skip

EXPLAINED = ("dp_marginals", "dp_queries", "dp_quantiles", "dp_sql")
FREE = ("dp_budget", "dp_domain", "dp_explain", "dp_ledger", "dp_release", "dp_releases")

_READ = ("release", "fresh", "bounds", "postprocess", "reconstruct", "columns")
"""Arguments that change neither the cost nor the noise."""


def priced(
    calls: Sequence[Asked],
    ask: Callable[[Asked], pa.Table],
    check: Callable[[Asked], object],
    budgets: Sequence[Mapping[str, Any]],
    grants: Mapping[tuple[str, str, str], Mapping[str, Any]],
) -> pa.Table:
    """A row for each answer of each call.

    Args:
        calls: with constants.
        ask: runs a free call.
        check: raises the error that a call has, if it has one; charges nothing.
        budgets: rows of dp_budget, of the account.
        grants: by the full name of the dataset.
    """
    rows: list[dict[str, Any]] = []
    for call in calls:
        if call.function in EXPLAINED:
            rows += _explained(call, _plans(call, ask, check), budgets, grants)
        else:
            free = call.function in FREE
            typed = dict(call.arguments).get("epsilon")
            note = "free" if free else "costs the budget that it names; its error is not known before"
            cost = 0.0 if free else (float(typed) if isinstance(typed, int | float) else None)
            rows.append({"call": call.sql, "epsilon": cost, "fits": True if free else None, "note": note})
    return pa.Table.from_pylist(rows, PRICES)


def _plans(
    call: Asked, ask: Callable[[Asked], pa.Table], check: Callable[[Asked], object]
) -> Sequence[Mapping[str, Any]]:
    """What dp_explain says of a call, or what the call itself would say."""
    try:
        return ask(_explain(call)).to_pylist()  # type: ignore[no-any-return]
    except DPError as error:
        if not isinstance(error, LateError):
            check(call)
        raise DPError(str(error).replace("dp_explain: ", f"{call.function}: ", 1)) from None


def _explain(call: Asked) -> Asked:
    """The call of dp_explain that plans a call."""
    kept = [(name, value) for name, value in call.arguments if name not in _READ]
    if call.function == "dp_sql":
        kept = [(None, None), *kept]  # SELECTs name their own table
    return Asked(function="dp_explain", arguments=tuple(kept))


def _explained(
    call: Asked,
    plans: Sequence[Mapping[str, Any]],
    budgets: Sequence[Mapping[str, Any]],
    grants: Mapping[tuple[str, str, str], Mapping[str, Any]],
) -> list[dict[str, Any]]:
    budget = _budget(call, budgets)
    rows = []
    for plan in plans:
        row = {
            "call": call.sql,
            "answer": plan.get("marginal") or "total",
            **{name: plan.get(name) for name in ("cells", "stddev", "half_width", "epsilon", "delta")},
        }
        if budget is not None:
            full = (budget["catalog"], budget["schema"], budget["dataset"])
            row |= {"dataset": budget["dataset"], **_shares(plan, budget, grants.get(full, {}))}
        rows.append(row)
    return rows


def _budget(call: Asked, budgets: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The row of dp_budget of the dataset that a call names: by its first argument, or in its SELECT."""
    if len(budgets) == 1:
        return budgets[0]
    words = {word.lower() for word in re.findall(r"\w+", written(call.arguments[0][1]) if call.arguments else "")}
    return next((row for row in budgets if row["dataset"].lower() in words), None)


def _shares(plan: Mapping[str, Any], budget: Mapping[str, Any], grant: Mapping[str, Any]) -> dict[str, Any]:
    """What the cost of a plan is of the grant, of what is left of it, and whether it fits."""
    accounting = find_accounting(budget["accounting"])
    typed = "epsilon" if accounting.pure else {"mu^2": "mu", "rho": "rho"}.get(accounting.unit, "mu")
    value = plan.get(typed)
    if value is None:
        return {}
    cost = float(value) ** 2 if typed == "mu" else float(value)
    left, most = budget["remaining"], grant.get("max_cost")
    return {
        "share_of_grant": cost / budget["total"] if budget["total"] else None,
        "share_of_left": cost / left if left else None,
        "share_of_budget": cost / grant["budget"] if grant.get("budget") else None,
        "fits": cost <= left * (1 + 1e-9),
        "waits": most is not None and cost > most * (1 + 1e-9),
    }
