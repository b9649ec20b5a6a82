"""What must hold for every planner of marginals, against dense matrices over a small domain and published numbers."""

import functools
import itertools
import math
from collections.abc import Callable

import cvxpy
import numpy as np
import pytest

import duckdb_dp
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.choose import PLANNERS, PrivacyCost, choose
from tests.laws.dense import answered, check_answers_without_noise, onto, stacked

D = Domain({"a": 3, "b": 2, "one": 1, "c": 4})
BETA = 0.7
WORKLOADS: dict[str, Workload] = {
    "the total": Workload.marginals(D, [()]),
    "one attribute": Workload.marginals(D, [("a",)]),
    "one attribute and the total": Workload.marginals(D, [("c",), ()], [1.0, 10.0]),
    "one value": Workload.marginals(D, [("one",)]),
    "everything": Workload.marginals(D, [("a", "b", "one", "c")]),
    "nested": Workload.marginals(D, [("a", "b"), ("a",), ("b",), ()]),
    "nested, weights": Workload.marginals(D, [("a", "b"), ("a",), ("b",), ()], [0.1, 1.0, 7.0, 2.0]),
    "overlapping": Workload.marginals(D, [("a", "b", "one"), ("b", "c"), ("c",)], [1.0, 2.0, 3.0]),
    "disjoint": Workload.marginals(D, [("a",), ("b", "one")]),
    "all pairs": Workload.all_k_way(D, 2),
    "all up to three": Workload.all_k_way(D, 3, upto=True),
}
OBJECTIVES = {"total": list(PLANNERS), "max": ["residual", "gaussian"], "fitted": ["residual"]}
CASES = [(w, p, o) for o, planners in OBJECTIVES.items() for p, w in itertools.product(planners, WORKLOADS)]


def every(test: Callable[..., None]) -> Callable[..., None]:
    """Eight workloads for each planner and objective by default, and all of them when slow."""
    cases = pytest.mark.parametrize(("workload", "planner", "objective"), CASES)
    return pytest.mark.some(4, "planner", "objective")(cases(test))


@functools.cache
def planned(workload: str, planner: str, objective: str = "total") -> Plan:
    return choose(WORKLOADS[workload], PrivacyCost(beta=BETA, epsilon=BETA), mechanism=planner, objective=objective)


def reconstructions(plan: Plan) -> list[np.ndarray]:
    """The matrices that a plan's own reconstruction of each marginal is: strategy answers -> cells."""
    return np.split(answered(plan), np.cumsum([math.prod(part.shape) for part in plan.workload.parts])[:-1])


@every
def test_the_joint_privacy_cost(workload: str, planner: str, objective: str) -> None:
    plan = planned(workload, planner, objective)
    strategy, variance = stacked(plan)
    joint = float((strategy**2 / variance[:, None]).sum(axis=0).max())
    assert joint <= BETA * (1 + 1e-9)
    assert joint >= BETA * (1 - 1e-6)
    assert (plan.beta, plan.rho, plan.mu) == pytest.approx((BETA, BETA / 2, math.sqrt(BETA)), rel=1e-9)


@every
def test_variance_and_unbiasedness(workload: str, planner: str, objective: str) -> None:
    plan = planned(workload, planner, objective)
    strategy, noise = stacked(plan)
    information = np.linalg.pinv(strategy.T @ (strategy / noise[:, None]), rcond=1e-11, hermitian=True)
    total, largest, found_of = 0.0, 0.0, reconstructions(plan)
    for index, (clique, weight) in enumerate(WORKLOADS[workload].weights.items()):
        found = found_of[index]
        np.testing.assert_allclose(found @ strategy, onto(clique, D), atol=1e-6)  # of any counts the answer is unbiased
        variance = (found**2 * noise).sum(axis=1)
        np.testing.assert_allclose(
            np.broadcast_to(plan.variance(index), plan.part(index).shape).ravel(), variance, rtol=1e-6
        )
        np.testing.assert_allclose(plan.variance(clique), plan.variance(index))
        assert float(np.max(plan.stddev(index))) == pytest.approx(math.sqrt(variance.max()), rel=1e-6)
        least = np.diag(onto(clique, D) @ information @ onto(clique, D).T)
        assert (variance >= least * (1 - 1e-6)).all()
        if planner != "gaussian":  # whose marginals do not help each other
            np.testing.assert_allclose(variance, least, rtol=1e-6)
        total += weight * float(variance.sum())
        largest = max(largest, weight * float(variance.max()))
    assert plan.rmse == pytest.approx(math.sqrt(total / plan.queries), rel=1e-6)
    assert plan.max_stddev == pytest.approx(math.sqrt(largest), rel=1e-6)
    assert plan.queries == sum(D.cells(clique) for clique in WORKLOADS[workload].weights)


@every
def test_without_noise_the_answers_are_exact(workload: str, planner: str, objective: str) -> None:
    check_answers_without_noise(planned(workload, planner, objective))


@every
def test_the_bound_and_the_shares(workload: str, planner: str, objective: str) -> None:
    plan = planned(workload, planner, objective)
    error = plan.rmse if objective == "total" else plan.max_stddev
    assert 0 < plan.lower_bound <= error * (1 + 1e-9)
    shares = [plan.share(index) for index in range(len(WORKLOADS[workload].parts))]
    assert min(shares) > 0
    assert math.fsum(shares) == pytest.approx(1, rel=1e-9)
    assert plan.objective == objective
    text = str(plan)
    assert f"'{planner}'" in text
    assert all(len(line) < 130 for line in text.splitlines())
    assert plan._repr_html_().count("<tr>") == 1 + min(12, len(shares))


@every
def test_a_fourth_of_the_variance_for_four_times_the_cost(workload: str, planner: str, objective: str) -> None:
    if objective == "fitted":  # what is worth measuring depends on the budget
        pytest.skip("another plan at another budget")
    plan, dear = planned(workload, planner, objective), PLANNERS[planner](WORKLOADS[workload], 4 * BETA, objective)
    for index in range(len(WORKLOADS[workload].parts)):
        np.testing.assert_allclose(4 * np.asarray(dear.variance(index)), plan.variance(index), rtol=1e-4)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_nothing_beats_residual(workload: str) -> None:
    best = planned(workload, "residual")
    assert best.rmse == pytest.approx(best.lower_bound, rel=1e-9)
    for planner in PLANNERS:
        assert best.rmse <= planned(workload, planner).rmse * (1 + 1e-9)
    least = planned(workload, "residual", "max")
    assert least.max_stddev == pytest.approx(least.lower_bound, rel=1e-5)
    for planner, objective in [("gaussian", "max"), ("gaussian", "total"), ("residual", "total")]:
        assert least.max_stddev <= planned(workload, planner, objective).max_stddev * (1 + 1e-6)


def test_independent_noise_of_least_largest_error_evens_out_the_weighted_variances() -> None:
    plan = planned("nested, weights", "gaussian", "max")
    weighted = [weight * plan.variance(clique) for clique, weight in plan.workload.weights.items()]
    assert weighted == pytest.approx([weighted[0]] * len(weighted), rel=1e-12)


def best_mechanism(workload: Workload, objective: str) -> float:
    """The least error of any unbiased Gaussian mechanism, as a semidefinite program over the full domain.

    V = B^T Sigma^-1 B with a diagonal of at most beta; a query q then has variance q^T V^-1 q.
    """
    domain = workload.domain
    cells = math.prod(domain.sizes.values())
    gram = cvxpy.Variable((cells, cells), PSD=True)
    limits = [cvxpy.diag(gram) <= 1]
    if objective == "total":
        root = np.concatenate([math.sqrt(w) * onto(c, domain) for c, w in workload.weights.items()])
        goal = cvxpy.matrix_frac(root.T, gram)
    else:
        goal = cvxpy.Variable()
        limits += [
            w * cvxpy.matrix_frac(row, gram) <= goal for c, w in workload.weights.items() for row in onto(c, domain)
        ]
    problem = cvxpy.Problem(cvxpy.Minimize(goal), limits)
    problem.solve(solver=cvxpy.CLARABEL)
    error = problem.value / BETA
    return math.sqrt(error / workload.queries if objective == "total" else error)


@pytest.mark.parametrize("objective", ["total", "max"])
@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0, 1.0], [0.2, 3.0, 1.0, 5.0]])
def test_residual_is_the_best_of_all_mechanisms(objective: str, weights: list[float]) -> None:
    workload = Workload.marginals(Domain({"a": 3, "b": 2}), [("a", "b"), ("a",), ("b",), ()], weights)
    plan = PLANNERS["residual"](workload, BETA, objective)
    best = best_mechanism(workload, objective)
    assert plan.lower_bound == pytest.approx(best, rel=1e-4)
    assert (plan.rmse if objective == "total" else plan.max_stddev) == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize("objective", ["total", "max"])
@pytest.mark.parametrize("workload", ["nested, weights", "overlapping", "all up to three"])
def test_no_other_split_of_the_budget_is_better(workload: str, objective: str) -> None:
    plan = planned(workload, "residual", objective)
    rng = np.random.default_rng(6)
    variances = np.array([m.variance for m in plan.measurements])
    costs = np.array([m.strategy.squared_sensitivity for m in plan.measurements])
    coefficients = []  # of each marginal: how much of its cells' variance each residual causes
    for squares in (found**2 for found in reconstructions(plan)):
        ends = np.cumsum([m.strategy.shape[0] for m in plan.measurements])[:-1]
        coefficients.append([part.sum(axis=1).mean() for part in np.split(squares, ends, axis=1)])
    weights = np.array([part.weight for part in plan.workload.parts])
    cells = np.array([math.prod(part.shape) for part in plan.workload.parts])

    def error(candidate: np.ndarray) -> float:
        scaled = candidate * (costs / candidate).sum() / BETA
        found = weights * (np.array(coefficients) @ scaled)
        return float(found @ cells) if objective == "total" else float(found.max())

    best = error(variances)
    for size in (1e-4, 1e-2, 0.3, 3.0):
        for _ in range(50):
            assert error(variances * np.exp(size * rng.normal(size=len(variances)))) >= best * (1 - 1e-5)


def test_names_and_budgets_of_the_public_function() -> None:
    d = duckdb_dp.Domain({"age": 85, "sex": 2, "race": 5})
    w = duckdb_dp.Workload.marginals(d, [("age", "sex"), ("race",)], weights=None)
    p = duckdb_dp.plan(w, mechanism="residual", rho=0.5)
    assert (p.beta, p.rho, p.mu) == pytest.approx((1, 0.5, 1))
    assert isinstance(p.rmse, float)
    assert isinstance(p.lower_bound, float)
    assert p.queries == 85 * 2 + 5
    assert duckdb_dp.plan(w, mu=1).rmse == pytest.approx(p.rmse)
    assert duckdb_dp.plan(w, epsilon=1, delta=1e-6).mu == pytest.approx(1 / 4.22468, rel=1e-5)
    assert duckdb_dp.plan(w, epsilon=1, delta=1e-6, accounting="zcdp").mu == pytest.approx(1 / 4.5309, rel=1e-5)
    assert duckdb_dp.plan(w, rho=0.5).mechanism == "residual"
    for wrong in (
        {"mechanism": "magic", "rho": 1}, {}, {"rho": 1, "mu": 1}, {"rho": 1, "objective": "least"}, {"rho": 0},
        {"epsilon": 1},
    ):  # fmt: skip
        with pytest.raises(DPError):
            duckdb_dp.plan(w, **wrong)


ADULT = Domain(dict(zip("abcdefghijklmn", [85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2], strict=True)))
CPS = Domain(dict(zip("abcde", [100, 50, 7, 4, 2], strict=True)))


@pytest.mark.parametrize(
    ("domain", "k", "upto", "rmse"),
    [
        (ADULT, 1, False, 3.0468), (ADULT, 2, False, 6.3587), (ADULT, 3, False, 10.5153), (ADULT, 3, True, 10.6650),
        (CPS, 1, False, 1.7439), (CPS, 2, False, 2.0346), (CPS, 3, False, 2.0477), (CPS, 3, True, 2.2745),
    ],
)  # fmt: skip
def test_published_errors(domain: Domain, k: int, upto: bool, rmse: float) -> None:
    """Of the public ResidualPlanner code at privacy cost 1; its 1..3-way leave the total out, as ``upto`` does."""
    plan = duckdb_dp.plan(Workload.all_k_way(domain, k, upto=upto), mechanism="residual", rho=0.5)
    assert round(plan.rmse, 4) == pytest.approx(rmse, abs=1.01e-4)
    assert plan.rmse == pytest.approx(plan.lower_bound, rel=1e-9)


def test_published_sizes_of_adult() -> None:
    workload = Workload.all_k_way(ADULT, 3)
    assert (len(workload.parts), workload.queries) == (364, 20_894_536)
    assert Workload.all_k_way(ADULT, 3, upto=True).queries == 21_043_261


@pytest.mark.parametrize(("d", "rmse"), [(10, 9.3481), (20, 26.9168), (30, 49.7132), (50, 107.2581)])
def test_published_errors_of_many_attributes(d: int, rmse: float) -> None:
    domain = Domain({f"x{i:02}": 10 for i in range(d)})
    cliques = [c for order in range(4) for c in itertools.combinations(domain.attributes, order)]
    plan = duckdb_dp.plan(Workload.marginals(domain, cliques), mechanism="residual", rho=0.5)
    assert plan.rmse == pytest.approx(rmse, abs=1e-4)


@pytest.mark.parametrize("planner", PLANNERS)
def test_planning_sees_nothing_that_changes(planner: str) -> None:
    """The same workload, the same plan: so that a stored release can be read again."""
    first, second = (PLANNERS[planner](WORKLOADS["all up to three"], BETA, "total") for _ in range(2))
    assert [(m.clique, m.variance) for m in first.measurements] == [(m.clique, m.variance) for m in second.measurements]
    for one, other in zip(first.measurements, second.measurements, strict=True):
        np.testing.assert_array_equal(one.strategy.dense(), other.strategy.dense())
