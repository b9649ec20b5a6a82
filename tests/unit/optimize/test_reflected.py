"""The closed form of prefixes, suffixes and ranges: error, bound and variances are those of the dense matrix."""

import numpy as np
import pytest

from duckdb_dp.domain.queries import Intervals
from duckdb_dp.linop import Waves
from duckdb_dp.optimize.reflected import WRITTEN, closed_form, waves
from duckdb_dp.optimize.tridiagonal import KINDS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [3, 100, 513, 1100])
def test_the_error_is_that_of_the_dense_matrix(kind: str, n: int) -> None:
    found = closed_form(kind, n)
    matrix = found.strategy.dense()
    assert found.error == pytest.approx(
        np.trace(np.linalg.solve(matrix.T @ matrix, Intervals(kind, n).gram())), rel=1e-9
    )
    assert found.bound <= found.error < found.bound * 1.02


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 33, 700])
def test_variances_without_the_matrix(kind: str, n: int) -> None:
    operator = waves(kind, n, closed_form(kind, n).strategy.scale)
    matrix = operator.dense()
    for asked in ("prefix", "suffix"):
        rows = Intervals(asked, n).dense()
        found = np.einsum("ki,ki->k", rows, np.linalg.solve(matrix.T @ matrix, rows.T).T)
        np.testing.assert_allclose(operator.squares(asked, 0), found, rtol=1e-10)


@pytest.mark.some(1)
@pytest.mark.parametrize(("n", "kind"), [(WRITTEN + 1, "suffix"), (100_000, "prefix"), (100_000, "range")])
def test_many_cells(kind: str, n: int) -> None:
    found = closed_form(kind, n)
    assert found.bound < found.error < found.bound * 1.005**2
    assert found.strategy.squared_sensitivity == pytest.approx(1, rel=1e-9)
    if kind != "range":
        assert isinstance(found.strategy, Waves)
        assert float(found.strategy.squares(kind, 0).sum()) == pytest.approx(found.error, rel=1e-8)
