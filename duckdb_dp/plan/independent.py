"""Independent noise on each marginal, Gaussian or Laplace: the baselines."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import final

from duckdb_dp.domain.domain import Clique
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Identity
from duckdb_dp.noise.kinds import LAPLACE, NOISES
from duckdb_dp.plan.base import Measurement, Plan, unknown_objective
from duckdb_dp.plan.energies import marginals_bound
from duckdb_dp.plan.residual import residual


@final
@dataclass(frozen=True, kw_only=True)
class IndependentPlan(Plan):
    """Every marginal is measured as it is; marginals that share attributes do not agree on their common part."""

    @cached_property
    def _variances(self) -> Mapping[Clique, float]:
        return {m.clique: m.variance for m in self.measurements}

    def variance(self, which: int | Clique) -> float:
        return self._variances[self.part(which).clique]

    def share(self, which: int | Clique) -> float:
        noise, clique = NOISES[self.noise], self.part(which).clique
        costs = {m.clique: noise.cost(m.strategy, m.variance) for m in self.measurements}
        return costs[clique] / math.fsum(costs.values())

    def answer(self, which: int | Clique, estimates: Mapping[Clique, Array]) -> Array:
        part = self.part(which)
        return estimates[part.clique].reshape(part.shape)


def gaussian(workload: Workload, beta: float, objective: str = "total") -> IndependentPlan:
    """Independent noise N(0, s_gamma) on the cells of each marginal, the budget split in the best way.

    For 'total': minimise sum w n s subject to sum 1/s <= beta, so s_gamma = (sum sqrt(w n)) / (beta sqrt(w_gamma n_gamma)).
    For 'max': w_gamma s_gamma is the same for all, s_gamma = (sum w) / (beta w_gamma).

    Raises:
        DPError: an unknown objective.

    Privacy: costs nothing; measuring it costs beta.
    """
    cells = workload.domain.cells
    if objective == "total":
        roots = {clique: math.sqrt(weight * cells(clique)) for clique, weight in workload.weights.items()}
    elif objective == "max":
        roots = dict(workload.weights)
    else:
        raise unknown_objective(objective)
    total = math.fsum(roots.values())
    return IndependentPlan(
        workload=workload,
        mechanism="gaussian",
        measurements=_measured(workload, {clique: total / (beta * root) for clique, root in roots.items()}),
        lower_bound=residual(workload, beta, objective).lower_bound,
        objective=objective,
    )


def laplace(workload: Workload, epsilon: float, objective: str = "total") -> IndependentPlan:
    """Independent Laplace noise of scale b_gamma on the cells of each marginal, the budget split in the best way.

    For 'total': minimise sum w n 2 b^2 subject to sum 1/b <= epsilon, so with r = (w n)^(1/3),
    b_gamma = (sum r) / (epsilon r_gamma). For 'max': w_gamma b_gamma^2 is the same for all, r = sqrt(w).

    Raises:
        DPError: queries that are no marginals, or an unknown objective.

    Source: [HDMM18] section 3, with the split of Definition 19.

    Privacy: costs nothing; measuring it costs a pure epsilon.
    """
    if not workload.is_marginals:
        raise DPError("mechanism 'laplace' answers marginals only, each once; use mechanism 'hdmm' for other queries.")
    cells = workload.domain.cells
    if objective == "total":
        roots = {clique: (weight * cells(clique)) ** (1 / 3) for clique, weight in workload.weights.items()}
        queries = workload.queries
    elif objective == "max":
        roots = {clique: math.sqrt(weight) for clique, weight in workload.weights.items()}
        # The largest weighted variance is at least the mean one.
        queries = sum(cells(clique) for clique in workload.weights)
    else:
        raise unknown_objective(objective)
    total = math.fsum(roots.values())
    least = 2 / epsilon**2 * marginals_bound(workload.parts, workload.domain)
    return IndependentPlan(
        workload=workload,
        mechanism="laplace",
        measurements=_measured(workload, {c: 2 * (total / (epsilon * root)) ** 2 for c, root in roots.items()}),
        lower_bound=math.sqrt(least / queries),
        objective=objective,
        noise=LAPLACE.name,
    )


def _measured(workload: Workload, variances: Mapping[Clique, float]) -> tuple[Measurement, ...]:
    """The cells of each marginal, with its noise variance."""
    return tuple(
        Measurement(clique=clique, strategy=Identity(workload.domain.cells(clique)), variance=variance)
        for clique, variance in variances.items()
    )
