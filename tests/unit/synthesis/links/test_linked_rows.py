"""Which rows of a child table have a parent: as many as measured, and of the values that have."""

import numpy as np
import pytest

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Domain
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.linked_rows import linked_rows
from duckdb_dp.synthesis.links.sides import Side, side_of
from duckdb_dp.testing import SeededEntropy

SIZES = {"c.a": 3, "c.b": 4, "c.linked": 2}
RATES = np.array([0.1, 0.6, 1.0])


def table(n: int, seed: int = 0) -> tuple[Side, np.ndarray]:
    """Rows whose 'b' goes with 'a', and which of them have a parent, by 'a' alone."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 3, n)
    b = np.where(rng.random(n) < 0.7, a, rng.integers(0, 4, n))
    return side_of(("c.a", "c.b"), np.stack([a, b], 1)), rng.random(n) < RATES[a]


def queryable(side: Side, linked: np.ndarray, rho: float, seed: int = 0) -> PrivateQueryable:
    codes = side.types[side.rows]
    cells = np.bincount(codes[linked] @ [4, 1], minlength=12)
    blocks = {
        ("c.a", "c.b"): (np.arange(12), cells),
        ("c.linked",): (np.arange(2), np.array([(~linked).sum(), linked.sum()])),
    }
    return PrivateQueryable(Counts(Domain(SIZES), blocks), total=rho, accounting=ZCDP, rows=1, bits=SeededEntropy(seed))


def test_the_rows_with_a_parent_are_those_of_the_values_that_have_one() -> None:
    side, linked = table(4000)
    spent = queryable(side, linked, 10.0)
    kept = linked_rows(spent, side, "c.linked", 4000, 10.0, np.random.default_rng(1))
    assert spent.left == pytest.approx(0, abs=1e-9)
    assert len(kept) == pytest.approx(linked.sum(), abs=5)
    assert (np.diff(kept) > 0).all()
    codes = side.types[side.rows]
    for place, size in ((0, 3), (1, 4)):
        found = np.bincount(codes[kept, place], minlength=size)
        assert found == pytest.approx(np.bincount(codes[linked, place], minlength=size), abs=25)


@pytest.mark.parametrize("seed", range(5))
def test_without_a_budget_all_values_are_alike(seed: int) -> None:
    """Noise of the size of the table says nothing of its values."""
    side, linked = table(300)
    kept = linked_rows(queryable(side, linked, 1e-6, seed), side, "c.linked", 200, 1e-6, np.random.default_rng(seed))
    assert 1 <= len(kept) <= 200
    if len(kept) > 100:
        rates = np.bincount(side.types[side.rows[kept], 0], minlength=3) / np.bincount(side.types[side.rows, 0])
        assert np.ptp(rates) < 0.25


@pytest.mark.parametrize("most", [1, 50, 299, 300, 1000])
def test_no_more_than_parents_have_room_for(most: int) -> None:
    side, _ = table(300)
    everyone = np.ones(300, dtype=bool)
    kept = linked_rows(queryable(side, everyone, 10.0), side, "c.linked", most, 10.0, np.random.default_rng(0))
    assert len(kept) == pytest.approx(min(most, 300), abs=2)
    assert len(kept) <= most


def test_values_that_no_synthetic_row_has() -> None:
    side, linked = table(200)
    few = side_of(side.attributes, np.tile([[1, 2]], (50, 1)))
    kept = linked_rows(queryable(side, linked, 10.0), few, "c.linked", 50, 10.0, np.random.default_rng(0))
    assert len(kept) == pytest.approx(50 * linked.mean(), abs=3)


def test_a_table_without_attributes() -> None:
    side, linked = side_of((), np.zeros((100, 0), np.int64)), np.arange(100) < 40
    counts = Counts(Domain({"c.linked": 2}), {("c.linked",): (np.arange(2), np.array([60, 40]))})
    spent = PrivateQueryable(counts, total=1.0, accounting=ZCDP, rows=1, bits=SeededEntropy(1))
    kept = linked_rows(spent, side, "c.linked", 100, 1.0, np.random.default_rng(0))
    assert len(kept) == pytest.approx(linked.sum(), abs=8)
