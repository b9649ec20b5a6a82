"""The strategy problem as a semidefinite program, solved by a general interior-point method."""

import cvxpy as cp
import numpy as np
import numpy.typing as npt
import pytest

from duckdb_dp.optimize.strategy import solve

pytestmark = pytest.mark.slow

Array = npt.NDArray[np.float64]


def least_error(factor: Array) -> float:
    """Minimise tr(X) over X and V with [[X, S^T], [S, V]] positive semidefinite and diag V <= 1.

    By Schur complement that is X >= S^T V^+ S and range(V) >= range(S). S is replaced by one of full column rank with
    the same Gram matrix, without which the program has no interior.
    """
    u, sigma, _ = np.linalg.svd(factor, full_matrices=False)
    s = u[:, sigma > 1e-9 * sigma[0]] * sigma[sigma > 1e-9 * sigma[0]]
    n, r = s.shape
    x, v = cp.Variable((r, r), symmetric=True), cp.Variable((n, n), symmetric=True)
    problem = cp.Problem(cp.Minimize(cp.trace(x)), [cp.bmat([[x, s.T], [s, v]]) >> 0, cp.diag(v) <= 1])
    return float(problem.solve(solver=cp.CLARABEL))


def prefix(n: int) -> Array:
    return np.triu(np.ones((n, n)))


def affine(n: int, k: int) -> Array:
    cells = np.add.outer(np.arange(n), np.arange(k)).ravel()
    return (cells[:, None] <= np.arange(n + k - 1)).astype(float)


def centred(factor: Array) -> Array:
    return factor - factor.mean(axis=0)


@pytest.mark.parametrize(
    "factor",
    [
        prefix(5),
        prefix(8),
        centred(prefix(7)),
        affine(2, 4),
        centred(affine(2, 4)),
        np.eye(6)[:, :4],
        np.ones((5, 1)),
        np.diag([1.0, 10.0, 100.0]) @ prefix(3),
        *(np.random.default_rng(seed).normal(size=shape) for seed, shape in enumerate([(8, 3), (6, 9), (7, 7), (8, 1)])),
        *((np.random.default_rng(seed).random((8, 6)) < 0.4).astype(float) for seed in range(4)),
    ],
    ids=lambda factor: "x".join(map(str, factor.shape)),
)  # fmt: skip
def test_agrees_with_the_semidefinite_program(factor: Array) -> None:
    strategy = solve(factor=factor, tol=1e-7)
    oracle = least_error(factor)
    assert strategy.gap <= 1.01e-7
    assert strategy.dual <= oracle * (1 + 1e-5)  # the oracle is good to about 1e-6
    assert strategy.primal >= oracle * (1 - 1e-5)
    assert strategy.primal == pytest.approx(oracle, rel=1e-5)
