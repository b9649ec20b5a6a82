"""p-Identity: the error is that of the dense strategy, the gradient is its slope, and the search finds what is known."""

import math

import numpy as np
import pytest
from scipy.optimize import check_grad

from duckdb_dp.optimize.p_identity import _Problem, optimise, uniform


def prefix(n: int) -> np.ndarray:
    return n - np.maximum.outer(np.arange(n), np.arange(n)).astype(float)


def ranges(n: int) -> np.ndarray:
    cell = np.arange(n)
    return (np.minimum.outer(cell, cell) + 1.0) * (n - np.maximum.outer(cell, cell))


def dense_error(gram: np.ndarray, matrix: np.ndarray) -> float:
    return float(np.trace(gram @ np.linalg.inv(matrix.T @ matrix)))


@pytest.mark.parametrize(("n", "p"), [(5, 1), (12, 3), (20, 7)])
def test_error_and_gradient(n: int, p: int) -> None:
    rng = np.random.default_rng(n)
    rows = rng.normal(size=(n + 2, n))
    problem = _Problem(rows.T @ rows, p)
    theta = rng.random(p * n) * 2
    assert (
        check_grad(lambda x: problem._value_and_slope(x)[0], lambda x: problem._value_and_slope(x)[1], theta)
        < 1e-5 * problem._value_and_slope(theta)[0]
    )
    found = optimise(rows.T @ rows, p, rng, restarts=2)
    assert found.error == pytest.approx(dense_error(rows.T @ rows, found.matrix), rel=1e-8)
    np.testing.assert_allclose(found.matrix.sum(axis=0), 1, rtol=1e-12)
    assert (found.matrix >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gram", "queries", "published"),
    [(prefix(64), 64, 5.32), (ranges(64), 64 * 65 // 2, 5.55)],
    ids=["prefix", "ranges"],
)
def test_published_errors_on_64_cells(gram: np.ndarray, queries: int, published: float) -> None:
    """[HDMM18] table 4, also with the order of the cells hidden."""
    rng = np.random.default_rng(1)
    shuffled = rng.permutation(64)
    for problem in (gram, gram[np.ix_(shuffled, shuffled)]):
        error = min(optimise(problem, p, rng, restarts=12).error for p in (4, 8))
        assert math.sqrt(2 * error / queries) <= published * 1.01


def test_marginals_have_a_closed_form() -> None:
    """All of I + c 1 1^T: no weight of one total beats the closed form's."""
    for n, b, c in [(5, 1.0, 1.0), (50, 2.0, 0.1), (7, 0.01, 30.0), (9, 1.0, 0.0)]:
        gram = b * np.eye(n) + c
        theta = uniform(n, float(np.trace(gram)), float(gram.sum()))

        def error(x: float, gram: np.ndarray = gram, n: int = n) -> float:
            return dense_error(gram, np.concatenate([np.eye(n), np.full((1, n), x)]) / (1 + x))

        best = min(error(x) for x in np.geomspace(1e-4, 1e4, 400))
        assert error(theta) <= best * (1 + 1e-6)
    assert uniform(9, 9.0, 9.0) == 0


def test_a_start_is_never_left_for_something_worse() -> None:
    gram, rng = prefix(30), np.random.default_rng(0)
    first = optimise(gram, 3, rng, restarts=4)
    theta = np.zeros((3, 30))
    theta[: len(first.theta)] = first.theta
    again = optimise(gram, 3, rng, restarts=0, starts=[theta])
    assert again.error <= first.error * (1 + 1e-9)
    assert again.theta.shape[1] == 30


def test_errors_keep_their_digits_where_theta_is_large() -> None:
    """Cells that only differ by rounding send Theta to its bound, where I + Theta Theta^T has a condition of 1e9."""
    theta = np.array([[1e4, 1e4, 0.5, 0.0], [1e4, 1e4 - 1e-4, 0.0, 2.0]])
    gram = prefix(4)
    matrix = np.concatenate([np.eye(4), theta]) / (1 + theta.sum(axis=0))
    inverse = np.linalg.pinv(matrix)
    assert _Problem(gram, 2).error(theta) == pytest.approx(float(np.sum((gram @ inverse) * inverse)), rel=1e-5)
