"""From a strategy on few cells to one on many: its sensitivity, its error, and what the search starts from."""

import math

import numpy as np
import pytest

from duckdb_dp.domain.queries import Intervals, parse_kind
from duckdb_dp.optimize.layers import Family, coarsened, hats
from duckdb_dp.optimize.p_identity import optimise, refine
from duckdb_dp.plan.hdmm.oracle import closed_form_pure, laplace


@pytest.mark.parametrize(("n", "count"), [(1, 1), (5, 1), (7, 2), (40, 8), (41, 13)])
def test_hats_share_every_cell_out(n: int, count: int) -> None:
    found = hats(n, count)
    assert found.shape == (count, n)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=0), 1, rtol=1e-14)
    assert (np.count_nonzero(found, axis=0) <= 2).all()
    np.testing.assert_allclose(found, found[::-1, ::-1], atol=1e-12)


@pytest.mark.parametrize("kind", ["prefix", "range", "width-20"])
def test_a_search_from_coarse_cells_starts_near_its_end(kind: str) -> None:
    gram = parse_kind(kind, 160).gram()
    coarse = optimise(coarsened(gram, 10), 1, np.random.default_rng(1), restarts=3)
    found = refine(gram, coarse.matrix)
    assert 0 <= found.gain < 0.15
    np.testing.assert_allclose(found.matrix.sum(axis=0), 1, rtol=1e-12)
    error = np.trace(np.linalg.solve(found.matrix.T @ found.matrix, gram))
    assert found.error == pytest.approx(float(error), rel=1e-8)


@pytest.mark.parametrize(
    ("kind", "n", "width"), [("prefix", 100, 0), ("suffix", 77, 0), ("range", 64, 0), ("width", 90, 20)]
)
def test_the_error_of_a_layer_is_that_of_the_dense_matrix(kind: str, n: int, width: int) -> None:
    queries = Intervals(kind, n, width)
    found = Family(kind, n, width).strategy(lambda gram: laplace(gram).strategy.dense())
    matrix = found.strategy.dense()
    np.testing.assert_allclose(matrix.sum(axis=0), 1, rtol=1e-12)
    covariance = np.linalg.inv(matrix.T @ matrix)
    assert found.error == pytest.approx(float((queries.gram() * covariance).sum()), rel=1e-10)
    squares = np.einsum("ki,ij,kj->k", queries.dense(), covariance, queries.dense())
    np.testing.assert_allclose(found.strategy.squares(*queries.bounds()), squares, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "n", "width", "rmse"), [("prefix", 4096, 0, 12.1), ("width", 4096, 500, 12.2)])
def test_a_layer_on_many_cells(kind: str, n: int, width: int, rmse: float) -> None:
    """A search over all 4,096 cells ended at 14.07 for prefixes, in a minute."""
    queries = Intervals(kind, n, width)
    found = closed_form_pure(queries)
    assert 0 < found.bound < found.error
    assert math.sqrt(2 * found.error / queries.count) < rmse


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rmse"), [("prefix", 8.427), ("range", 9.559), ("width-32", 6.399)])
def test_no_worse_than_searches_from_random_starts(kind: str, rmse: float) -> None:
    """On 512 cells: what 8 random starts and two trees found in ten times as long."""
    queries = parse_kind(kind, 512)
    assert math.sqrt(2 * laplace(queries.gram()).error / queries.count) < rmse
