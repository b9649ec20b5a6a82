"""Ranges of one width: the closed form is what dense algebra says, and next to the dense solver's optimum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckdb_dp.domain.queries import Intervals
from duckdb_dp.linop import Blended, Circulant, Dense, Folded, Merged, Waves
from duckdb_dp.optimize.blends import blended
from duckdb_dp.optimize.reflected import WRITTEN
from duckdb_dp.optimize.strategy import solve
from duckdb_dp.optimize.windows import closed_form, ring


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.integers(1, 70), st.data())
def test_the_error_is_that_of_the_dense_matrix_and_the_bound_is_proved(n: int, data: st.DataObject) -> None:
    width = data.draw(st.integers(1, n))
    rows = Intervals("width", n, width).dense()
    found = closed_form(width, n)
    matrix = found.strategy.dense()
    lengths = np.linalg.norm(matrix, axis=0)
    assert lengths.max() == pytest.approx(1, rel=1e-12)
    v = matrix.T @ matrix
    inverse = np.linalg.pinv(v, rcond=1e-9, hermitian=True)
    np.testing.assert_allclose(rows @ inverse @ v, rows, atol=1e-7)
    assert found.error == pytest.approx(float((rows.T @ rows * inverse).sum()), rel=1e-7)
    assert 0 < found.bound <= found.error
    assert found.bound <= solve(factor=rows.T, tol=1e-3).primal
    if 2 * width > n + 1:
        assert isinstance(found.strategy, Merged)
        return
    np.testing.assert_allclose(lengths, 1, rtol=1e-12)
    assert isinstance(found.strategy, Circulant | Folded)
    other = width if isinstance(found.strategy, Folded) else data.draw(st.integers(1, n))
    asked = Intervals("width", n, other).dense()
    squares = np.einsum("ki,ki->k", asked, np.linalg.solve(v, asked.T).T)
    np.testing.assert_allclose(found.strategy.windows(other), squares, rtol=1e-8)
    if isinstance(found.strategy, Folded):
        return
    halves = sum(sign * half @ half.T for sign, half in found.strategy.halves())
    np.testing.assert_allclose(halves @ v, np.eye(n), atol=1e-10)


@pytest.mark.parametrize(
    ("n", "width", "error"),
    [(240, 120, 1.014), (240, 60, 1.015), (240, 119, 1.012), (240, 110, 1.017), (240, 100, 1.028), (240, 79, 1.014)],
)
def test_wide_windows(n: int, width: int, error: float) -> None:
    """How near the root of the error and of the bound are to the optimum."""
    found = closed_form(width, n)
    best = solve(factor=Intervals("width", n, width).dense().T, tol=1e-4)
    assert best.dual <= found.error < best.dual * error**2
    assert best.primal * 0.9995**2 < found.bound <= best.primal


@pytest.mark.slow
def test_wide_windows_on_up_to_2048_cells_are_next_to_the_bound() -> None:
    found = closed_form(300, 1026)
    assert isinstance(found.strategy, Dense)
    assert np.linalg.norm(found.strategy.matrix, axis=0).max() == pytest.approx(1, rel=1e-9)
    assert 1 <= found.error / found.bound < 1.01
    rows = Intervals("width", 1026, 300).dense()
    b = found.strategy.matrix
    answers = np.linalg.solve(b @ b.T, b @ rows.T).T
    assert float(np.square(answers).sum()) == pytest.approx(found.error, rel=1e-6)
    np.testing.assert_allclose(answers @ b, rows, atol=1e-8)
    assert isinstance(closed_form(64, 1026).strategy, Circulant | Folded)  # where the gap is 0.8 % in no time


@pytest.mark.slow
@pytest.mark.parametrize(("n", "width", "gap"), [(1200, 1000, 2e-4), (5000, 3000, 0.005)])
def test_windows_of_more_than_half_of_the_cells(n: int, width: int, gap: float) -> None:
    """What all of them hold is one cell, and where few cells are left the optimum is found."""
    found = closed_form(width, n)
    assert isinstance(found.strategy, Merged)
    assert found.strategy.shape[1] == n
    assert found.bound <= found.error < found.bound * (1 + gap) ** 2


@pytest.mark.parametrize(("width", "n"), [(2, 3), (4, 9), (7, 13), (3, 12), (10, 31), (6, 40), (15, 31)])
def test_variances_by_a_coarse_strategy_are_those_of_its_matrix(width: int, n: int) -> None:
    operator = blended(width, n)
    matrix, rows = operator.dense(), Intervals("width", n, width).dense()
    v = matrix.T @ matrix
    assert np.diag(v).max() == pytest.approx(1, rel=1e-12)
    inverse = np.linalg.pinv(v, rcond=1e-9, hermitian=True)
    np.testing.assert_allclose(rows @ inverse @ v, rows, atol=1e-7)
    np.testing.assert_allclose(operator.windows(width), np.einsum("ki,ij,kj->k", rows, inverse, rows), rtol=1e-8)


@pytest.mark.some(2)
@pytest.mark.parametrize("n", [2100, 4096, 10_000])
@pytest.mark.parametrize("parts", [2.0, 2.1, 2.5, 3.0, 3.5, 4.7, 7.0, 10.3, 14.9, 1.6])
def test_the_proved_gap_of_wide_windows(n: int, parts: float) -> None:
    found = closed_form(int(n / parts), n)
    inner = found.strategy.inner if isinstance(found.strategy, Merged) else found.strategy
    assert parts > 12 or isinstance(inner, Blended | Dense)
    assert found.bound <= found.error < found.bound * 1.01**2


@pytest.mark.parametrize(("width", "gap"), [(10_000, 0.012), (12_400, 0.015), (49_000, 0.01), (60_000, 0.06)])
def test_the_proved_gap_on_very_many_cells(width: int, gap: float) -> None:
    found = closed_form(width, 100_000)
    assert found.bound <= found.error < found.bound * (1 + gap) ** 2


@pytest.mark.some(1)
@pytest.mark.parametrize(("n", "width"), [(513, 1), (513, 2), (600, 7), (520, 20), (640, 24)])
def test_next_to_the_optimum(n: int, width: int) -> None:
    found = closed_form(width, n)
    best = solve(factor=Intervals("width", n, width).dense().T, tol=1e-4)
    assert best.dual <= found.error < best.dual * 1.013
    assert best.primal * 0.987 < found.bound <= best.primal


@pytest.mark.parametrize("n", [513, 1000, 4096, 10_000, 16_385, 100_000])
def test_the_proved_gap(n: int) -> None:
    """At most 1 % in RMSE up to the width that 'auto' takes it for."""
    for width in (1, 2, 5, n // 100, n // (24 if n <= WRITTEN else 25)):
        found = closed_form(width, n)
        assert found.bound * (1 - 1e-9) <= found.error < found.bound * 1.01**2


@pytest.mark.parametrize(("n", "width"), [(1, 1), (2, 2), (9, 1), (50, 7), (51, 30), (400, 20)])
def test_variances_on_a_ring(n: int, width: int) -> None:
    operator = ring(width, n)
    assert isinstance(operator, Waves)
    matrix, rows = operator.dense(), Intervals("width", n, width).dense()
    np.testing.assert_allclose(np.linalg.norm(matrix, axis=0), 1, rtol=1e-12)
    found = np.einsum("ki,ki->k", rows, np.linalg.solve(matrix.T @ matrix, rows.T).T)
    np.testing.assert_allclose(operator.squares("width", width), found, rtol=1e-8)
