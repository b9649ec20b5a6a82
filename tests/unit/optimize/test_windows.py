"""Ranges of one width: the closed form is what dense algebra says, and next to the dense solver's optimum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckdb_dp.domain.queries import Intervals
from duckdb_dp.optimize.strategy import solve
from duckdb_dp.optimize.windows import closed_form


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 70), st.data())
def test_the_error_is_that_of_the_dense_matrix_and_the_bound_is_proved(n: int, data: st.DataObject) -> None:
    width = data.draw(st.integers(1, n))
    rows = Intervals("width", n, width).dense()
    found = closed_form(width, n)
    matrix = found.strategy.dense()
    np.testing.assert_allclose(np.linalg.norm(matrix, axis=0), 1, rtol=1e-12)
    v = matrix.T @ matrix
    assert found.error == pytest.approx(np.trace(rows @ np.linalg.solve(v, rows.T)), rel=1e-9)
    assert 0 < found.bound <= found.error
    assert found.bound <= solve(factor=rows.T, tol=1e-3).primal
    other = data.draw(st.integers(1, n))
    asked = Intervals("width", n, other).dense()
    squares = np.einsum("ki,ki->k", asked, np.linalg.solve(v, asked.T).T)
    np.testing.assert_allclose(found.strategy.windows(other), squares, rtol=1e-8)
    halves = sum(sign * half @ half.T for sign, half in found.strategy.halves())
    np.testing.assert_allclose(halves @ v, np.eye(n), atol=1e-10)


@pytest.mark.some(1)
@pytest.mark.parametrize(("n", "width"), [(513, 1), (513, 2), (600, 7), (520, 20), (640, 24)])
def test_next_to_the_optimum(n: int, width: int) -> None:
    found = closed_form(width, n)
    best = solve(factor=Intervals("width", n, width).dense().T, tol=1e-4)
    assert best.dual <= found.error < best.dual * 1.013
    assert best.primal * 0.987 < found.bound <= best.primal


@pytest.mark.parametrize("n", [513, 1000, 4096, 10_000])
def test_the_proved_gap(n: int) -> None:
    """At most 1 % in RMSE up to the width that 'auto' takes it for."""
    for width in (1, 2, 5, n // 100, n // 24):
        found = closed_form(width, n)
        assert found.bound * (1 - 1e-9) <= found.error < found.bound * 1.01**2
