"""The plan of a request, and what it costs: public, because they depend on what was asked alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from duckdb_dp.accounting.event import AdaptiveEvent, Event
from duckdb_dp.linop import Array
from duckdb_dp.noise.kinds import NOISES
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.choose import PrivacyCost, choose
from duckdb_dp.plan.prefixes import prefixes
from duckdb_dp.plan.selection import INTERVALS, SELECTED, Selection
from duckdb_dp.request import SELECT, Request

if TYPE_CHECKING:
    from duckdb_dp.plan.direct import AnyPlan, DirectPlan


@lru_cache(maxsize=16)
def plan(request: Request) -> Plan:
    """The plan for a request. It is public, because it depends only on the domain, the queries and the budget.

    Of quantiles that are selected it is that of the prefixes beside them.

    Privacy: costs nothing.
    """
    if request.selected is not None:
        beside = PrivacyCost.of(request.calibrated * INTERVALS, request.accounting, rows=request.max_rows)
        return replace(choose(request.workload, beside, objective=request.objective), mechanism=SELECT)
    cost = price(request).part(_sums(request).rest) if request.direct else price(request)
    return choose(
        request.beside.workload,
        cost,
        mechanism=request.mechanism,
        objective=request.objective,
    )


def selections(request: Request) -> tuple[Selection, ...]:
    """What is selected beside the measurements of ``plan``.

    Privacy: costs nothing.
    """
    if request.direct:
        sums = direct_plan(request)
        return tuple(of_sums(sums, first) for first in sums.histograms if sums.selected(first))
    if request.selected is None:
        return ()
    (question,), planned, domain = request.questions, plan(request), request.domain

    def fitted(drawn: Mapping[str, Array]) -> Array:
        noisy = {m.clique: drawn[str(place)] for place, m in enumerate(planned.measurements)}
        return prefixes(planned, question, domain, planned.estimates(noisy)).fitted()

    return (
        Selection(
            name=SELECTED,
            clique=question.clique,
            shape=domain.shape(question.clique),
            axis=question.kinds.index("prefix"),
            quantiles=request.selected,
            cost=request.calibrated * (1 - INTERVALS),
            accounting=request.accounting,
            rows=request.max_rows,
            fitted=fitted,
        ),
    )


def of_sums(plan: DirectPlan, first: int) -> Selection:
    """What is selected from the histogram of a first sum.

    Privacy: costs nothing.
    """
    domain, rows, beta = plan.histograms[first].domain, 1 if plan.auto else plan.rows, plan.cost.beta
    cost = plan.cost.epsilon * rows if beta is None else plan.accounting.gaussian_cost(beta * rows**2)
    part, _ = plan.sums[first]
    return Selection(
        name=f"{SELECTED} {first}",
        clique=(plan.histograms[first].name, "cells", "group", "value"),
        shape=domain.shape(domain.attributes),
        axis=1,
        quantiles=plan.selected(first),
        cost=cost * plan.noise_share(first) * (1 - INTERVALS),
        accounting=plan.accounting,
        rows=1 if plan.auto else plan.rows_of(part),
        fitted=lambda drawn: plan.prefixes(first, drawn).fitted(),
    )


@lru_cache(maxsize=16)
def direct_plan(request: Request) -> DirectPlan:
    """The plan of sums, and of the counts beside them.

    Privacy: costs nothing.
    """
    return replace(_sums(request), planned=plan(request) if request.questions else None)


def _sums(request: Request) -> DirectPlan:
    from duckdb_dp.plan.direct import DirectPlan  # for import time: counts of cells have no sums

    return DirectPlan(
        parts=request.direct,
        cost=price(request),
        rows=request.max_rows,
        auto=request.auto_rows,
        clip=dict(request.options).get("clip"),
        accounting=request.accounting,
        beside=len(request.questions),
        select=request.mechanism == SELECT,
    )


def price(request: Request) -> PrivacyCost:
    """What the noise of a request is calibrated to."""
    return PrivacyCost.of(request.calibrated, request.accounting, rows=request.max_rows)


def event(plan: AnyPlan, request: Request) -> Event:
    """The event of a plan: it costs what the request costs."""
    selects = plan.mechanism == SELECT if isinstance(plan, Plan) else plan.adaptive
    if selects and not request.accounting.pure:
        return AdaptiveEvent(total=request.cost, accounting=request.accounting)
    return NOISES[plan.noise].event(request.cost, request.accounting)
