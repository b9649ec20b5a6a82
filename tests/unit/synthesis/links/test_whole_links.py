"""Whole links of each block: sums of rows and columns, expectations, and links of a kind that stay with it."""

import numpy as np
import pytest

from duckdb_dp.linop import Array, Integers
from duckdb_dp.synthesis.links.assign_links import filled


def expected_of(kinds: int, rng: np.random.Generator) -> tuple[Array, Integers, Integers]:
    """Expected links whose sums of columns are whole, rows with one link and with several, and the kind of each column."""
    rows, columns = np.sort(rng.integers(0, kinds, 600)), np.sort(np.arange(120) % kinds)
    shares = np.where(rows[:, None] == columns[None, :], 1.0, 0.0) * rng.gamma(1.0, 1.0, (600, 120))
    lefts = np.where(rng.random(600) < 0.2, 4, 1)
    shares *= (lefts / shares.sum(axis=1))[:, None]
    return shares, lefts, columns


@pytest.mark.parametrize("kinds", [1, 6, 30])
def test_whole_links_of_a_kind_stay_with_it_and_blocks_keep_their_expectations(kinds: int) -> None:
    """Columns were made even by links of any other column: of blocks with 0.9 of all links a tenth was lost."""
    rng = np.random.default_rng(kinds)
    shares, lefts, columns = expected_of(kinds, rng)
    rights = shares.sum(axis=0)
    mean, times = np.zeros_like(shares), 40
    for _ in range(times):
        whole = filled(shares, lefts, rights, rng)
        np.testing.assert_array_equal(whole.sum(axis=1), lefts)
        assert np.abs(whole.sum(axis=0) - rights).max() <= 1
        assert whole[shares == 0].sum() <= 0.01 * lefts.sum()
        mean += whole / times
    blocks = [
        np.add.reduceat(np.add.reduceat(one, np.arange(0, 600, 60)), np.arange(0, 120, 12), 1) for one in (mean, shares)
    ]
    away = (blocks[0] - blocks[1]) / np.sqrt(blocks[1] / times + 1e-3)
    assert np.sqrt((away**2).mean()) < 1.3
    large = shares > np.quantile(shares, 0.99)
    assert mean[large].sum() == pytest.approx(shares[large].sum(), rel=0.03)
    assert len(set(columns.tolist())) == kinds
