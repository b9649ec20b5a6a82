"""Prefixes, suffixes and ranges without an eigendecomposition: the dense solver and dense algebra say the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckdb_dp.domain.queries import parse_kind
from duckdb_dp.optimize import tridiagonal
from duckdb_dp.optimize.strategy import solve as dense_solve
from duckdb_dp.plan.hdmm import oracle


def inverse(kind: str, n: int, weights: np.ndarray) -> np.ndarray:
    """M = L^(1/2) G L^(1/2) / unit."""
    root = np.sqrt(weights)
    _, unit = tridiagonal.second_difference(kind, n)
    return root[:, None] * parse_kind(kind, n).gram() * root / unit


@pytest.mark.parametrize("kind", tridiagonal.KINDS)
@pytest.mark.parametrize("n", [2, 3, 64, 65, 200, pytest.param(513, marks=pytest.mark.slow)])
def test_as_good_as_the_dense_solver_and_no_worse_than_it_says(kind: str, n: int) -> None:
    gram = parse_kind(kind, n).gram()
    found = tridiagonal.solve(kind, n)
    v = found.matrix.T @ found.matrix
    np.testing.assert_allclose(v.diagonal(), 1, rtol=1e-13)
    assert found.primal == pytest.approx(np.trace(np.linalg.solve(v, gram)), rel=1e-7)
    assert 0 <= found.gap < 3e-5
    best = dense_solve(gram=gram, tol=1e-7)
    assert found.primal <= best.primal * (1 + 1e-5)
    assert found.dual <= best.primal


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(tridiagonal.KINDS), st.integers(2, 90), st.integers(0, 99))
def test_the_bound_and_the_root_for_any_weights(kind: str, n: int, seed: int) -> None:
    weights = 10.0 ** np.random.default_rng(seed).uniform(-2, 0, n)
    weights /= weights.sum()
    diagonal, _ = tridiagonal.second_difference(kind, n)
    values, vectors = np.linalg.eigh(inverse(kind, n, weights))
    root = (vectors * np.sqrt(values)) @ vectors.T
    np.testing.assert_allclose(tridiagonal._half(diagonal, weights), root, atol=3e-8 * root.max())
    np.testing.assert_allclose(tridiagonal.half_diagonal(diagonal, weights), root.diagonal(), rtol=1e-5)
    exact = float(np.sqrt(values).sum()) ** 2
    assert exact * (1 - 3e-5) < tridiagonal.least(diagonal, weights) < exact


@pytest.mark.parametrize("kind", tridiagonal.KINDS)
@pytest.mark.parametrize("scale", [1.0, 0.3, 7e5])
def test_kinds_are_recognised(kind: str, scale: float) -> None:
    gram = scale * parse_kind(kind, 40).gram()
    assert tridiagonal.kind_of(gram) == (kind, pytest.approx(scale))
    gram[3, 5] *= 1 + 1e-9
    assert tridiagonal.kind_of(gram) is None


@pytest.mark.parametrize("kind", ["identity", "total", "circular", "width-3", "hierarchy-2"])
def test_others_are_not(kind: str) -> None:
    assert tridiagonal.kind_of(parse_kind(kind, 40).gram()) is None


@pytest.mark.parametrize("kind", tridiagonal.KINDS)
def test_gaussian_takes_it_on_many_cells(kind: str) -> None:
    """The error that it knows is that of its covariance, and the bound scales with the queries' weight."""
    gram = 2.5 * parse_kind(kind, 600).gram()
    found = oracle.gaussian(gram)
    assert found.solved is gram
    assert found.against(gram) == found.error == pytest.approx(float((gram * found.covariance).sum()), rel=1e-7)
    assert found.bound <= found.error < found.bound * (1 + 3e-5)
    assert found.against(np.eye(600)) == pytest.approx(float(np.trace(found.covariance)))
