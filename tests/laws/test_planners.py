"""What must hold for every planner of linear queries, and every operator of HDMM, against dense matrices over a small domain."""

import itertools
import math
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pytest
from scipy import stats

from duckdb_dp.accounting.base import GDP
from duckdb_dp.accounting.ledger import Ledger
from duckdb_dp.answers import load
from duckdb_dp.budget import Budget
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.queries import Predicates
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.plan import smasher, solve
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.hdmm import hdmm, hdmm_pure
from duckdb_dp.plan.hdmm.plans import HdmmPlan
from duckdb_dp.plan.residual import residual
from duckdb_dp.plan.searched import SearchedPlan
from duckdb_dp.plan.smasher import querysmasher, residual_plus, wff
from duckdb_dp.plan.stored import restore
from duckdb_dp.release import release
from duckdb_dp.request import Question, Request
from duckdb_dp.testing import SeededEntropy
from tests.laws.dense import (
    D,
    answered,
    check_answers_without_noise,
    covariance,
    disjunctions,
    joint,
    predicted,
    product,
    rows,
    stacked,
    weights,
)

BETA = 0.7
RNG = np.random.default_rng(5)
KINDS = ["identity", "total", "prefix", "suffix", "range", "circular", "width-3", "hierarchy-3"]
WEIGHTED = Predicates.of([[1, 0, 1], [0, 1, 1]], [3.0, 0.25])

WORKLOADS: dict[str, Workload] = {
    **{f"{kind} alone": product({"e": kind}) for kind in KINDS},
    "identity by identity": product({"a": "identity", "c": "identity"}, 2.0),
    "circular by identity": product({"a": "circular", "c": "identity"}),
    **{f"{kind} by range": product({"a": "range", "e": kind}) for kind in KINDS},
    "the total": product({}),
    "a total of a set": product({"a": "total", "b": [[2, 2, 2], [1, 1, 1]]}),
    "marginals": Workload.marginals(D, [("a", "b"), ("c",), ("b", "e")], [1.0, 3.0, 0.5]),
    "all marginals": Workload.all_k_way(D, 3, upto=True) + product({}),
    "weighted predicates": product({"a": "prefix", "b": WEIGHTED}, 0.5),
    "predicates of a low rank": product({"a": [[1, 1, 0, 0]], "e": "identity"}),
    "a difference, which needs no total": product({"a": [[1, -1, 0, 0], [0, 0, 1, -1]]}),
    "real numbers": product({"a": [[0.0, 1.5, 2.5, 10.0]], "b": [[-1.0, 0.3, 7.0], [1.0, 1.0, 1.0]]}),
    "one value": product({"a": "prefix", "one": "range"}) + product({"one": "identity"}),
    "affine": joint(("a", "e"), "affine"),
    "abs": joint(("a", "b"), "abs", 4.0),
    "abs, weighted": joint(("a", "b"), "abs", [1.0, 2.0, 3.0, 4.0]),
    "a matrix on two": joint(("b", "c"), RNG.normal(size=(4, 6))),
    "a matrix on three": joint(("a", "b", "c"), (RNG.random((5, 24)) < 0.4).astype(float), 2.0),
    "a matrix with one value": joint(("a", "one"), RNG.normal(size=(3, 4))),
    "a joint matrix that is a product": joint(("a", "b"), np.eye(12)),
    "disjunctions": disjunctions({"a": "prefix", "e": "range"}, 2.0),
    "disjunctions of a few": disjunctions({"a": [[1, 0, 0, 1]], "b": [[0, 1, 0], [0, 0, 0]], "c": "identity"}),
    "a disjunction with all": disjunctions({"a": "total", "b": "prefix"}, 3.0) + disjunctions({"b": "prefix", "c": [[1, 1]]}),
    "disjunctions and conjunctions": (
        disjunctions({"a": "identity", "b": WEIGHTED, "one": [[0.0]]})
        + product({"a": "prefix", "b": "identity"}) + joint(("b", "c"), RNG.normal(size=(2, 6)))
    ),
    "all pairs": Workload.all_k_way(D, 2, upto=True, kinds={"a": "prefix", "e": "range", "b": WEIGHTED}),
    "one set, several kinds": product({"a": "prefix", "b": "identity"}) + product({"a": "range", "b": "prefix"}, 3.0),
    "a set twice": product({"a": "range"}) + product({"a": "range"}),
    "total first": product({"a": "total", "b": "identity"}) + product({"a": "prefix"}),
    "nothing beside something": product({"a": [[0, 0, 0, 0]], "b": "range"}) + product({"b": "prefix"}),
    "the ends joint, the middle asked": joint(("a", "e"), "abs") + product({"b": "identity"}),
    "a narrow family first": product({"a": [[1, 0, 0, 0]]}) + product({"a": "prefix", "b": [[1, 0, 0]]}) + joint(("a", "b"), "affine"),
    "everything": (
        Workload.all_k_way(D, 1, kinds="prefix")
        + joint(("a", "e"), "affine", 0.5)
        + joint(("a", "b"), "abs")
        + product({"a": "circular", "b": "hierarchy-2", "c": "identity"}, 0.1)
        + joint(("b", "c"), RNG.normal(size=(2, 6)), [1.0, 5.0])
        + product({"e": "width-2", "c": "suffix"})
    ),
}  # fmt: skip


OWN = {name: RNG.normal(size=(size + 1, size)) for name, size in D.sizes.items() if name != "c" and size > 1}
LINEAR: dict[str, Callable[[Workload, float], Plan]] = {
    "querysmasher": querysmasher,
    "wff": wff,
    "residual": residual,
    "residual_plus": residual_plus,
    "residual_plus, own bases": partial(residual_plus, bases=OWN),
}
OPERATORS = ["opt_0", "opt_kron", "opt_union", "opt_marginals", "opt_mixture", "best"]
GAUSSIAN = {f"gaussian {operator}": partial(hdmm, operator=operator) for operator in [*OPERATORS, "opt_residuals"]}
LAPLACE = {f"laplace {operator}": partial(hdmm_pure, operator=operator) for operator in OPERATORS}
PLANNERS = {**LINEAR, **GAUSSIAN, **LAPLACE}


LONG = {"everything", "all marginals", "disjunctions", "a narrow family first"}
"""Workloads that some operators of HDMM take long to plan."""
CASES = [
    pytest.param(planner, workload, marks=pytest.mark.slow if workload in LONG and planner in LAPLACE else ())
    for planner, workload in itertools.product(PLANNERS, WORKLOADS)
]


def every(test: Callable[..., None]) -> Callable[..., None]:
    """Three workloads for each planner by default, other ones for the next planner; all of them when slow."""
    return pytest.mark.some(2, "planner")(pytest.mark.parametrize(("planner", "workload"), CASES)(test))


@cache
def planned(workload: str, planner: str) -> Plan:
    return PLANNERS[planner](WORKLOADS[workload], BETA)


@every
def test_joint_privacy_cost(workload: str, planner: str) -> None:
    plan = planned(workload, planner)
    strategy, variance = stacked(plan)
    assert len({m.clique for m in plan.measurements}) == len(plan.measurements)
    if plan.noise == "gaussian":
        cost, stated = float((strategy**2 / variance[:, None]).sum(axis=0).max()), plan.beta
    else:
        cost, stated = float((np.abs(strategy) / np.sqrt(variance / 2)[:, None]).sum(axis=0).max()), plan.epsilon
    assert cost <= BETA * (1 + 1e-9)
    assert stated == pytest.approx(BETA, rel=1e-9)
    for measured, block in ((m, m.strategy.dense()) for m in plan.measurements):
        assert measured.strategy.squared_sensitivity >= (block**2).sum(axis=0).max() * (1 - 1e-15)


@every
def test_variance_of_every_query(workload: str, planner: str) -> None:
    plan = planned(workload, planner)
    variance = (answered(plan) ** 2) @ stacked(plan)[1]
    np.testing.assert_allclose(predicted(plan), variance, rtol=1e-6, atol=1e-10 * variance.max())
    total = float(np.concatenate([weights(part) for part in plan.workload.parts]) @ variance)
    assert plan.total == pytest.approx(total, rel=1e-6)
    assert plan.queries == len(variance)
    assert plan.rmse == pytest.approx(math.sqrt(total / len(variance)), rel=1e-6)
    parts = np.split(variance, np.cumsum([math.prod(part.shape) for part in plan.workload.parts])[:-1])
    means = [plan.mean_variance(index) for index in range(len(parts))]
    np.testing.assert_allclose(means, [part.mean() for part in parts], rtol=1e-6, atol=1e-10 * variance.max())
    largest = [part.weight * v.max() for part, v in zip(plan.workload.parts, parts, strict=True)]
    assert plan.max_stddev**2 == pytest.approx(max(largest), rel=1e-6)


@every
def test_answers_are_the_best_linear_ones_where_the_plan_is_consistent(workload: str, planner: str) -> None:
    plan = planned(workload, planner)
    least = np.diag(covariance(plan))
    assert (predicted(plan) >= least * (1 - 1e-6) - 1e-9).all()
    if not isinstance(plan, HdmmPlan) or plan.consistent:
        np.testing.assert_allclose(predicted(plan), least, rtol=1e-6, atol=1e-9 * least.max())


@every
def test_without_noise_the_answers_are_exact(workload: str, planner: str) -> None:
    check_answers_without_noise(planned(workload, planner))


@every
def test_shares_sum_to_one(workload: str, planner: str) -> None:
    plan = planned(workload, planner)
    shares = [plan.share(index) for index in range(len(plan.workload.parts))]
    assert min(shares) >= 0
    assert min(shares) > 0 or planner not in LINEAR or workload == "nothing beside something"
    assert math.fsum(shares) == pytest.approx(1, rel=1e-8)


@pytest.mark.some(2, "planners")
@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("planners", [LINEAR, GAUSSIAN, LAPLACE], ids=["linear", "gaussian", "laplace"])
def test_certificate(workload: str, planners: dict[str, Callable[..., Plan]]) -> None:
    """No bound is above any error, and the best planner of each kind is the best of them."""
    plans = [planned(workload, planner) for planner in planners]
    bounds, errors = [plan.lower_bound for plan in plans], [plan.rmse for plan in plans]
    best = planned(workload, "querysmasher" if planners is LINEAR else f"{plans[0].noise} best")
    assert 0 < min(bounds) <= max(bounds) <= min(errors) * (1 + 1e-9)
    assert best.rmse <= min(errors) * (1 + 1e-3)
    if planners is LINEAR:
        assert -1e-12 <= best.gap <= 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("workload", ["marginals", "one set, several kinds", "abs, weighted"])
def test_the_error_falls_as_the_budget_grows(workload: str, planner: str) -> None:
    plan = planned(workload, planner)
    dear = PLANNERS[planner](plan.workload, 4 * BETA)
    ratio = 2 if plan.noise == "gaussian" else 4
    assert dear.rmse == pytest.approx(plan.rmse / ratio, rel=1e-9)
    assert dear.lower_bound == pytest.approx(plan.lower_bound / ratio, rel=1e-9)


@every
def test_a_stored_plan_is_the_same_plan(workload: str, planner: str) -> None:
    plan = planned(workload, planner)
    if not isinstance(plan, SearchedPlan):
        assert plan.dump() == {}  # a closed form
        return
    arrays = plan.dump()
    assert all(array.dtype == np.float64 for array in arrays.values())
    again = restore(plan.workload, {name: array.copy() for name, array in arrays.items()})
    assert type(again) is type(plan)
    assert (again.mechanism, again.noise, again.lower_bound, again.rmse) == (
        plan.mechanism, plan.noise, plan.lower_bound, pytest.approx(plan.rmse, rel=1e-12),
    )  # fmt: skip
    noisy = {}
    for ours, theirs in zip(again.measurements, plan.measurements, strict=True):
        assert (ours.clique, ours.variance) == (theirs.clique, theirs.variance)
        np.testing.assert_array_equal(ours.strategy.dense(), theirs.strategy.dense())
        noisy[ours.clique] = np.random.default_rng(1).normal(size=ours.strategy.shape[0])
    for index in range(len(plan.workload.parts)):
        np.testing.assert_allclose(
            again.answer(index, again.estimates(noisy)), plan.answer(index, plan.estimates(noisy)), rtol=1e-9, atol=1e-9
        )


# Linear planners by themselves


@pytest.mark.parametrize("workload", ["marginals", "identity alone", "identity by identity"])
def test_identity_is_the_residual_planner(workload: str) -> None:
    assert planned(workload, "querysmasher").rmse == pytest.approx(planned(workload, "residual").rmse, rel=1e-4)


@pytest.mark.parametrize("workload", ["circular alone", "circular by identity", "marginals"])
def test_fourier_is_optimal_for_circular_queries(workload: str) -> None:
    plan = planned(workload, "wff")
    assert plan.rmse == pytest.approx(plan.lower_bound, rel=1e-3)
    assert plan.rmse <= planned(workload, "querysmasher").rmse * (1 + 1e-9)


def test_the_bound_holds_for_whatever_is_measured_on_a_residual() -> None:
    """Random strategies on the residuals of one product, each with its best split of the budget."""
    workload = product({"a": "range", "b": "prefix"})
    bound = querysmasher(workload, BETA).lower_bound
    rng = np.random.default_rng(8)
    for _ in range(20):
        bases = {"a": rng.normal(size=(6, 4)), "b": rng.normal(size=(3, 3))}
        assert bound <= residual_plus(workload, BETA, bases=bases).rmse


def test_products_too_many_for_one_dense_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best single product, with a bound that is true but need not be reached, and says so."""
    workload = WORKLOADS["one set, several kinds"]
    monkeypatch.setattr(solve, "MAX_DENSE", 10)
    monkeypatch.setattr(solve, "MAX_CIRCULANT", 10)
    plan = querysmasher(workload, BETA)
    assert plan.lower_bound <= planned("one set, several kinds", "querysmasher").rmse
    assert plan.rmse >= planned("one set, several kinds", "querysmasher").lower_bound
    np.testing.assert_allclose(
        np.concatenate([plan.variance(i).ravel() for i in range(2)]), np.diag(covariance(plan)), rtol=1e-7
    )
    with pytest.raises(DPError, match="queries of different kinds meet on a set of 12 cells"):
        wff(workload, BETA)
    with pytest.raises(DPError, match="queries of different kinds meet on a set of 12 cells"):
        querysmasher(workload + joint(("a", "b"), "affine"), BETA)


def test_bad_bases() -> None:
    workload = product({"a": "range"})
    for matrix in (np.eye(3), np.ones(4), np.full((4, 4), np.nan)):
        with pytest.raises(DPError, match=r"the basis of 'a' has shape .* it needs 4 finite columns"):
            residual_plus(workload, BETA, bases={"a": matrix})
    with pytest.raises(DPError, match="unknown attribute 'z'"):
        residual_plus(workload, BETA, bases={"z": np.eye(4)})


@pytest.mark.parametrize("matrix", [[[1, 1, 0, 0]], [[1, 1, 1, 1]]])
def test_a_basis_that_cannot_answer_the_queries_is_refused(matrix: list[list[float]]) -> None:
    with pytest.raises(DPError, match="the basis of 'a' does not answer"):
        residual_plus(product({"a": "range", "b": "identity"}), BETA, bases={"a": np.array(matrix, dtype=float)})


@pytest.mark.parametrize("planner", [querysmasher, wff, residual_plus, residual])
def test_nothing_to_measure(planner: Callable[..., Plan]) -> None:
    with pytest.raises(DPError, match="every query of the workload is 0 on every cell"):
        planner(product({"a": [[0, 0, 0, 0]], "b": "range"}), BETA)


@pytest.mark.parametrize("planner", [querysmasher, wff, residual_plus, residual])
def test_only_the_total_is_minimised(planner: Callable[..., Plan]) -> None:
    with pytest.raises(DPError, match="objective 'max' is planned for marginals only"):
        planner(product({"a": "range"}), BETA, "max")


# With noise

ATTRIBUTES = tuple(
    Attribute(name=name, type="INTEGER", kind="integers", points=(0, size - 1)) for name, size in D.sizes.items()
)
MIXED = (
    Question(clique=("a", "b"), kinds=("range", "prefix")),
    Question(clique=("a", "e"), kinds=("affine",), joint=True, weight=2.0),
    Question(clique=("b", "c", "e"), kinds=("identity", "identity", "hierarchy-2"), weight=0.5),
)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["querysmasher", "wff", "residual_plus", "residual"])
def test_noise_has_the_predicted_covariance_and_the_test_has_power(mechanism: str, tmp_path) -> None:
    """Whitened errors of many releases, drawn by the real sampler, charged and read back: chi-square, one and all."""
    ledger, draws = Ledger(tmp_path / "test.dp"), 60
    dataset = ledger.protect(
        catalog="c", schema="s", name="t", unit=None, max_rows=1, accounting="gdp", budget=Budget(mu=1000)
    )
    request = Request(
        function="dp_queries", catalog="c", schema="s", table="t", unit=None, max_rows=1, accounting=GDP,
        attributes=ATTRIBUTES, questions=MIXED, cost=0.25, mechanism=mechanism, objective="total",
    )  # fmt: skip
    table = np.random.default_rng(6).integers(0, 50, size=math.prod(D.sizes.values()))
    counts = Counts(D, {D.attributes: (np.arange(table.size), table)})
    truth = np.concatenate([rows(part) @ table for part in request.workload.parts])
    errors = []
    for draw in range(draws):
        stored = release(request, counts, ledger=ledger, dataset=dataset, bits=SeededEntropy(draw), fresh_key=str(draw))
        answers = load(ledger, stored)
        errors.append(np.concatenate(answers.parts(range(3))) - truth)
    found = np.array(errors)
    expected = covariance(answers.plan)
    np.testing.assert_allclose(np.concatenate(answers.stddevs(range(3))) ** 2, np.diag(expected), rtol=1e-7)
    values, vectors = np.linalg.eigh(expected)
    kept = values > 1e-9 * values[-1]
    assert kept.sum() > 30
    np.testing.assert_allclose(found @ vectors[:, ~kept], 0, atol=1e-6)  # answers agree with one another
    white = found @ vectors[:, kept] / np.sqrt(values[kept])

    def pvalue(scale: float) -> float:
        law = stats.chi2(white.size)
        size = float((white**2).sum()) / scale**2
        return 2 * min(law.cdf(size), law.sf(size))

    assert pvalue(1) > 1e-5
    assert all(pvalue(wrong) < 1e-5 for wrong in (0.9, 1.1))
    one = (found**2).sum(axis=0) / np.diag(expected)
    assert (2 * np.minimum(stats.chi2(draws).cdf(one), stats.chi2(draws).sf(one)) > 1e-7).all()
    assert abs(white.mean()) < 5 / math.sqrt(white.size)
    assert smasher.SubspacePlan is type(answers.plan)
