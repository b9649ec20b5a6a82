"""OPT_HDMM: the operators that fit are tried, and the plan of least error is used.

Source: [HDMM18] section 9.
"""

import math
from dataclasses import replace

import numpy as np

from duckdb_dp.domain.queries import Intervals
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.noise.kinds import GAUSSIAN, LAPLACE, NOISES
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.hdmm import oracle
from duckdb_dp.plan.hdmm.operators import OPERATORS
from duckdb_dp.plan.hdmm.plans import HdmmPlan
from duckdb_dp.plan.hdmm.task import PlanningTask, is_small, quick_refusal

HUGE = 1e100
"""Largest weighted sum of squares of the queries on one attribute set."""

QUICK = ("opt_kron", "opt_mixture")
"""Operators whose answers are consistent, and found in a moment where the axes are small."""

NEAR = {1024: 0.005, 4096: 0.1}
"""Cells of all attributes -> certified gap below which no dense strategy is looked for: a second, and a minute."""


def hdmm(workload: Workload, beta: float, objective: str = "total", operator: str = "best") -> Plan:
    """HDMM with Gaussian noise: the best plan that any of its operators finds.

    Args:
        workload: any queries.
        beta: privacy cost.
        objective: 'total'.
        operator: one of ``OPERATORS``; 'best' of all; or 'quick', the best of ``QUICK``, refused where that takes longer.

    Raises:
        DPError: an objective or operator that is not known, or a domain that is too large for it.

    Source: [HDMM18].

    Privacy: costs nothing; measuring it costs beta.
    """
    return _planned(PlanningTask(workload, GAUSSIAN.name, beta, oracle.memoised(oracle.gaussian)), objective, operator)


def hdmm_pure(workload: Workload, epsilon: float, objective: str = "total", operator: str = "best") -> Plan:
    """HDMM with Laplace noise: the best plan that any of its operators finds.

    Args:
        workload: any queries.
        epsilon: pure privacy cost.
        objective: 'total'.
        operator: one of ``OPERATORS``, or 'best'.

    Raises:
        DPError: an objective or operator that is not known, or a domain that is too large for it.

    Source: [HDMM18].

    Privacy: costs nothing; measuring it costs epsilon.
    """
    return _planned(PlanningTask(workload, LAPLACE.name, epsilon, oracle.memoised(oracle.laplace)), objective, operator)


def _planned(task: PlanningTask, objective: str, operator: str) -> Plan:
    if objective != "total":
        raise DPError(f"mechanism 'hdmm' plans for the sum of variances, objective 'total'; found {as_sql(objective)}.")
    if operator not in ("best", "quick", *OPERATORS):
        raise DPError(f"hdmm: operator {as_sql(operator)} is not known; use 'best', {', '.join(map(repr, OPERATORS))}.")
    _check_size(task.workload)
    if not task.live:
        raise DPError("every query of the workload is 0 on every cell, so there is nothing to measure.")
    if operator in OPERATORS:
        if why := OPERATORS[operator].refusal(task):
            raise DPError(f"hdmm: {as_sql(operator)} {why}; use {_others(task)}.")
        return _own(task, OPERATORS[operator].plan(task))
    refused = _refused(task)
    possible = [name for name in OPERATORS if name not in refused]
    if "opt_reflected" in possible and (operator == "quick" or NOISES[task.noise].pure):
        possible = ["opt_reflected"]
    elif operator == "quick" and not is_small(task):
        if why := quick_refusal(task):
            raise DPError(f"hdmm: 'quick' {why}; use 'best'.")
        possible = [name for name in QUICK if name in possible]
    if not possible:
        raise DPError(f"mechanism 'hdmm': {'; '.join(f'{name} {why}' for name, why in refused.items())}.")
    return _best(task, possible)


def _refused(task: PlanningTask) -> dict[str, str]:
    """Why each operator that does not fit cannot plan, or its plan not be measured."""
    found = {name: operator.refusal(task) or operator.cells(task) for name, operator in OPERATORS.items()}
    return {name: why for name, why in found.items() if why is not None}


def _others(task: PlanningTask) -> str:
    refused = _refused(task)
    return ", ".join(repr(name) for name in OPERATORS if name not in refused) or "coarser bins"


def _check_size(workload: Workload) -> None:
    """Refuse queries whose squares, summed over all cells, leave the range of doubles."""
    for part in workload.parts:
        if all(isinstance(family, Intervals) for family in part.queries) and part.weight < HUGE:
            continue
        logs = math.log(part.weight)
        for family in part.queries:
            predicates = family.bounds() is not None or part.negated is not None
            largest = 1.0 if predicates else float(np.abs(family.dense()).max())
            logs += 2 * math.log(max(largest, 1e-300)) + math.log(float(family.weights().sum())) + math.log(family.n)
        if logs > math.log(HUGE):
            raise DPError(
                "mechanism 'hdmm': the queries are too large for a finite error; scale them or their weights down."
            )


def _best(task: PlanningTask, possible: list[str]) -> Plan:
    """The best of all, 'opt_0', which is dear, only where the others leave something to gain.

    Operators that find no more than others are left out, unless these cannot plan.
    """
    plans: list[Plan] = []
    for name in [name for name in possible if OPERATORS[name].worth(task)] or possible:
        enough = next((gap for cells, gap in NEAR.items() if task.cells <= cells), math.inf)
        if not (name == "opt_0" and plans and min(plan.gap for plan in plans) < enough):
            plans.append(_own(task, OPERATORS[name].plan(task)))
    best = min(plans, key=lambda plan: plan.rmse)
    return replace(best, lower_bound=max(plan.lower_bound for plan in plans))


def _own(task: PlanningTask, plan: Plan) -> Plan:
    """A plan of another mechanism under HDMM's name, and with a bound that holds for every strategy."""
    return replace(plan, mechanism="hdmm", lower_bound=task.lower_bound) if not isinstance(plan, HdmmPlan) else plan
