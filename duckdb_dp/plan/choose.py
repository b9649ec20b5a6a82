"""The registry of planners, and the choice of 'auto'."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

from duckdb_dp.accounting.base import Accounting
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.plan.base import Plan, unknown_objective
from duckdb_dp.plan.independent import gaussian, laplace
from duckdb_dp.plan.residual import residual

Planner = Callable[[Workload, float, str], Plan]


def _smasher(name: str, workload: Workload, beta: float, objective: str = "total") -> Plan:
    """A planner of ``smasher``, by its name."""
    from duckdb_dp.plan import smasher  # for import time: marginals are planned without it

    planner: Planner = getattr(smasher, name)
    return planner(workload, beta, objective)


def _hdmm(workload: Workload, beta: float, objective: str, operator: str = "best") -> Plan:
    from duckdb_dp.plan.hdmm import hdmm  # for import time: marginals are planned without it

    return hdmm(workload, beta, objective, operator)


def _hdmm_pure(workload: Workload, epsilon: float, objective: str) -> Plan:
    from duckdb_dp.plan.hdmm import hdmm_pure  # for import time

    return hdmm_pure(workload, epsilon, objective)


PLANNERS: dict[str, Planner] = {
    "residual": residual,
    "gaussian": gaussian,
    "querysmasher": partial(_smasher, "querysmasher"),
    "residual_plus": partial(_smasher, "residual_plus"),
    "wff": partial(_smasher, "wff"),
    "hdmm": _hdmm,
}
"""With Gaussian noise, from a privacy cost beta."""

PURE_PLANNERS: dict[str, Planner] = {"hdmm": _hdmm_pure, "laplace": laplace}
"""With Laplace noise, from a pure epsilon."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyCost:
    """One budget as each kind of noise takes it, for tables that differ by one row.

    A unit of k rows changes every marginal k times as much, in L2 and in L1: beta = mu^2 / k^2 and epsilon / k.

    Attributes:
        beta: privacy cost max_i [B^T Sigma^-1 B]_ii of Gaussian noise; None where only pure DP will do.
        epsilon: of Laplace noise, max_i sum_j |B_ji| / b_j.
    """

    beta: float | None
    epsilon: float

    @classmethod
    def of(cls, cost: float, accounting: Accounting, rows: int = 1) -> "PrivacyCost":
        """A cost in the unit of an accounting: mu^2, rho or epsilon, for a unit of ``rows`` rows."""
        if not 0 < cost < math.inf:
            raise DPError(f"the privacy cost is {as_sql(cost)}; it must be positive and finite.")
        beta = accounting.beta(cost)
        return cls(
            beta=None if beta is None else beta / rows**2,
            epsilon=accounting.laplace_epsilon(cost) / rows,
        )

    def part(self, share: float) -> "PrivacyCost":
        """A share of it: mu^2, rho and epsilon add up."""
        return PrivacyCost(beta=None if self.beta is None else self.beta * share, epsilon=self.epsilon * share)


FITTED = "fitted"
"""The objective of plans for marginals that will be read fitted, which takes the planner 'residual'."""


def choose(
    workload: Workload,
    cost: PrivacyCost,
    *,
    mechanism: str = "auto",
    objective: str = "total",
) -> Plan:
    """The named planner's plan at a privacy cost; 'auto' takes the best.

    Args:
        workload: the queries.
        cost: the budget.
        mechanism: a planner's name, or 'auto'.
        objective: 'total', 'max' or 'fitted'.

    Raises:
        DPError: an unknown mechanism or objective, or Gaussian noise where only pure DP will do.

    Privacy: costs nothing.
    """
    if objective == FITTED:
        return _fitted(workload, cost, mechanism)
    if mechanism == "auto":
        found = candidates(workload, cost, objective=objective)
        return min(found, key=_badness) if len(found) > 1 else found[0]
    if cost.beta is not None and mechanism in PLANNERS:
        return PLANNERS[mechanism](workload, cost.beta, objective)
    if mechanism in PURE_PLANNERS:
        return PURE_PLANNERS[mechanism](workload, cost.epsilon, objective)
    if mechanism in PLANNERS:
        raise DPError(
            f"mechanism '{mechanism}' adds Gaussian noise, which has no pure epsilon (delta 0); "
            f"use 'auto', {', '.join(map(repr, PURE_PLANNERS))}, or a budget with a delta."
        )
    known = dict.fromkeys([*PLANNERS, *PURE_PLANNERS])
    raise DPError(f"mechanism {as_sql(mechanism)} is not known; use 'auto', {', '.join(map(repr, known))}.")


def _fitted(workload: Workload, cost: PrivacyCost, mechanism: str) -> Plan:
    if mechanism not in {"auto", "residual"} or cost.beta is None:
        raise unknown_objective(FITTED)
    from duckdb_dp.plan.for_fitted import for_fitted  # for import time

    return for_fitted(workload, cost.beta)


def candidates(workload: Workload, cost: PrivacyCost, *, objective: str) -> list[Plan]:
    """The plans that 'auto' chooses from.

    For marginals nothing beats 'residual'; elsewhere 'querysmasher' is at least as good as the other residual
    mechanisms, residual by residual, and 'hdmm' may be better still, since it does not have to measure each residual by
    itself: it is tried where its operators take a moment, by public sizes and not by a clock. Of equal ones the first.
    One product on many cells has a strategy in closed form that is proved to be next to the best of all: it is the only one.

    Raises:
        DPError: none of them can answer the workload.
    """
    if cost.beta is None:
        return _possible(list(PURE_PLANNERS.values()), workload, cost.epsilon, objective)
    if workload.is_marginals:
        return [PLANNERS["residual"](workload, cost.beta, objective)]
    from duckdb_dp.plan.hdmm.task import one_product  # for import time

    quick = partial(_hdmm, operator="quick")
    if objective == "total" and one_product(workload) is None:
        return _possible([quick], workload, cost.beta, objective)
    return _possible([PLANNERS["querysmasher"], quick], workload, cost.beta, objective)


def _possible(planners: Sequence[Planner], workload: Workload, cost: float, objective: str) -> list[Plan]:
    """The plans of those that can answer the workload; the first one's refusal where none can."""
    found, refusals = [], []
    for planner in planners:
        try:
            found.append(planner(workload, cost, objective))
        except DPError as refusal:
            refusals.append(refusal)
    if not found:
        raise refusals[0]
    return found


def _badness(plan: Plan) -> float:
    return plan.max_stddev if plan.objective == "max" else plan.rmse
