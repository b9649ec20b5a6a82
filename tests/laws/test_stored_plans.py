"""A plan that was stored is the plan that it was: same strategies, same answers, same errors, whatever a planner finds today."""

import numpy as np
import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.plan.choose import PLANNERS, PURE_PLANNERS
from duckdb_dp.plan.searched import PLAN, SearchedPlan
from duckdb_dp.plan.smasher import SubspacePlan
from duckdb_dp.plan.stored import STORED, restore

D = Domain({"a": 4, "b": 3, "c": 2})
W = (
    Workload.product(D, {"a": "range", "b": "identity"})
    + Workload.predicates(D, ("a", "b"), "affine", 2.0)
    + Workload.product(D, {"c": "identity"})
)


@pytest.mark.parametrize("name", ["querysmasher", "residual_plus", "wff", "residual", "hdmm"])
def test_stored_and_read(name: str) -> None:
    plan = PLANNERS[name](W, 1.5, "total")
    arrays = plan.dump()
    assert isinstance(plan, SubspacePlan) == (name != "hdmm")
    again = restore(W, arrays)
    assert (again.mechanism, again.objective, again.lower_bound) == (plan.mechanism, plan.objective, plan.lower_bound)
    rng = np.random.default_rng(3)
    noisy = {m.clique: rng.normal(size=m.strategy.shape[0]) for m in plan.measurements}
    for mine, theirs in zip(again.measurements, plan.measurements, strict=True):
        assert (mine.clique, mine.variance) == (theirs.clique, theirs.variance)
        np.testing.assert_array_equal(mine.strategy.dense(), theirs.strategy.dense())
    for index in range(len(W.parts)):
        np.testing.assert_array_equal(
            again.answer(index, again.estimates(noisy)), plan.answer(index, plan.estimates(noisy))
        )
        np.testing.assert_array_equal(again.variance(index), plan.variance(index))
        assert again.share(index) == pytest.approx(plan.share(index))
    assert again.rmse == pytest.approx(plan.rmse)


def test_equal_factors_are_stored_once() -> None:
    many = Domain({f"x{i}": 5 for i in range(6)})
    pairs = Workload.all_k_way(many, 2, kinds=dict.fromkeys(many.attributes, "range"))
    arrays = PLANNERS["querysmasher"](pairs, 1.0, "total").dump()
    assert len(arrays) == 2  # the description, and one matrix for all 21 residuals


def test_every_kind_that_is_stored_is_found_by_its_name() -> None:
    def kinds(above: type) -> set[type]:
        below = {found for kind in above.__subclasses__() for found in kinds(kind)}
        return below or {above}

    assert set(STORED.items()) == {(kind.__name__, kind) for kind in kinds(SearchedPlan)}


def test_closed_forms_are_planned_again() -> None:
    marginals = Workload.all_k_way(D, 2)
    for name in ("residual", "gaussian"):
        assert PLANNERS[name](marginals, 1.0, "total").dump() == {}
    assert PURE_PLANNERS["laplace"](marginals, 1.0, "total").dump() == {}
    assert PLAN in PURE_PLANNERS["hdmm"](marginals, 1.0, "total").dump()
