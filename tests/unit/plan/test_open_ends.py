import math

import numpy as np
import pytest

from duckdb_dp.accounting.base import GDP
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.public_cells import edges
from duckdb_dp.domain.types import find
from duckdb_dp.noise.ranks import selected
from duckdb_dp.plan.open_ends import rows_needed, told
from duckdb_dp.plan.selection import Selection
from duckdb_dp.reconstruct.quantiles import Prefixes
from duckdb_dp.testing import SeededEntropy

N = 400


def selection(*quantiles: float) -> Selection:
    return Selection(
        name="", clique=("x",), shape=(N,), axis=0, quantiles=quantiles, cost=0.5, accounting=GDP, rows=1, fitted=lambda _: np.empty(0)
    )  # fmt: skip


def outside(one: Selection, rows: int, draws: int = 60) -> int:
    """How many draws have a value outside of a cell that all rows are in, of which nothing was known before."""
    counts, bits = np.zeros(N, dtype=np.int64), SeededEntropy(3)
    counts[7] = rows
    found = [
        selected(counts, np.zeros(N), one.quantiles, cost=one.cost, accounting=GDP, rows=1, bits=bits)
        for _ in range(draws)
    ]
    return sum(bool((np.floor(points) != 7).any()) for points in found)


@pytest.mark.parametrize("q", [0.35, 0.5, 0.7])
def test_as_many_rows_as_are_needed_hold_what_is_selected(q: float) -> None:
    one = selection(q)
    needed = rows_needed(one, q)
    assert outside(one, math.ceil(needed)) == 0
    assert outside(one, math.ceil(needed / 8)) > 2
    assert rows_needed(one, q, 3) == pytest.approx(3 * needed)
    assert needed < rows_needed(selection(0.1, q, 0.9), q) < math.inf


@pytest.mark.parametrize("quantiles", [(0.2,), (0.9,), (0.3, 0.5, 0.75)])
def test_no_number_of_rows_is_enough_for_others(quantiles: tuple[float, ...]) -> None:
    one = selection(*quantiles)
    assert rows_needed(one, quantiles[-1]) == math.inf
    assert outside(one, 2_000) > 5


def prefixes(*counts: float) -> Prefixes:
    noisy = np.array([counts])
    return Prefixes(counts=noisy, variances=np.ones_like(noisy), suffix_variances=np.ones_like(noisy), width=2.0)


def test_rows_are_seen_where_they_are_more_than_noise() -> None:
    low, high = prefixes(0.4, -0.3, 5, 60, 99.5, 101, 98, 100).seen()
    assert (low.tolist(), high.tolist()) == ([2], [4])
    low, high = prefixes(9, 9, 9).seen()
    assert (low.tolist(), high.tolist()) == ([0], [0])


@pytest.mark.parametrize("type_", ["INTEGER", "DOUBLE", "DECIMAL(9,2)", "DATE", "TIME", "UTINYINT"])
@pytest.mark.parametrize("sure", [None, np.array([True, False])])
def test_an_interval_ends_nowhere_beyond_what_is_seen(type_: str, sure: np.ndarray | None) -> None:
    dtype = find(type_)
    assert dtype is not None
    points = edges(dtype, fine=False)
    cells = Attribute(name="value", type=type_, kind="bins", points=points)
    n = len(points) - 1
    counts = np.where(np.arange(n) < n // 2, 0.0, 100.0)
    read = Prefixes(
        counts=np.stack([counts] * 2), variances=np.ones((2, n)), suffix_variances=np.ones((2, n)), width=2.0
    )
    near, far, lost = ([n // 2, 0.5, low, n // 2] for low in (n // 2, 0, 0))
    lost[0] = n // 2 - 1  # up to which no rows are
    found = told(np.array([far, near]), cells, read, sure)
    assert np.isnan(found[0]).tolist() == [False, False, True, False]
    assert found[1].tolist() == near
    found = told(np.array([lost, near]), cells, read, sure)
    assert np.isnan(found[0]).tolist() == ([True] * 4 if sure is None else [False, False, True, False])
    inner = Attribute(name="value", type=type_, kind="bins", points=points[1:-1])
    declared = told(np.array([far, near])[:, :], inner, read, sure)
    assert declared.tolist() == [far, near]
