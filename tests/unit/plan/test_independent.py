import math

import numpy as np
import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.plan.hdmm import hdmm_pure
from duckdb_dp.plan.independent import laplace

D = Domain({"a": 4, "b": 3, "c": 2})
MARGINALS = Workload.marginals(D, [("a", "b"), ("c",), ()], [1.0, 3.0, 0.5])


def scales(plan: object) -> np.ndarray:
    return np.array([math.sqrt(m.variance / 2) for m in plan.measurements])


def test_the_split_is_optimal() -> None:
    import cvxpy

    plan = laplace(MARGINALS, 0.7)
    assert (1 / scales(plan)).sum() == pytest.approx(0.7)
    assert plan.epsilon == pytest.approx(0.7)
    share = cvxpy.Variable(3, pos=True)
    needs = np.array([12.0, 3 * 2.0, 0.5])
    best = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum(cvxpy.multiply(2 * needs, share**-2))), [cvxpy.sum(share) <= 0.7])
    best.solve(solver=cvxpy.CLARABEL)
    assert plan.total == pytest.approx(best.value, rel=1e-5)


def test_the_largest_variance() -> None:
    plan = laplace(MARGINALS, 0.7, "max")
    weighted = [m.variance * part.weight for m, part in zip(plan.measurements, MARGINALS.parts, strict=True)]
    assert weighted == pytest.approx([weighted[0]] * 3)
    assert plan.max_stddev == pytest.approx(math.sqrt(weighted[0]))
    assert plan.max_stddev <= laplace(MARGINALS, 0.7).max_stddev
    assert plan.lower_bound <= plan.max_stddev


def test_answers_shares_and_bound() -> None:
    plan = laplace(MARGINALS, 2.0)
    assert plan.noise == "laplace"
    counts = {("a", "b"): np.arange(12.0), ("c",): np.arange(2.0), (): np.array([9.0])}
    estimates = plan.estimates(counts)
    np.testing.assert_array_equal(plan.answer(0, estimates), np.arange(12.0).reshape(4, 3))
    assert math.fsum(plan.share(i) for i in range(3)) == pytest.approx(1)
    assert plan.lower_bound <= hdmm_pure(MARGINALS, 2.0).rmse <= plan.rmse * (1 + 1e-9)


def test_refusals() -> None:
    with pytest.raises(DPError, match="answers marginals only, each once; use mechanism 'hdmm'"):
        laplace(Workload.product(D, {"a": "range"}), 1.0)
    with pytest.raises(DPError, match="objective 'least' is not known"):
        laplace(MARGINALS, 1.0, "least")
