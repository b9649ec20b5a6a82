"""Projected gradients, the projection, and the fit of maximum entropy, against convex programs."""

import cvxpy as cp
import numpy as np
import pytest

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array, Identity
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.synthesis.links.blocks import Blocks
from duckdb_dp.synthesis.links.fit import fit, tilted
from duckdb_dp.synthesis.links.pgd import Queries, project, solve
from duckdb_dp.synthesis.links.sides import columns, side_of

pytestmark = pytest.mark.slow

DOMAIN = Domain({"l.a": 3, "l.b": 2, "r.c": 4, "r.d": 2})
CLIQUES: tuple[Clique, ...] = (("l.a", "r.c"), ("l.b", "r.c", "r.d"), ("l.a", "l.b", "r.d"))


def small(seed: int) -> tuple[Blocks, np.random.Generator]:
    rng = np.random.default_rng(seed)
    left = side_of(("l.a", "l.b"), np.stack([rng.integers(0, 3, 20), rng.integers(0, 2, 20)], 1))
    right = side_of(("r.c", "r.d"), np.stack([rng.integers(0, 4, 15), rng.integers(0, 2, 15)], 1))
    return Blocks(DOMAIN, left, right), rng


def violation(x: Array, caps: Array, total: Array | float, each: bool) -> float:
    sums = x.sum(1, keepdims=True) if each else x.sum()
    return max(float(np.abs(sums - total).max()), float((-x).max()), float((x - caps).max()))


def measured(rng: np.random.Generator) -> list[LinearMeasurement]:
    found = []
    for clique in CLIQUES:
        answers = rng.random(DOMAIN.cells(clique)) * 8
        found.append(LinearMeasurement(clique=clique, strategy=Identity(len(answers)), answers=answers, variance=1.0))
    return found


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_quadratic_program(seed: int, each: bool) -> None:
    blocks, rng = small(seed)
    caps = blocks.pairs()
    noisy = measured(rng)
    queries = Queries(blocks, noisy, 0.7)
    total = blocks.left.sizes[:, None].astype(np.float64) if each else 40.0
    found = solve(queries, 0.1 * caps, caps, total, one_parent=each, steps=5_000, tolerance=1e-12)
    assert violation(found, caps, total, each) < 1e-9
    x = cp.Variable(tuple(caps.shape))
    terms = []
    for one in noisy:
        left, right = blocks.split(one.clique)
        answers = blocks.indicator(left).T @ x @ blocks.indicator(right, right=True)
        terms.append(0.5 * cp.sum_squares(answers - 0.7 * one.answers.reshape(answers.shape)))
    sums = cp.sum(x, axis=1) == blocks.left.sizes if each else cp.sum(x) == 40
    problem = cp.Problem(cp.Minimize(cp.sum(terms)), [x >= 0, x <= caps, sums])
    problem.solve(solver=cp.CLARABEL)
    assert queries.gradient(found)[0] == pytest.approx(problem.value, rel=1e-6)


def test_plain_steps_get_there_later() -> None:
    blocks, rng = small(5)
    caps = blocks.pairs()
    queries = Queries(blocks, measured(rng))
    values = {
        (steps, fast): queries.gradient(solve(queries, 0.1 * caps, caps, 40.0, steps=steps, accelerate=fast))[0]
        for steps in (30, 3_000)
        for fast in (False, True)
    }
    assert values[3_000, True] <= values[3_000, False] * (1 + 1e-6)
    assert values[30, True] <= values[30, False]
    assert values[3_000, False] == pytest.approx(values[3_000, True], rel=1e-3)


def test_the_matrix_of_rows_has_the_same_optimum_as_blocks() -> None:
    blocks, rng = small(7)
    noisy = measured(rng)
    caps = blocks.pairs()
    queries = Queries(blocks, noisy)
    best = queries.gradient(solve(queries, 0.1 * caps, caps, 40.0, steps=5_000, tolerance=1e-12))[0]
    sides = [
        type(side)(attributes=side.attributes, types=side.types[side.rows], rows=np.arange(len(side.rows)))
        for side in (blocks.left, blocks.right)
    ]
    rows = Blocks(DOMAIN, *sides)
    full = Queries(rows, noisy)
    ones = rows.pairs()
    found = solve(full, 0.1 * ones, ones, 40.0, steps=5_000, tolerance=1e-12)
    assert violation(found, ones, 40.0, False) < 1e-9
    assert full.gradient(found)[0] == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_the_projection(seed: int) -> None:
    rng = np.random.default_rng(seed)
    point, weights, caps = rng.normal(size=(3, 12)), rng.random((3, 12)) + 0.01, rng.random((3, 12)) * 2
    total = caps.sum(1, keepdims=True) * rng.random((3, 1))
    found, y = project(point, weights, caps, total)
    again, _ = project(point, weights, caps, total, near=y + 3)
    np.testing.assert_allclose(found, again, atol=1e-12)
    assert violation(found, caps, total, True) < 1e-12
    x = cp.Variable((3, 12))
    cost = cp.sum(cp.multiply(1 / weights, cp.square(x - point)))
    cp.Problem(cp.Minimize(cost), [x >= 0, x <= caps, cp.sum(x, axis=1) == total[:, 0]]).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(found, x.value, atol=1e-4)


@pytest.mark.parametrize("total", [0.0, 24.0])
def test_the_projection_at_its_ends(total: float) -> None:
    caps, point = np.ones((1, 24)), np.random.default_rng(1).normal(size=(1, 24))
    assert violation(project(point, caps, caps, total)[0], caps, total, False) < 1e-12


def test_a_large_projection_keeps_its_constraints() -> None:
    caps, point = np.ones((1, 1_000_000)), np.random.default_rng(3).normal(size=(1, 1_000_000))
    assert violation(project(point, caps, caps, 10_075.0)[0], caps, 10_075.0, False) < 1e-9


@pytest.mark.parametrize("each", [False, True])
def test_maximum_entropy(each: bool) -> None:
    blocks, rng = small(2)
    base = blocks.independent(40.0)
    residuals, ridges = {}, {}
    for clique in CLIQUES if each else (("l.a",), ("r.d",), *CLIQUES):
        left, right = blocks.split(clique)
        shape = (blocks.columns(left).shape[1] if left else 1, blocks.columns(right).shape[1] if right else 1)
        residuals[clique], ridges[clique] = rng.normal(size=shape) * 2, float(rng.random() + 0.2)
    found, tilt = fit(blocks, base, residuals, ridges, one_parent=each, tolerance=1e-14, steps=2_000)
    x = cp.Variable(tuple(base.shape), nonneg=True)
    cost = cp.sum(cp.rel_entr(x, base))
    for clique, residual in residuals.items():
        left, right = blocks.split(clique)
        sides = [
            columns(side, DOMAIN, part) if part else np.ones((len(side.types), 1))
            for side, part in ((blocks.left, left), (blocks.right, right))
        ]
        cost += cp.sum_squares(sides[0].T @ x @ sides[1] - residual) / (2 * ridges[clique])
    sums = cp.sum(x, axis=1) == base.sum(1) if each else cp.sum(x) == 40
    cp.Problem(cp.Minimize(cost), [sums]).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(found, x.value, atol=2e-4)
    np.testing.assert_allclose(tilted(blocks, base, tilt, one_parent=each), found, rtol=1e-9)
