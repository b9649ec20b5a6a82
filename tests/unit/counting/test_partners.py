"""Links row by row: equal to their definition, and moved by one unit by a vector of length 1 at most."""

import itertools
from math import isqrt

import numpy as np
import pytest

from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.partners import NUMBER, ORIGINAL, WHOLE, Partners, partners_of
from duckdb_dp.domain.domain import Domain

ROWS = 6


def block(units: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """The block of units, each the rows that it has links to; a row may come several times."""
    keys, squares = [ROWS, 1], [NUMBER, ORIGINAL]
    for links in units:
        keys += links
        squares += [sum(links.count(row) ** 2 for row in set(links))] * len(links)
    return np.array(keys, dtype=np.int64), np.array(squares, dtype=np.int64)


@pytest.mark.parametrize("seed", range(20))
def test_a_unit_moves_the_rows_by_a_vector_of_length_one_at_most(seed: int) -> None:
    rng = np.random.default_rng(seed)
    units = [rng.integers(0, ROWS, rng.integers(1, 40)).tolist() for _ in range(8)]
    counts = Counts(Domain({"a": 2}), {partners_of(1): block(units)})
    everyone = counts.marginal(partners_of(1))
    assert counts.partners[partners_of(1)].rows == len(everyone) == ROWS
    for one in range(len(units)):
        others = Partners.read(*block(units[:one] + units[one + 1 :])).table()
        moved = (everyone - others).astype(object)
        assert (moved >= 0).all()
        assert 0.999 * WHOLE**2 < sum(moved**2) <= WHOLE**2


def test_weights_are_rounded_down_exactly() -> None:
    squares = np.arange(1, 200_000, dtype=np.int64)
    found = Partners(rows=len(squares), original=False, places=np.arange(len(squares)), squares=squares).table()
    assert found.tolist() == [isqrt(WHOLE**2 // n) for n in squares.tolist()]


def test_the_order_of_a_block_says_nothing() -> None:
    keys, squares = block([[0, 0, 3], [5], [1, 2, 3, 4]])
    tables = {
        tuple(Partners.read(keys[list(order)], squares[list(order)]).table())
        for order in itertools.islice(itertools.permutations(range(len(keys))), 500)
    }
    assert len(tables) == 1


def test_no_link_at_all() -> None:
    found = Partners.read(np.array([3, 0]), np.array([NUMBER, ORIGINAL]))
    assert (found.rows, found.original, found.table().tolist()) == (3, False, [0, 0, 0])
