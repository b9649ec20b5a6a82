"""Dense matrices over a small domain, which plans are compared with."""

import functools
import math

import numpy as np

from duckdb_dp.domain.disjunctions import Disjunctions
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Part, Workload
from duckdb_dp.plan.base import Plan

D = Domain({"a": 4, "b": 3, "one": 1, "c": 2, "e": 5})


def product(kinds: dict, weight: float = 1.0) -> Workload:
    return Workload.product(D, kinds, weight)


def joint(clique: tuple[str, ...], kind: object, weight: object = 1.0) -> Workload:
    return Workload.predicates(D, clique, kind, weight)


def disjunctions(kinds: dict, weight: float = 1.0) -> Workload:
    """Never written out as a matrix, however small."""
    (part,) = product(kinds, weight).parts
    return Workload(D, (Part(part.clique, (Disjunctions.of(part.queries),), weight, joint=True),))


def onto(clique: tuple[str, ...], domain: Domain = D) -> np.ndarray:
    """The 0/1 matrix from the full domain to a marginal."""
    factors = (np.eye(size) if name in clique else np.ones((1, size)) for name, size in domain.sizes.items())
    return functools.reduce(np.kron, factors)


def rows(part: Part, domain: Domain = D) -> np.ndarray:
    """The queries of a part over the full domain."""
    return functools.reduce(np.kron, (family.dense() for family in part.queries), np.eye(1)) @ onto(part.clique, domain)


def weights(part: Part) -> np.ndarray:
    return part.weight * functools.reduce(np.kron, (family.weights() for family in part.queries), np.ones(1))


def stacked(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """All strategy rows over the full domain, and the noise variance of each."""
    blocks = [m.strategy.dense() @ onto(m.clique, plan.workload.domain) for m in plan.measurements]
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


def predicted(plan: Plan) -> np.ndarray:
    """The variance of every query, as the plan says."""
    parts = enumerate(plan.workload.parts)
    return np.concatenate([np.broadcast_to(plan.variance(i), part.shape).ravel() for i, part in parts])


def covariance(plan: Plan) -> np.ndarray:
    """Of the generalised least squares estimate of all queries: W (B^T Sigma^-1 B)^+ W^T."""
    strategy, variance = stacked(plan)
    queries = np.concatenate([rows(part, plan.workload.domain) for part in plan.workload.parts])
    information = np.linalg.pinv(strategy.T @ (strategy / variance[:, None]), rcond=1e-11, hermitian=True)
    return queries @ information @ queries.T


def check_answers_without_noise(plan: Plan) -> None:
    """The answers from exact strategy answers are exact."""
    domain = plan.workload.domain
    counts = np.random.default_rng(3).integers(0, 1000, size=math.prod(domain.sizes.values()))
    exact = {
        m.clique: m.strategy.apply((onto(m.clique, domain) @ counts).astype(np.int64))[0] for m in plan.measurements
    }
    estimates = plan.estimates(exact)
    for index, part in enumerate(plan.workload.parts):
        answers = plan.answer(index, estimates)
        assert answers.shape == part.shape
        np.testing.assert_allclose(answers.ravel(), rows(part, domain) @ counts, rtol=1e-8, atol=1e-5)
