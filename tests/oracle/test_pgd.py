"""Projected gradients, the projection, and the fit of maximum entropy, against convex programs."""

import cvxpy as cp
import numpy as np
import pytest

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array
from duckdb_dp.synthesis.links.blocks import Blocks
from duckdb_dp.synthesis.links.fit import Datum, fit, tilted
from duckdb_dp.synthesis.links.pgd import Queries, Target, project, solve
from duckdb_dp.synthesis.links.sides import columns, side_of

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


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_quadratic_program(seed: int, each: bool) -> None:
    blocks, rng = small(seed)
    caps = blocks.pairs()
    targets = [
        Target(clique=c, counts=rng.random(DOMAIN.shape(c)) * 8, weight=float(rng.integers(1, 4))) for c in CLIQUES
    ]
    queries = Queries(blocks, targets)
    total = blocks.left.sizes[:, None].astype(np.float64) if each else 40.0
    found = solve(queries, 0.1 * caps, caps, total, one_parent=each, steps=5_000, tolerance=1e-12)
    assert violation(found, caps, total, each) < 1e-9
    x = cp.Variable(tuple(caps.shape))
    terms = []
    for target in targets:
        left, right = blocks.split(target.clique)
        answers = blocks.indicator(left).T @ x @ blocks.indicator(right, right=True)
        terms.append(0.5 * target.weight * cp.sum_squares(answers - target.counts.reshape(answers.shape)))
    sums = cp.sum(x, axis=1) == blocks.left.sizes if each else cp.sum(x) == 40
    problem = cp.Problem(cp.Minimize(cp.sum(terms)), [x >= 0, x <= caps, sums])
    problem.solve(solver=cp.CLARABEL)
    assert queries.gradient(found)[0] == pytest.approx(problem.value, rel=1e-6)


def test_plain_steps_get_there_later() -> None:
    blocks, rng = small(5)
    caps = blocks.pairs()
    queries = Queries(blocks, [Target(clique=c, counts=rng.random(DOMAIN.shape(c)) * 8) for c in CLIQUES])
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
    targets = [Target(clique=c, counts=rng.random(DOMAIN.shape(c)) * 8) for c in CLIQUES]
    caps = blocks.pairs()
    queries = Queries(blocks, targets)
    best = queries.gradient(solve(queries, 0.1 * caps, caps, 40.0, steps=5_000, tolerance=1e-12))[0]
    sides = [
        type(side)(attributes=side.attributes, types=side.types[side.rows], rows=np.arange(len(side.rows)))
        for side in (blocks.left, blocks.right)
    ]
    rows = Blocks(DOMAIN, *sides)
    full = Queries(rows, targets)
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
    data = []
    for clique in CLIQUES if each else (("l.a",), ("r.d",), *CLIQUES):
        left, right = blocks.split(clique)
        shape = (blocks.columns(left).shape[1] if left else 1, blocks.columns(right).shape[1] if right else 1)
        data.append(Datum(clique=clique, values=rng.normal(size=shape) * 2, ridge=float(rng.random() + 0.2)))
    found, tilt = fit(blocks, base, data, one_parent=each, tolerance=1e-14, steps=2_000)
    x = cp.Variable(tuple(base.shape), nonneg=True)
    cost = cp.sum(cp.rel_entr(x, base))
    for d in data:
        left, right = blocks.split(d.clique)
        sides = [
            columns(side, DOMAIN, part) if part else np.ones((len(side.types), 1))
            for side, part in ((blocks.left, left), (blocks.right, right))
        ]
        cost += cp.sum_squares(sides[0].T @ x @ sides[1] - d.values) / (2 * d.ridge)
    sums = cp.sum(x, axis=1) == base.sum(1) if each else cp.sum(x) == 40
    cp.Problem(cp.Minimize(cost), [sums]).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(found, x.value, atol=2e-4)
    np.testing.assert_allclose(tilted(blocks, base, tilt, one_parent=each), found, rtol=1e-9)
