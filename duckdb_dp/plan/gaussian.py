"""Independent Gaussian noise on each marginal: the baseline."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from duckdb_dp.domain.domain import Clique
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.linop import Array, Identity
from duckdb_dp.plan.base import Measurement, Plan
from duckdb_dp.plan.residual import residual


@dataclass(frozen=True, kw_only=True)
class GaussianPlan(Plan):
    """Every marginal is measured as it is; marginals that share attributes do not agree on their common part."""

    @cached_property
    def _variances(self) -> Mapping[Clique, float]:
        return {m.clique: m.variance for m in self.measurements}

    def variance(self, which: int | Clique) -> float:
        return self._variances[self.part(which).clique]

    def share(self, which: int | Clique) -> float:
        return 1 / self._variances[self.part(which).clique] / self.beta

    def answer(self, which: int | Clique, estimates: Mapping[Clique, Array]) -> Array:
        part = self.part(which)
        return estimates[part.clique].reshape(part.shape)


def gaussian(workload: Workload, beta: float, objective: str = "total") -> GaussianPlan:
    """Independent noise N(0, s_gamma) on the cells of each marginal, the budget split in the best way.

    For 'total': minimise sum w n s subject to sum 1/s <= beta, so s_gamma = (sum sqrt(w n)) / (beta sqrt(w_gamma n_gamma)).
    For 'max': w_gamma s_gamma is the same for all, s_gamma = (sum w) / (beta w_gamma).

    Privacy: costs nothing; measuring it costs beta.
    """
    cells = workload.domain.cells
    if objective == "total":
        roots = {clique: math.sqrt(weight * cells(clique)) for clique, weight in workload.weights.items()}
    elif objective == "max":
        roots = dict(workload.weights)
    else:
        raise DPError(
            f"objective {as_sql(objective)} is not known; use 'total' (sum of variances) or 'max' (largest variance)."
        )
    total = math.fsum(roots.values())
    return GaussianPlan(
        workload=workload,
        mechanism="gaussian",
        measurements=tuple(
            Measurement(clique=clique, strategy=Identity(cells(clique)), variance=total / (beta * root))
            for clique, root in roots.items()
        ),
        lower_bound=residual(workload, beta, objective).lower_bound,
        objective=objective,
    )
