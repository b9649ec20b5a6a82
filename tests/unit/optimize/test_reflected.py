"""The closed form of prefixes, suffixes and ranges: its error by halves of halves is that of the dense matrix."""

import numpy as np
import pytest

from duckdb_dp.domain.queries import Intervals
from duckdb_dp.optimize.reflected import _above, closed_form
from duckdb_dp.optimize.tridiagonal import KINDS


@pytest.mark.parametrize("n", [1, 2, 511, 512, 513, 1024, 1300])
def test_sums_above_the_diagonal(n: int) -> None:
    rng = np.random.default_rng(n)
    first, last, near, far = (rng.normal(size=m) for m in (n, n, n, 2 * n - 1))
    cell = np.arange(n)
    matrix = near[np.abs(np.subtract.outer(cell, cell))] + far[np.add.outer(cell, cell)]
    assert _above(first, last, near, far) == pytest.approx(float(first @ np.triu(matrix, 1) @ last), rel=1e-9, abs=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [3, 100, 513, 1100])
def test_the_error_is_that_of_the_dense_matrix(kind: str, n: int) -> None:
    found = closed_form(kind, n)
    matrix = found.strategy.dense()
    assert found.error == pytest.approx(
        np.trace(np.linalg.solve(matrix.T @ matrix, Intervals(kind, n).gram())), rel=1e-9
    )
    assert found.bound <= found.error < found.bound * 1.02
