"""Degrees where both sides are protected: measured ones are what rows get, and noise alone leaves the prior's."""

import numpy as np
import pytest
from scipy import stats

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.units import classes
from duckdb_dp.domain.domain import Domain
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.at_least import AtLeast, Cumulated, measure_cumulated, model_cumulated
from duckdb_dp.synthesis.links.per_unit import NoisyTable
from duckdb_dp.synthesis.links.sides import side_of
from duckdb_dp.testing import NoNoise, SeededEntropy


@pytest.mark.parametrize("most", [3, 60])
def test_degrees_are_those_that_were_measured(most: int) -> None:
    rows = np.zeros(most + 1, dtype=np.int64)
    rows[[0, 1, most]] = 300, 500, 200
    counts = Counts(Domain({"u.degree": most + 1}), {("u.degree",): (np.arange(most + 1), rows)})
    side = side_of(("a",), np.zeros((1000, 1), dtype=np.int64), max_degree=most)
    for bits, rho, near in ((NoNoise(), 1e6, 0.02), (SeededEntropy(1), 1e-7, 3.0)):
        queryable = PrivateQueryable(counts, total=rho, accounting=ZCDP, rows=most, bits=bits)
        shares = model_cumulated(
            measure_cumulated(queryable, "u.degree", rho), side, int(rows @ np.arange(most + 1))
        ).shares
        assert queryable.left == pytest.approx(0, abs=1e-9 * rho)
        assert shares.sum() == pytest.approx(1)
        assert shares.min() >= 0
        classed = [shares[:1], shares[1:2], shares[2 : most // 2], shares[-max(1, most // 10) :]]
        assert np.abs(np.array([part.sum() for part in classed]) - [0.3, 0.5, 0, 0.2]).sum() < near


def test_answers_are_exact() -> None:
    query, counts = AtLeast(np.array([1, 2, 4])), np.array([5, 4, 3, 2, 1])
    assert query.apply(counts)[0].tolist() == [10, 6, 1] == [query.exact(counts, i) for i in range(3)]


def test_noise_of_rows_with_at_least_so_many_links_makes_no_tail() -> None:
    """Numbers are made to fall before those below 0 are cut off: half of the noise would be left of each otherwise."""
    rows, found = np.zeros(31, dtype=np.int64), []
    rows[:3] = 1000, 1000, 1000
    counts = Counts(Domain({"u.degree": 31}), {("u.degree",): (np.arange(31), rows)})
    side = side_of(("a",), np.zeros((3000, 1), dtype=np.int64), max_degree=30)
    for seed in range(16):
        queryable = PrivateQueryable(counts, total=0.1, accounting=ZCDP, rows=30, bits=SeededEntropy(seed))
        shares = model_cumulated(measure_cumulated(queryable, "u.degree", 0.1), side, 3000).shares
        found.append(float(shares @ np.arange(31)))
    assert np.mean(found) < 1.05


SHAPES = {
    "gamma": (stats.nbinom.pmf(np.arange(41), 2, 2 / 14), 0.2),
    "two groups": ((stats.poisson.pmf(np.arange(41), 2) + stats.poisson.pmf(np.arange(41), 20)) / 2, 0.36),
}
"""Shares of rows with 0 to 40 links, and how far off they may be."""


@pytest.mark.parametrize("shape", SHAPES)
def test_a_smooth_distribution_is_kept_without_the_noise(shape: str) -> None:
    """Noise of a fiftieth of the rows in each number, of which differences of neighbours are a fortieth: one factor for all leaves it."""
    shares, near = SHAPES[shape]
    rows = np.round(1500 * shares / shares.sum()).astype(np.int64)
    first, rng, found = classes(40), np.random.default_rng(1), []
    least, side = rows[::-1].cumsum()[::-1], side_of(("a",), np.zeros((rows.sum(), 1), dtype=np.int64), max_degree=40)
    for _ in range(40):
        noisy = NoisyTable(least[first] + rng.normal(0, 30, len(first)), 900.0)
        measured = Cumulated(rows=float(rows.sum()), least=noisy)
        model = model_cumulated(measured, side, int(rows @ np.arange(41))).shares
        classed = np.add.reduceat(model - rows / rows.sum(), np.append(0, first))
        found.append(np.abs(classed).sum())
    assert np.mean(found) < near
