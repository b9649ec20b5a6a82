"""What must hold for every operator of HDMM on every workload, against dense matrices over a small domain."""

import functools
import itertools
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from duckdb_dp.domain.disjunctions import Disjunctions
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.queries import Predicates
from duckdb_dp.domain.workload import Part, Workload
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.choose import restore
from duckdb_dp.plan.hdmm import hdmm, hdmm_pure
from duckdb_dp.plan.hdmm.plans import HdmmPlan
from duckdb_dp.plan.searched import SearchedPlan

D = Domain({"a": 4, "b": 3, "one": 1, "c": 2, "e": 5})
COST = 0.7
RNG = np.random.default_rng(5)
KINDS = ["identity", "total", "prefix", "suffix", "range", "circular", "width-3", "hierarchy-3"]
WEIGHTED = Predicates.of([[1, 0, 1], [0, 1, 1]], [3.0, 0.25])


def product(kinds: dict, weight: float = 1.0) -> Workload:
    return Workload.product(D, kinds, weight)


def joint(clique: tuple[str, ...], kind: object, weight: object = 1.0) -> Workload:
    return Workload.predicates(D, clique, kind, weight)


def disjunctions(kinds: dict, weight: float = 1.0) -> Workload:
    """Never written out as a matrix, however small."""
    (part,) = product(kinds, weight).parts
    return Workload(D, (Part(part.clique, (Disjunctions.of(part.queries),), weight, joint=True),))


WORKLOADS: dict[str, Workload] = {
    **{f"{kind} alone": product({"e": kind}) for kind in KINDS},
    "identity by identity": product({"a": "identity", "c": "identity"}, 2.0),
    "circular by identity": product({"a": "circular", "c": "identity"}),
    "prefix by range": product({"a": "range", "e": "prefix"}),
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
    "everything": (
        Workload.all_k_way(D, 1, kinds="prefix")
        + joint(("a", "e"), "affine", 0.5)
        + joint(("a", "b"), "abs")
        + product({"a": "circular", "b": "hierarchy-2", "c": "identity"}, 0.1)
        + joint(("b", "c"), RNG.normal(size=(2, 6)), [1.0, 5.0])
        + product({"e": "width-2", "c": "suffix"})
    ),
}  # fmt: skip

OPERATORS = ["opt_0", "opt_kron", "opt_union", "opt_marginals", "opt_mixture"]
PLANNERS: dict[str, Callable[[Workload, float], Plan]] = {
    f"{noise} {operator}": functools.partial(planner, operator=operator)
    for noise, planner in (("gaussian", hdmm), ("laplace", hdmm_pure))
    for operator in [*OPERATORS, *(["opt_residuals"] if noise == "gaussian" else []), "best"]
}
every = pytest.mark.parametrize(
    ("workload", "planner"), list(itertools.product(WORKLOADS, PLANNERS)), ids=lambda name: name.replace(" ", "_")
)


@cache
def planned(workload: str, planner: str) -> Plan:
    return PLANNERS[planner](WORKLOADS[workload], COST)


def onto(clique: tuple[str, ...]) -> np.ndarray:
    """The 0/1 matrix from the full domain to a marginal."""
    factors = (np.eye(size) if name in clique else np.ones((1, size)) for name, size in D.sizes.items())
    return functools.reduce(np.kron, factors)


def rows(part: Part) -> np.ndarray:
    """The queries of a part over the full domain."""
    return functools.reduce(np.kron, (family.dense() for family in part.queries), np.eye(1)) @ onto(part.clique)


def weights(part: Part) -> np.ndarray:
    return part.weight * functools.reduce(np.kron, (family.weights() for family in part.queries), np.ones(1))


def stacked(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """All strategy rows over the full domain, and the noise variance of each."""
    blocks = [m.strategy.dense() @ onto(m.clique) for m in plan.measurements]
    return np.concatenate(blocks), np.repeat([m.variance for m in plan.measurements], [len(block) for block in blocks])


def answered(plan: Plan) -> np.ndarray:
    """The matrix from all noisy strategy answers to all answers: what the plan really does, column by column."""
    sizes = [m.strategy.shape[0] for m in plan.measurements]
    columns = []
    for unit in np.eye(sum(sizes)):
        noisy = dict(zip([m.clique for m in plan.measurements], np.split(unit, np.cumsum(sizes)[:-1]), strict=True))
        estimates = plan.estimates(noisy)
        parts = range(len(plan.workload.parts))
        columns.append(np.concatenate([plan.answer(index, estimates).ravel() for index in parts]))
    return np.stack(columns, axis=1)


@every
def test_privacy_cost(workload: str, planner: str) -> None:
    plan = planned(workload, planner)
    strategy, variance = stacked(plan)
    assert len({m.clique for m in plan.measurements}) == len(plan.measurements)
    if plan.noise == "gaussian":
        joint_cost, stated = float((strategy**2 / variance[:, None]).sum(axis=0).max()), plan.beta
    else:
        joint_cost = float((np.abs(strategy) / np.sqrt(variance / 2)[:, None]).sum(axis=0).max())
        stated = plan.epsilon
    assert joint_cost <= COST * (1 + 1e-9)
    assert stated == pytest.approx(COST, rel=1e-9)


@every
def test_variance_of_every_query(workload: str, planner: str) -> None:
    plan = planned(workload, planner)
    _, noise = stacked(plan)
    variance = (answered(plan) ** 2) @ noise
    predicted = [np.broadcast_to(plan.variance(i), part.shape).ravel() for i, part in enumerate(plan.workload.parts)]
    scale = variance.max()
    np.testing.assert_allclose(np.concatenate(predicted), variance, rtol=1e-6, atol=1e-10 * scale)
    total = float(np.concatenate([weights(part) for part in plan.workload.parts]) @ variance)
    assert plan.total == pytest.approx(total, rel=1e-6)
    assert plan.queries == len(variance)


@every
def test_without_noise_the_answers_are_exact(workload: str, planner: str) -> None:
    plan = planned(workload, planner)
    counts = np.random.default_rng(3).integers(0, 1000, size=math.prod(D.sizes.values()))
    exact = {m.clique: m.strategy.apply((onto(m.clique) @ counts).astype(np.int64))[0] for m in plan.measurements}
    estimates = plan.estimates(exact)
    for index, part in enumerate(plan.workload.parts):
        answers = plan.answer(index, estimates)
        assert answers.shape == part.shape
        np.testing.assert_allclose(answers.ravel(), rows(part) @ counts, rtol=1e-8, atol=1e-5)


@every
def test_answers_are_the_best_linear_ones_where_the_plan_is_consistent(workload: str, planner: str) -> None:
    plan = planned(workload, planner)
    strategy, noise = stacked(plan)
    queries = np.concatenate([rows(part) for part in plan.workload.parts])
    information = np.linalg.pinv(strategy.T @ (strategy / noise[:, None]), rcond=1e-11, hermitian=True)
    least = np.einsum("ij,jk,ik->i", queries, information, queries)
    predicted = np.concatenate(
        [np.ravel(np.broadcast_to(plan.variance(i), p.shape)) for i, p in enumerate(plan.workload.parts)]
    )
    assert (predicted >= least * (1 - 1e-6) - 1e-9).all()
    if not isinstance(plan, HdmmPlan) or plan.consistent:
        np.testing.assert_allclose(predicted, least, rtol=1e-6, atol=1e-9 * least.max())


@every
def test_certificate(workload: str, planner: str) -> None:
    plan = planned(workload, planner)
    noise = planner.split()[0]
    assert plan.lower_bound > 0
    for other in PLANNERS:
        if other.startswith(noise):
            assert plan.lower_bound <= planned(workload, other).rmse * (1 + 1e-9)
            assert planned(workload, f"{noise} best").rmse <= planned(workload, other).rmse * (1 + 1e-3)


@every
def test_shares_sum_to_one(workload: str, planner: str) -> None:
    plan = planned(workload, planner)
    shares = [plan.share(index) for index in range(len(plan.workload.parts))]
    assert min(shares) >= 0
    assert math.fsum(shares) == pytest.approx(1, rel=1e-8)


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("workload", ["marginals", "one set, several kinds", "abs, weighted"])
def test_the_error_falls_as_the_budget_grows(workload: str, planner: str) -> None:
    plan = planned(workload, planner)
    dear = PLANNERS[planner](plan.workload, 4 * COST)
    ratio = 2 if plan.noise == "gaussian" else 4
    assert dear.rmse == pytest.approx(plan.rmse / ratio, rel=1e-9)
    assert dear.lower_bound == pytest.approx(plan.lower_bound / ratio, rel=1e-9)


@every
def test_a_stored_plan_is_the_same_plan(workload: str, planner: str) -> None:
    plan = planned(workload, planner)
    arrays = plan.dump()
    if not isinstance(plan, SearchedPlan):
        assert arrays == {}  # a closed form
        return
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
