"""Independent Laplace noise on each marginal: the baseline for pure differential privacy."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from duckdb_dp.domain.domain import Clique
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.linop import Array, Identity
from duckdb_dp.noise.kinds import LAPLACE
from duckdb_dp.plan.base import Measurement, Plan
from duckdb_dp.plan.hdmm.bounds import marginals_bound


@dataclass(frozen=True, kw_only=True)
class LaplacePlan(Plan):
    """Every marginal is measured as it is; marginals that share attributes do not agree on their common part."""

    @cached_property
    def _variances(self) -> Mapping[Clique, float]:
        return {m.clique: m.variance for m in self.measurements}

    def variance(self, which: int | Clique) -> float:
        return self._variances[self.part(which).clique]

    def share(self, which: int | Clique) -> float:
        return math.sqrt(2 / self._variances[self.part(which).clique]) / self.epsilon

    def answer(self, which: int | Clique, estimates: Mapping[Clique, Array]) -> Array:
        part = self.part(which)
        return estimates[part.clique].reshape(part.shape)


def laplace(workload: Workload, epsilon: float, objective: str = "total") -> LaplacePlan:
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
    if objective not in ("total", "max"):
        raise DPError(
            f"objective {as_sql(objective)} is not known; use 'total' (sum of variances) or 'max' (largest variance)."
        )
    cells = workload.domain.cells
    roots = {
        clique: (weight * cells(clique)) ** (1 / 3) if objective == "total" else math.sqrt(weight)
        for clique, weight in workload.weights.items()
    }
    whole = math.fsum(roots.values())
    least = 2 / epsilon**2 * marginals_bound(workload.parts, workload.domain)
    # The largest weighted variance is at least the mean one.
    mean = math.fsum(cells(clique) for clique in workload.weights)
    return LaplacePlan(
        workload=workload,
        mechanism="laplace",
        measurements=tuple(
            Measurement(clique=clique, strategy=Identity(cells(clique)), variance=2 * (whole / (epsilon * root)) ** 2)
            for clique, root in roots.items()
        ),
        lower_bound=math.sqrt(least / (workload.queries if objective == "total" else mean)),
        objective=objective,
        noise=LAPLACE.name,
    )
