"""The bound for wide windows: below the optimum, and next to it; its trace beside singular values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckdb_dp.domain.queries import Intervals
from duckdb_dp.optimize import window_bound
from duckdb_dp.optimize.strategy import solve


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 60), st.data())
def test_the_trace_is_proved_for_any_weights(n: int, data: st.DataObject) -> None:
    width = data.draw(st.integers(1, n - 1))
    weights = np.random.default_rng(data.draw(st.integers(0, 9))).gamma(0.5, size=n) + 1e-3
    weights /= weights.sum()
    rows = Intervals("width", n, width).dense()
    exact = float(np.linalg.svd(rows * np.sqrt(weights), compute_uv=False).sum())
    assert exact * (1 - 2e-4) < window_bound.trace(width, weights) <= exact


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 60), st.data())
def test_no_strategy_is_better(n: int, data: st.DataObject) -> None:
    width = data.draw(st.integers(2, n))
    best = solve(factor=Intervals("width", n, width).dense().T, tol=1e-6)
    assert best.dual * 0.98 < window_bound.least(width, n) <= best.primal


@pytest.mark.parametrize(("n", "width"), [(480, 240), (500, 170), (600, 26), (600, 110), (600, 400)])
def test_it_is_next_to_the_optimum_where_cells_are_coarse(n: int, width: int) -> None:
    best = solve(factor=Intervals("width", n, width).dense().T, tol=1e-4)
    assert best.dual * 0.99 < window_bound.least(width, n) <= best.primal


@pytest.mark.parametrize(("n", "width"), [(7, 3), (100, 30), (1000, 24), (10_000, 417), (10_000, 9_990)])
def test_weights_add_up(n: int, width: int) -> None:
    weights = window_bound.spread(width, n)
    assert weights.shape == (n,)
    assert weights.sum() == pytest.approx(1)
    assert weights.min() >= 0
