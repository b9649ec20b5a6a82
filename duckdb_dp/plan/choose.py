"""The planners by name."""

import math
from collections.abc import Callable

from duckdb_dp.errors import DPError
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.gaussian import gaussian
from duckdb_dp.plan.residual import residual
from duckdb_dp.plan.smasher import querysmasher, residual_plus, wff
from duckdb_dp.workload import Workload

PLANNERS: dict[str, Callable[[Workload, float, str], Plan]] = {
    "residual": residual,
    "gaussian": gaussian,
    "querysmasher": querysmasher,
    "residual_plus": residual_plus,
    "wff": wff,
}


def _auto(workload: Workload) -> str:
    """For marginals nothing beats 'residual'; elsewhere 'querysmasher' is at least as good as the others, residual by residual."""
    return "residual" if workload.is_marginals else "querysmasher"


def choose(workload: Workload, *, beta: float, mechanism: str = "auto", objective: str = "total") -> Plan:
    """The named planner's plan at privacy cost beta; 'auto' takes the best.

    Raises:
        DPError: an unknown mechanism or objective, or a privacy cost that is not positive and finite.

    Privacy: costs nothing.
    """
    if not 0 < beta < math.inf:
        raise DPError(f"the privacy cost is {beta!r}; it must be positive and finite.")
    name = _auto(workload) if mechanism == "auto" else mechanism
    if name not in PLANNERS:
        raise DPError(f"mechanism {mechanism!r} is not known; use 'auto', {', '.join(map(repr, PLANNERS))}.")
    return PLANNERS[name](workload, beta, objective)
