"""OPT_HDMM: every operator is tried, and the plan of least error is kept.

Source: [HDMM18] section 9.
"""

from dataclasses import replace

from duckdb_dp.errors import DPError
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.hdmm import oracle
from duckdb_dp.plan.hdmm.operators import OPERATORS, Task
from duckdb_dp.plan.smasher import SubspacePlan
from duckdb_dp.workload import Workload


def hdmm(workload: Workload, beta: float, objective: str = "total", operator: str = "best") -> Plan:
    """HDMM with Gaussian noise: the best plan that any of its operators finds.

    Args:
        workload: any queries.
        beta: privacy cost.
        objective: 'total'.
        operator: one of ``OPERATORS``, or 'best'.

    Raises:
        DPError: an objective or operator that is not known, or a domain that is too large for it.

    Source: [HDMM18].

    Privacy: costs nothing; measuring it costs beta.
    """
    return _planned(Task(workload, "gaussian", beta, oracle.memoised(oracle.gaussian)), objective, operator)


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
    return _planned(Task(workload, "laplace", epsilon, oracle.memoised(oracle.laplace)), objective, operator)


def _planned(task: Task, objective: str, operator: str) -> Plan:
    if objective != "total":
        raise DPError(f"mechanism 'hdmm' plans for the sum of variances, objective 'total'; found {objective!r}.")
    if operator not in ("best", *OPERATORS):
        raise DPError(f"hdmm: operator {operator!r} is not known; use 'best', {', '.join(map(repr, OPERATORS))}.")
    if not task.live:
        raise DPError("every query of the workload is 0 on every cell, so there is nothing to measure.")
    refused = {name: refusal for name, found in OPERATORS.items() if (refusal := found.refusal(task)) is not None}
    possible = [name for name in OPERATORS if name not in refused]
    if operator in refused:
        others = ", ".join(map(repr, possible)) or "coarser bins"
        raise DPError(f"hdmm: {operator!r} {refused[operator]}; use {others}.")
    if not possible:
        raise DPError(f"mechanism 'hdmm': {'; '.join(f'{name} {why}' for name, why in refused.items())}.")
    names = [name for name in possible if OPERATORS[name].worth(task)] if operator == "best" else [operator]
    best = min((OPERATORS[name].plan(task) for name in names), key=lambda plan: plan.rmse)
    return replace(best, mechanism="hdmm", lower_bound=task.lower_bound) if isinstance(best, SubspacePlan) else best
