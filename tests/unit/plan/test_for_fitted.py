"""Plans for marginals that will be read fitted: their formula, checked without the code that solves it."""

import itertools
import math

import numpy as np
import pytest

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.plan import for_fitted as module
from duckdb_dp.plan.for_fitted import for_fitted
from duckdb_dp.plan.residual import residual

D = Domain({"a": 3, "b": 2, "one": 1, "c": 40, "d": 12})
WORKLOADS = {
    "pairs": Workload.all_k_way(D, 2),
    "triples and a single": Workload.marginals(D, [("a", "b", "c"), ("b", "c", "d"), ("d",)], [1.0, 5.0, 0.1]),
    "the total": Workload.marginals(D, [()]),
    "four": Workload.marginals(D, [("a", "b", "c", "d")]),
}


def expected(workload: Workload, precisions: dict[Clique, float]) -> float:
    """The sum that is minimised, as the docstring writes it."""
    found = 0.0
    for tau, precision in precisions.items():
        n = module.FILLED ** len(tau) * math.prod(D.sizes[name] for name in tau)
        n = max(n - 1, module.PART) if tau else 1.0
        weight = sum(
            w * (1.0 if set(clique) - {"one"} == set(tau) else module.PART)
            for clique, w in workload.weights.items()
            if set(tau) <= set(clique)
        )
        distances = np.geomspace(module.NEAREST, module.FARTHEST, module.DISTANCES)
        distances = distances * module.NEARER ** (len(tau) - 2)
        known = 0.0 if len(tau) < 2 else 2 / math.pi * (n / distances) ** 2
        found += weight * n * float(np.mean(1 / np.sqrt(precision + known)))
    return found


def cost(tau: Clique) -> float:
    return math.prod(1 - 1 / D.sizes[name] for name in tau)


@pytest.mark.some(4)
@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=list(WORKLOADS))
@pytest.mark.parametrize("beta", [1e-9, 1e-4, 0.02, 100.0])
def test_no_other_division_of_the_budget_is_better(workload: Workload, beta: float) -> None:
    solved, plain = for_fitted(workload, beta), residual(workload, beta)
    assert solved.beta == pytest.approx(beta)
    least = {one.clique: module.UNBIASED / one.variance for one in plain.measurements}
    found = {one.clique: 1 / one.variance - least[one.clique] for one in solved.measurements}
    assert all(precision > -1e-12 for precision in found.values())
    best = expected(workload, found)
    for giver, taker in itertools.permutations(found, 2):
        for share in (0.01, 0.5):
            moved = share * max(found[giver], 0.0)
            other = found | {giver: found[giver] - moved, taker: found[taker] + moved * cost(giver) / cost(taker)}
            assert expected(workload, other) >= best * (1 - 1e-5)


def test_what_noise_would_hide_is_left_to_smaller_marginals() -> None:
    workload = Workload.all_k_way(D, 3)

    def share(beta: float) -> float:
        plan = for_fitted(workload, beta)
        return sum(one.cost for one in plan.measurements if len(one.clique) == 3) / plan.beta

    assert share(1e-9) < module.UNBIASED < share(1e3)
    assert share(1e-9) < share(1e-3) < share(1e3)


def test_queries_that_are_no_marginals() -> None:
    with pytest.raises(DPError, match="objective 'fitted' plans marginals"):
        for_fitted(Workload.product(D, {"c": "prefix"}), 1.0)
